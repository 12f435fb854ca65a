# The element types that libfovea reads. One is our own bfloat16, so that the package needs no other; BFloat16s.jl's (and
# Julia's own, from 1.11 on) is recognised by its name and size.

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

# ---- what libfovea calls them ----

dtype(::Type{Float32}) = F32
dtype(::Type{Float16}) = F16
dtype(::Type{BFloat16}) = BF16
dtype(::Type{Float64}) = F64
dtype(::Type{Int32}) = I32
dtype(::Type{Int64}) = I64
dtype(::Type{UInt8}) = U8
dtype(::Type{Bool}) = BOOL
# BFloat16s.jl's, without depending on it.
dtype(::Type{T}) where {T} =
    isprimitivetype(T) && nameof(T) === :BFloat16 && sizeof(T) == 2 ? BF16 : DTYPE_DEFAULT

dtype_word(code::DType) = ("", "f32", "f16", "bf16", "f64", "i32", "i64", "u8", "bool")[Int(code) + 1]
is_float(code::DType) = code in (F32, F16, BF16)
