# Functions of one value, powers and casts.

for name in (:exp, :exp2, :expm1, :log, :log2, :log1p, :sqrt, :tanh, :sin, :cos, :tan)
    @eval Base.$name(x::Sym) = real_call($(QuoteNode(name)), x)
end
Base.exp10(x::Sym) = literal(10.0)^x
Base.log10(x::Sym) = log(x) * literal(inv(log(10.0)))
Base.log(base::Union{Integer,AbstractFloat}, x::Sym) = log(x) / log(base)
Base.sincos(x::Sym) = (sin(x), cos(x))
Base.sinh(x::Sym) = (exp(x) - exp(-x)) / literal(2.0)
Base.cosh(x::Sym) = (exp(x) + exp(-x)) / literal(2.0)
Base.cbrt(x::Sym) = sign(to_float(x)) * abs(to_float(x))^literal(1 / 3)
Base.hypot(x::Sym, y::Sym) = sqrt(x * x + y * y)
Base.hypot(x::Sym, y::Real) = sqrt(x * x + abs2(y))
Base.hypot(x::Real, y::Sym) = hypot(y, x)
Base.copysign(x::Sym, y::Sym) = select(y < zero(y), -abs(x), abs(x))
Base.copysign(x::Sym, y::Real) = signbit(y) ? -abs(x) : abs(x)
for T in (:Float64, :Float32, :Float16, :Signed)  # Base has these with any Real
    @eval Base.copysign(x::$T, y::Sym) = select(y < zero(y), -abs(x), abs(x))
end
# Without these methods Base would recurse until its stack is full.
for name in (:asin, :acos, :atan, :asinh, :acosh, :atanh, :sec, :csc, :cot, :sinpi, :cospi, :sinc)
    @eval Base.$name(x::Sym) = refuse("formulas have no ", $(string(name)), "; ?Fovea.Sym lists what they have")
end

"""    Fovea.sigmoid(x): 1 / (1 + exp(-x))"""
sigmoid(x::Sym) = real_call(:sigmoid, x)
sigmoid(x::Real) = inv(1 + exp(-x))
"""    Fovea.softplus(x): log(1 + exp(x))"""
softplus(x::Sym) = real_call(:softplus, x)
softplus(x::Real) = x > 20 ? x : log1p(exp(x))
"""    Fovea.rsqrt(x): 1 / sqrt(x)"""
rsqrt(x::Sym) = real_call(:rsqrt, x)
rsqrt(x::Real) = inv(sqrt(x))
"""    Fovea.erf(x), of a symbolic value"""
erf(x::Sym) = real_call(:erf, x)

Base.abs(x::Sym) = (n = number(x); operation(Call, ATOM_LEVEL, :abs, n.kind, n))
# In Julia the sign of an integer is an integer; in the language it is f32.
Base.sign(x::Sym) = (n = number(x); is_int(n) ? cast(:i32, KindI32, real_call(:sign, n)) : real_call(:sign, n))

function Base.:^(x::Sym, y::Sym)
    x, y = number(x), number(y)
    return operation(Call, ATOM_LEVEL, :pow, KindF32, x, y)
end
function Base.:^(x::Sym, n::Integer)
    base = number(x)
    is_int(base) || return base^literal(n)
    n >= 0 || refuse("an integer to the power $n; write Float32(x)^$n")
    return n == 0 ? one(base) : Base.power_by_squaring(base, n)
end
Base.:^(x::Sym, y::AbstractFloat) = x^literal(y)
Base.:^(x::Sym, y::Rational) = x^literal(y)
Base.literal_pow(::typeof(^), x::Sym, ::Val{n}) where {n} = x^n

# ---- rounding: integers stay what they are ----

for name in (:floor, :ceil, :round)
    @eval Base.$name(x::Sym) = is_int(x) ? x : real_call($(QuoteNode(name)), x)
    @eval Base.$name(::Type{<:Integer}, x::Sym) = to_int($name(x))
end
Base.round(x::Sym, ::RoundingMode{:Nearest}) = round(x)
Base.round(x::Sym, ::RoundingMode{:Down}) = floor(x)
Base.round(x::Sym, ::RoundingMode{:Up}) = ceil(x)
Base.round(x::Sym, ::RoundingMode{:ToZero}) = trunc(x)
Base.trunc(x::Sym) = is_int(x) ? x : select(x < literal(0.0), ceil(x), floor(x))
Base.trunc(::Type{<:Integer}, x::Sym) = to_int(x)
Base.unsafe_trunc(::Type{<:Integer}, x::Sym) = to_int(x)

# ---- casts: a formula has one float and one integer type ----

to_int(x::Sym) = is_int(x) ? x : cast(:i32, KindI32, x)
to_float(x::Sym) = x.kind === KindF32 ? x : cast(:f32, KindF32, x)
for T in (:Int, :Int32)
    @eval Base.$T(x::Sym) = to_int(x)
end
for T in (:Float64, :Float32, :Float16)
    @eval Base.$T(x::Sym) = to_float(x)
end
Base.float(x::Sym) = to_float(x)
Base.AbstractFloat(x::Sym) = to_float(x)
Base.Bool(x::Sym) = is_bool(x) ? x : refuse("Bool(x) of a symbolic number; write x != 0")
