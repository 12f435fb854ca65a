# The values of one call, as libfovea takes them, and running a plan with them.

# What a call points to beside q, k, v and the arrays of Slots; nothing if there is none.
struct Extras
    lse::Any
    grad_lse::Any
    sinks::Any
    grad_sinks::Any
    q_lengths::Any
    kv_lengths::Any
end

address_or_null(::Nothing) = C_NULL
address_or_null(x::AbstractArray) = address(x)
tensor(x) = CTensor(address_or_null(x), NO_STRIDES)  # strides are the problem's

function bindings_of(o::Options, arrays, slots::Slots, extras::Extras, tensors, scalars, workspace, bytes, stream)
    q, k, v = arrays
    offset(x) = CI32Value(x, 1, C_NULL)
    return filled(
        CBindings; q = tensor(q), k = tensor(k), v = tensor(v), o = tensor(slots.o), grad_o = tensor(slots.grad_o),
        grad_q = tensor(slots.grad_q), grad_k = tensor(slots.grad_k), grad_v = tensor(slots.grad_v),
        lse = address_or_null(extras.lse), grad_lse = address_or_null(extras.grad_lse),
        sink = address_or_null(extras.sinks), grad_sink = address_or_null(extras.grad_sinks),
        q_lengths = address_or_null(extras.q_lengths), k_lengths = address_or_null(extras.kv_lengths),
        tensors = pointer(tensors), tensor_count = length(tensors), scalars = pointer(scalars),
        scalar_count = length(scalars), seed = CU64Value(o.seed, C_NULL), offset = CU64Value(o.offset, C_NULL),
        q_offset = offset(o.q_offset), k_offset = offset(o.k_offset), workspace = workspace, workspace_bytes = bytes,
        stream = stream)
end

tensor_binding(t::CapturedTensor, gradient) =
    CTensorBinding(pointer(t.name), c_array(t.array, t.order), gradient === nothing ? NO_ARRAY : c_array(gradient, t.order))
scalar_binding(s::CapturedScalar, gradient) = CScalarBinding(pointer(s.name), s.value, C_NULL, address_or_null(gradient))

no_gradient(captured) = nothing

# `gradient(captured)` is the array for the gradient of a captured tensor or scalar, or nothing.
function run(key::PlanKey, program::Program, o::Options, arrays, slots::Slots, extras::Extras, gradient = no_gradient)
    like = owner(arrays[1])
    enter_device(like)
    prepared = acquire(key, program)
    try
        GC.@preserve program arrays slots extras begin
            tensors = CTensorBinding[tensor_binding(t, gradient(t)) for t in program.tensors]
            scalars = CScalarBinding[scalar_binding(s, gradient(s)) for s in program.scalars]
            with_workspace(like, prepared.workspace) do workspace
                bindings = Ref(bindings_of(o, arrays, slots, extras, tensors, scalars, workspace, prepared.workspace,
                                           current_stream(like)))
                GC.@preserve bindings tensors scalars gradient begin
                    check(safe_call(library().functions.plan_run, prepared.plan, address_of(bindings)))
                end
            end
        end
    finally
        release(prepared)
    end
    return nothing
end

# ---- per-sequence and per-head numbers ----

function lengths_of(name, lengths, like, batch, longest)
    lengths === nothing && return nothing
    length(lengths) == batch || throw(DimensionMismatch("$name has $(length(lengths)) entries for a batch of $batch"))
    on_host(lengths) && all(n -> isinteger(n) && 0 <= n <= longest, lengths) || !on_host(lengths) ||
        refuse("$name = $lengths: each must be an integer between 0 and $longest")
    return beside(like, lengths, Int32)
end

function sinks_of(sinks, like, heads, ::Type{T}) where {T}
    sinks === nothing && return nothing
    length(sinks) == heads || throw(DimensionMismatch("sinks has $(length(sinks)) entries for $heads heads"))
    return beside(like, sinks, T)
end

# Everything a call touches must be where q is.
function check_devices(device, program::Program, named)
    for (name, x) in named
        x === nothing || device_of(x) == device ||
            refuse("$name is on $(device_of(x)), but q is on $device")
    end
    for t in program.tensors
        device_of(t.array) == device || refuse("the captured array '$(t.key)' is on $(device_of(t.array)), but q is on $device")
    end
end

const GPU_ENGINES = ("cudnn", "jit")

function check_engine(engine, device)
    device == "cpu" && engine in GPU_ENGINES || return
    refuse("engine = \"$engine\" works on the memory of a GPU, but q is an Array of the host: load CUDA.jl and give CuArrays, ",
           "or leave the engine to Fovea")
end
