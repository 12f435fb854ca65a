# Calls of the C interface: values for its structs, statuses as exceptions, reports as strings.

const Handle = Ptr{Cvoid}

@enum Status::Cint OK INVALID_ARGUMENT UNSUPPORTED DEVICE_ERROR OUT_OF_MEMORY INTERNAL_ERROR
@enum DType::Cint DTYPE_DEFAULT F32 F16 BF16 F64 I32 I64 U8 BOOL
@enum Direction::Cint FORWARD BACKWARD
const LAYOUT_BSHD = Cint(1)  # what (head_dim, heads, seq, batch) is, column-major
const ZERO_STRIDE = typemin(Int64)

include("structs.jl")

# A struct with these fields, its size, and zeros elsewhere, which mean defaults.
filled(::Type{T}; fields...) where {T} = filled_from(T, values(fields))

@generated function filled_from(::Type{T}, fields::NamedTuple{names}) where {T,names}
    all(in(fieldnames(T)), names) || error("$T has no field $(setdiff(names, fieldnames(T)))")
    value(name, type) = name in names ? :(fields.$name) : name === :struct_size ? sizeof(T) : :(zeroed($type))
    return :(T($(map(value, fieldnames(T), fieldtypes(T))...)))
end

zeroed(::Type{T}) where {T<:Number} = zero(T)
zeroed(::Type{T}) where {T<:Ptr} = T(C_NULL)
zeroed(::Type{T}) where {T<:Enum} = T(0)
zeroed(::Type{NTuple{N,T}}) where {N,T} = ntuple(_ -> zeroed(T), Val(N))
zeroed(::Type{T}) where {T} = filled(T)

const NO_STRIDES = (0, 0, 0, 0)  # by batch, head, position, feature
const NO_ARRAY = filled(CArray)

# ---- errors ----

"""
    FoveaError(status, message)

What libfovea refused or failed at. `status` is `Fovea.INVALID_ARGUMENT`, `Fovea.UNSUPPORTED` (no engine can; the message
has every engine's reasons), `Fovea.DEVICE_ERROR`, `Fovea.OUT_OF_MEMORY` or `Fovea.INTERNAL_ERROR`.
"""
struct FoveaError <: Exception
    status::Status
    message::String
end
Base.showerror(io::IO, e::FoveaError) = print(io, "FoveaError (", e.status, "): ", e.message)

# Called right after the failure, with nothing in between at which this task could move to another thread.
@noinline function fail(status::Cint)
    message = unsafe_string(ccall(library().functions.last_error, Cstring, ()))
    throw(FoveaError(Status(status), by_keywords(message)))
end

# Captured things are declared in a line, but are keywords here.
function by_keywords(message)
    message = replace(message, r"declare it, as in tensor=\"(\w+):[^\"]*\"" => s"give it as a keyword, \1 = ...")
    replace(message, "captured names are declared with tensor=... or scalar=..." => "give it as a keyword of the call")
end
check(status::Cint) = status == 0 ? nothing : fail(status)

# ---- calls that take long: other threads may collect garbage meanwhile, and the caller preserves what is pointed to ----

@static if VERSION >= v"1.12"  # `@ccall` has a word for it
    find_gc_safe() = nothing
    @noinline safe_call(f::Ptr{Cvoid}, a::Ptr{Cvoid}, b::Ptr{Cvoid}) =
        @ccall gc_safe = true $f(a::Ptr{Cvoid}, b::Ptr{Cvoid})::Cint
    @noinline safe_call(f::Ptr{Cvoid}, a::Ptr{Cvoid}, b::Ptr{Cvoid}, c::Ptr{Cvoid}) =
        @ccall gc_safe = true $f(a::Ptr{Cvoid}, b::Ptr{Cvoid}, c::Ptr{Cvoid})::Cint
else
    # Two functions of the runtime, between which nothing of Julia's is touched. If a version lacks them, a collection waits
    # until the call returns.
    const SAFE_ENTER = Ref(C_NULL)
    const SAFE_LEAVE = Ref(C_NULL)

    function find_gc_safe()
        try
            SAFE_ENTER[], SAFE_LEAVE[] = cglobal(:jl_gc_safe_enter), cglobal(:jl_gc_safe_leave)
        catch
            SAFE_ENTER[] = SAFE_LEAVE[] = C_NULL
        end
    end

    @noinline function safe_call(f::Ptr{Cvoid}, a::Ptr{Cvoid}, b::Ptr{Cvoid})::Cint
        enter, leave = SAFE_ENTER[], SAFE_LEAVE[]
        enter == C_NULL && return ccall(f, Cint, (Ptr{Cvoid}, Ptr{Cvoid}), a, b)
        state = ccall(enter, Int8, ())
        status = ccall(f, Cint, (Ptr{Cvoid}, Ptr{Cvoid}), a, b)
        ccall(leave, Cvoid, (Int8,), state)
        return status
    end

    @noinline function safe_call(f::Ptr{Cvoid}, a::Ptr{Cvoid}, b::Ptr{Cvoid}, c::Ptr{Cvoid})::Cint
        enter, leave = SAFE_ENTER[], SAFE_LEAVE[]
        enter == C_NULL && return ccall(f, Cint, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), a, b, c)
        state = ccall(enter, Int8, ())
        status = ccall(f, Cint, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), a, b, c)
        ccall(leave, Cvoid, (Int8,), state)
        return status
    end
end

# ---- texts ----

# Of the report that `call` puts into what it is given.
function text_of_report(call)
    functions, report = library().functions, Ref{Handle}(C_NULL)
    check(call(report))
    text = unsafe_string(ccall(functions.report_text, Cstring, (Handle,), report[]))
    ccall(functions.report_destroy, Cvoid, (Handle,), report[])
    return text
end

# "; did you mean 'x'?" with the nearest of these words, "" if none is near.
suggestion(word, candidates) = text_of_report() do report
    ccall(library().functions.suggest, Cint, (Cstring, Cstring, Ptr{Handle}), String(word), join(candidates, ' '), report)
end

"""
    Fovea.doctor()

What libfovea found on this machine and what not, with what to do about it, as text.
"""
doctor() = text_of_report(report -> ccall(library().functions.doctor, Cint, (Ptr{Handle},), report))

"""
    Fovea.engines()

The names of all engines, the fastest first.

```jldoctest
julia> "cpu" in Fovea.engines()
true
```
"""
engines() = String.(split(unsafe_string(ccall(library().functions.engines, Cstring, ()))))

"""
    Fovea.differentiate(line, by)

The derivative of a formula as a text: `by` is "score" or the name of something captured.

```jldoctest
julia> Fovea.differentiate("mod=softcap(30)", "score")
"let t0 = tanh(score / 30.0); (1.0 - t0 * t0) * 30.0 / 30.0"
```
"""
function differentiate(line::AbstractString, by::AbstractString)
    functions, program = library().functions, Ref{Handle}(C_NULL)
    check(ccall(functions.program_parse, Cint, (Cstring, Ptr{Handle}), line, program))
    try
        return text_of_report() do report
            ccall(functions.program_differentiate, Cint, (Handle, Cstring, Cint, Ptr{Handle}), program[], by, 0, report)
        end
    finally
        ccall(functions.program_destroy, Cvoid, (Handle,), program[])
    end
end

"""
    Fovea.cache_statistics()

Counters of libfovea's cache of plans: hits, misses, builds, evictions, plans and bytes held now, seconds spent building.
"""
function cache_statistics()
    stats = Ref(filled(CCacheStats))
    check(ccall(library().functions.cache_statistics, Cint, (Ptr{CCacheStats},), stats))
    s = stats[]
    return (hits = s.hits, misses = s.misses, builds = s.builds, evictions = s.evictions, plans = s.plans,
            bytes = s.bytes, build_seconds = s.build_seconds)
end
