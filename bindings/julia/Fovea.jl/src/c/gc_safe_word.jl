# From Julia 1.12 on `@ccall` has a word for calls during which other threads may collect garbage. The caller preserves
# what the addresses point to. A file of its own: older versions can't expand it.

@noinline safe_call(f::Ptr{Cvoid}, a::Ptr{Cvoid}, b::Ptr{Cvoid}) =
    @ccall gc_safe = true $f(a::Ptr{Cvoid}, b::Ptr{Cvoid})::Cint
@noinline safe_call(f::Ptr{Cvoid}, a::Ptr{Cvoid}, b::Ptr{Cvoid}, c::Ptr{Cvoid}) =
    @ccall gc_safe = true $f(a::Ptr{Cvoid}, b::Ptr{Cvoid}, c::Ptr{Cvoid})::Cint
