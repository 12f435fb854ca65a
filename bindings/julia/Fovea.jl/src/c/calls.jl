# Calls of the C interface: statuses become exceptions, reports become strings.

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
    throw(FoveaError(Status(status), message))
end
check(status::Cint) = status == 0 ? nothing : fail(status)

# ---- calls that take long: other threads may collect garbage meanwhile ----
#
# Nothing of Julia's is touched between entering and leaving: arguments are plain addresses, and who calls preserves
# what they point to.

# Julia 1.12 has a word for it; before, these functions of the runtime do the same. Where a version has neither, a
# collection waits until the call returns.
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

if VERSION >= v"1.12"
    try
        @eval begin
            @noinline safe_call(f::Ptr{Cvoid}, a::Ptr{Cvoid}, b::Ptr{Cvoid}) =
                @ccall gc_safe = true $(Expr(:$, :f))(a::Ptr{Cvoid}, b::Ptr{Cvoid})::Cint
            @noinline safe_call(f::Ptr{Cvoid}, a::Ptr{Cvoid}, b::Ptr{Cvoid}, c::Ptr{Cvoid}) =
                @ccall gc_safe = true $(Expr(:$, :f))(a::Ptr{Cvoid}, b::Ptr{Cvoid}, c::Ptr{Cvoid})::Cint
        end
    catch
        # Left as above.
    end
end

# ---- texts ----

function take_text(report::Handle)
    functions = library().functions
    text = unsafe_string(ccall(functions.report_text, Cstring, (Handle,), report))
    ccall(functions.report_destroy, Cvoid, (Handle,), report)
    return text
end

"""
    Fovea.doctor()

What libfovea found on this machine and what not, with what to do about it, as text.
"""
function doctor()
    report = Ref{Handle}(C_NULL)
    check(ccall(library().functions.doctor, Cint, (Ptr{Handle},), report))
    return take_text(report[])
end

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
    functions = library().functions
    program, report = Ref{Handle}(C_NULL), Ref{Handle}(C_NULL)
    check(ccall(functions.program_parse, Cint, (Cstring, Ptr{Handle}), line, program))
    status = ccall(functions.program_differentiate, Cint, (Handle, Cstring, Cint, Ptr{Handle}), program[], by, 0, report)
    ccall(functions.program_destroy, Cvoid, (Handle,), program[])
    check(status)
    return take_text(report[])
end

"""
    Fovea.cache_statistics()

Counters of libfovea's cache of plans: hits, misses, builds, evictions, plans and bytes held now, seconds spent building.
"""
function cache_statistics()
    stats = Ref(CCacheStats(sizeof(CCacheStats), 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0))
    check(ccall(library().functions.cache_statistics, Cint, (Ptr{CCacheStats},), stats))
    s = stats[]
    return (hits = s.hits, misses = s.misses, builds = s.builds, evictions = s.evictions, plans = s.plans,
            bytes = s.bytes, build_seconds = s.build_seconds)
end
