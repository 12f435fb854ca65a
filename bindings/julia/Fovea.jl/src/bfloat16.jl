# A bfloat16 of our own, so that the package needs no other. BFloat16s.jl's (and Julia's own, from 1.11 on) is taken
# as well wherever an array comes in: by its name and size, see `dtype`.

"""
    Fovea.BFloat16(x)

A number of 16 bits: Float32 without its lower half. It stores and converts; it does not calculate.

```jldoctest
julia> Float32(Fovea.BFloat16(3.14159))
3.140625f0
```
"""
primitive type BFloat16 <: AbstractFloat 16 end

function BFloat16(x::Float32)
    isnan(x) && return reinterpret(BFloat16, 0x7fc0)
    bits = reinterpret(UInt32, x)
    # To nearest, ties to even.
    return reinterpret(BFloat16, ((bits + 0x7fff + ((bits >> 16) & 0x1)) >> 16) % UInt16)
end
BFloat16(x::BFloat16) = x
BFloat16(x::Real) = BFloat16(Float32(x))

Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(reinterpret(UInt16, x)) << 16)
Base.Float64(x::BFloat16) = Float64(Float32(x))
Base.promote_rule(::Type{BFloat16}, ::Type{Float16}) = Float32
Base.promote_rule(::Type{BFloat16}, ::Type{T}) where {T<:Union{Float32,Float64}} = T
Base.promote_rule(::Type{BFloat16}, ::Type{<:Integer}) = BFloat16
Base.isnan(x::BFloat16) = isnan(Float32(x))
Base.:(==)(x::BFloat16, y::BFloat16) = Float32(x) == Float32(y)
Base.isless(x::BFloat16, y::BFloat16) = isless(Float32(x), Float32(y))
Base.:(<)(x::BFloat16, y::BFloat16) = Float32(x) < Float32(y)
Base.:(-)(x::BFloat16) = reinterpret(BFloat16, reinterpret(UInt16, x) ⊻ 0x8000)
Base.hash(x::BFloat16, seed::UInt) = hash(Float32(x), seed)
Base.zero(::Type{BFloat16}) = reinterpret(BFloat16, 0x0000)
Base.one(::Type{BFloat16}) = reinterpret(BFloat16, 0x3f80)
Base.show(io::IO, x::BFloat16) = print(io, "BFloat16(", Float32(x), ")")
