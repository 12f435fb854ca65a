# Before Julia 1.12 two functions of the runtime bracket a call during which other threads may collect garbage. If a
# version lacks them, a collection waits until the call returns.
#
# Nothing of Julia's is touched between entering and leaving: arguments are plain addresses, and the caller preserves
# what they point to.

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
