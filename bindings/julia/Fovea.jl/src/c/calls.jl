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

# ---- calls that take long: other threads may collect garbage meanwhile (safe_call) ----

if VERSION >= v"1.12"
    include("gc_safe_word.jl")
    find_gc_safe() = nothing
else
    include("gc_safe_functions.jl")
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
    stats = Ref(filled(CCacheStats))
    check(ccall(library().functions.cache_statistics, Cint, (Ptr{CCacheStats},), stats))
    s = stats[]
    return (hits = s.hits, misses = s.misses, builds = s.builds, evictions = s.evictions, plans = s.plans,
            bytes = s.bytes, build_seconds = s.build_seconds)
end
