# From arrays and options to the problem: sizes, types and strides, checked.

function check_rank(name, x)
    ndims(x) == 4 && return
    refuse("$name has size $(size(x)), but Fovea takes four dimensions: (head_dim, heads, seq, batch)",
           ndims(x) == 3 ? "; one sequence is reshape($name, size($name)..., 1)" : "")
end

function sizes_of(q, k, v)
    check_rank("q", q); check_rank("k", k); check_rank("v", v)
    d, h, sq, b = size(q)
    dk, hkv, skv, bk = size(k)
    dv, hv, sv, bv = size(v)
    mismatch(rule) = throw(DimensionMismatch("q has size $(size(q)), k $(size(k)), v $(size(v)): $rule"))
    d == dk || mismatch("head_dim of q and k must be equal")
    b == bk == bv || mismatch("batches must be equal")
    hkv == hv || mismatch("heads of k and v must be equal")
    skv == sv || mismatch("lengths of k and v must be equal")
    hkv == h || hkv > 0 && h % hkv == 0 || mismatch("heads of q must be a multiple of those of k and v")
    return CSizes(b, h, hkv, sq, skv, d, dv, 0, 0)
end

function check_types(q, k, v, engine)
    T = eltype(q)
    eltype(k) === T && eltype(v) === T || refuse("q, k and v have elements of types $T, $(eltype(k)), $(eltype(v)): they must be equal")
    code = dtype(T)
    (is_float(code) || code === F64 && engine == "reference") && return code
    refuse("q has elements of type $T, but Fovea runs Float32, Float16 and BFloat16",
           T === Float64 ? "; give Float32.(q), or engine = \"reference\", which is slow and exact" : "")
end

# The strides of (head_dim, heads, seq, batch) by batch, head, position, feature, or NO_STRIDES if it is dense. The stride of
# a dimension of one does not count.
strides4(name, ::DenseArray{<:Any,4}) = NO_STRIDES
function strides4(name, x::AbstractArray{<:Any,4})
    s, n = layout(x).strides, size(x)
    dense = dense_strides(n)
    s = ntuple(i -> n[i] <= 1 ? dense[i] : s[i], Val(4))
    s == dense && return NO_STRIDES
    check_strides(name, s)
    all(iszero, s) && return (ZERO_STRIDE, 0, 0, 0)
    return (s[4], s[2], s[3], s[1])
end

function check_size(name, x, expected)
    size(x) == expected && return
    throw(DimensionMismatch("$name has size $(size(x)), but must have $expected"))
end

output_size(sizes::CSizes) = (Int(sizes.dv), Int(sizes.h), Int(sizes.sq), Int(sizes.b))
rows_size(sizes::CSizes) = (Int(sizes.sq), Int(sizes.h), Int(sizes.b))
rows_type(::Type{Float64}) = Float64
rows_type(::Type) = Float32

# The arrays of a call beside q, k, v; nothing for a gradient that is not wanted.
struct Slots{A,B,C,D,E}
    o::A
    grad_o::B
    grad_q::C
    grad_k::D
    grad_v::E
end
Slots(o = nothing) = Slots(o, nothing, nothing, nothing, nothing)  # of a forward

slot_strides(name, x) = strides4(name, x)
slot_strides(name, ::Nothing) = NO_STRIDES
slot_dtype(x) = dtype(eltype(x))
slot_dtype(::Nothing) = DTYPE_DEFAULT

# The program, `grads` and the strides of captured arrays are texts, which the key of the cache has beside this. Offsets
# come with each call, so that a decoder's next step finds its plan; the problem says only that there are some.
function config_of(direction::Direction, sizes::CSizes, code::DType, o::Options, arrays, slots::Slots, flags)
    q, k, v = arrays
    return filled(
        CProblemConfig; direction = direction, layout = LAYOUT_BSHD, sizes = sizes, dtype = code,
        o_dtype = slot_dtype(slots.o), do_dtype = slot_dtype(slots.grad_o), dq_dtype = slot_dtype(slots.grad_q),
        dk_dtype = slot_dtype(slots.grad_k), dv_dtype = slot_dtype(slots.grad_v),
        q_strides = strides4("q", q), k_strides = strides4("k", k), v_strides = strides4("v", v),
        o_strides = slot_strides("o", slots.o), do_strides = slot_strides("dO", slots.grad_o),
        dq_strides = slot_strides("the gradient of q", slots.grad_q),
        dk_strides = slot_strides("the gradient of k", slots.grad_k),
        dv_strides = slot_strides("the gradient of v", slots.grad_v),
        scale = code === F64 ? 0 : o.scale, scale_f64 = code === F64 ? o.scale : 0, dropout = o.dropout, has_q_lengths = o.q_lengths !== nothing,
        has_k_lengths = o.kv_lengths !== nothing, sink = o.sinks !== nothing, lse = flags.lse, has_grad_lse = flags.grad_lse,
        q_offset = o.q_offset != 0, k_offset = o.k_offset != 0, deterministic = o.deterministic)
end

# What a plan is made for, compared in full.
struct PlanKey
    config::CProblemConfig
    line::String
    strides::String  # of captured arrays
    grads::String
    engine::String
    device::String
end
PlanKey(config::CProblemConfig, program::Program, grads, engine, device) =
    PlanKey(config, program.recipe.line, tensor_strides(program, device), grads, engine, device)

Base.:(==)(a::PlanKey, b::PlanKey) = a.config === b.config && a.line == b.line && a.strides == b.strides &&
                                     a.grads == b.grads && a.engine == b.engine && a.device == b.device
Base.hash(a::PlanKey, seed::UInt) =
    hash(objectid(a.config), hash(a.line, hash(a.strides, hash(a.grads, hash(a.engine, hash(a.device, seed))))))

# How captured arrays lie, which engine cudnn bakes. On a CPU every engine takes what a call binds, so that calls share a plan.
function tensor_strides(program::Program, device)
    device == "cpu" && return ""
    words = String[]
    for t in program.tensors
        text = strides_text(t.array, t.order)
        isempty(text) || push!(words, string(t.name, ":", text))
    end
    return join(words, " ")
end

# The config with the addresses that a key can't hold; nothing for an empty text.
function with_pointers(config::CProblemConfig, program::Handle, grads::String, strides::String)
    ref = Ref(config)
    GC.@preserve ref begin
        store!(name, value) = unsafe_store!(Ptr{Ptr{Cvoid}}(address_of(ref) + fieldoffset(CProblemConfig, config_field(name))), value)
        store!(:program, program)
        isempty(grads) || store!(:grads, Ptr{Cvoid}(pointer(grads)))
        isempty(strides) || store!(:tensor_strides, Ptr{Cvoid}(pointer(strides)))
    end
    return ref
end
config_field(name) = findfirst(==(name), collect(fieldnames(CProblemConfig)))

# Calls f(problem) with the problem that a key describes.
function with_problem(f, key::PlanKey, program::Program)
    functions = library().functions
    handle, problem = Ref{Handle}(C_NULL), Ref{Handle}(C_NULL)
    line = symbolic_line(program.recipe, key.config.sizes)
    isempty(line) || check(ccall(functions.program_parse, Cint, (Cstring, Ptr{Handle}), line, handle))
    grads, strides = key.grads, key.strides
    status = GC.@preserve grads strides begin
        config = with_pointers(key.config, handle[], grads, strides)
        ccall(functions.problem_create, Cint, (Ptr{CProblemConfig}, Ptr{Handle}), config, problem)
    end
    handle[] == C_NULL || ccall(functions.program_destroy, Cvoid, (Handle,), handle[])
    check(status)
    try
        return f(problem[])
    finally
        ccall(functions.problem_destroy, Cvoid, (Handle,), problem[])
    end
end

# Calls f(options) with what chooses engine and device. The strings live as long as the key.
function with_plan_options(f, key::PlanKey)
    engine, device = key.engine, key.device
    GC.@preserve engine device begin
        word = isempty(engine) ? Ptr{UInt8}(0) : pointer(engine)
        options = Ref(CPlanOptions(sizeof(CPlanOptions), word, pointer(device), C_NULL))
        return f(options)
    end
end
