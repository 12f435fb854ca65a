# The operations on symbolic values, under their names in Base. Mixed operands come here by promotion: Base turns
# `2 * x` into `*(promote(2, x)...)`.

# The words of a refusal.
kinds(args::Sym...) = join(map(x -> kind_name(x.kind), args), ", ")
wrong(name, args...; hint = "") = refuse("'$name' does not take (", kinds(args...), ")", isempty(hint) ? "" : "; $hint")

is_bool(x::Sym) = x.kind === KindBool
is_int(x::Sym) = x.kind === KindI32
# As in Julia, true counts as 1 beside a number.
number(x::Sym) = is_bool(x) ? cast(:i32, KindI32, x) : x
common(x::Sym, y::Sym) = is_int(x) && is_int(y) ? KindI32 : KindF32

cast(name, kind, x::Sym) = operation(Call, ATOM_LEVEL, name, kind, x)
real_call(name, x::Sym) = operation(Call, ATOM_LEVEL, name, KindF32, number(x))

function arithmetic(level, text, x::Sym, y::Sym)
    x, y = number(x), number(y)
    return operation(Infix, level, text, common(x, y), x, y)
end

Base.:+(x::Sym, y::Sym) = arithmetic(10, :(+), x, y)
Base.:-(x::Sym, y::Sym) = arithmetic(10, :(-), x, y)
Base.:+(x::Sym) = number(x)
Base.:-(x::Sym) = (n = number(x); operation(Prefix, PREFIX_LEVEL, :(-), n.kind, n))
function Base.:*(x::Sym, y::Sym)
    # As in Julia, false * NaN is 0: a condition chooses, it does not multiply.
    is_bool(x) && !is_bool(y) && return select(x, y, zero(y))
    is_bool(y) && !is_bool(x) && return select(y, x, zero(x))
    return arithmetic(11, :(*), x, y)
end
Base.:/(x::Sym, y::Sym) = operation(Infix, 11, :(/), KindF32, number(x), number(y))
Base.inv(x::Sym) = literal(1.0) / x
Base.muladd(x::Sym, y::Sym, z::Sym) = x * y + z
Base.fma(x::Sym, y::Sym, z::Sym) = x * y + z
Base.abs2(x::Sym) = x * x
Base.zero(x::Sym) = literal(is_int(x) ? 0 : is_bool(x) ? false : 0.0)
Base.one(x::Sym) = literal(is_int(x) ? 1 : is_bool(x) ? true : 1.0)

# ---- integers ----

const INT_HINT = "it takes integers; for floats write floor(x / y)"
function integers(form, level, text, name, x::Sym, y::Sym)
    x, y = number(x), number(y)
    is_int(x) && is_int(y) || wrong(name, x, y; hint = INT_HINT)
    return operation(form, level, text, KindI32, x, y)
end
Base.fld(x::Sym, y::Sym) = integers(Infix, 11, :(//), :fld, x, y)
Base.mod(x::Sym, y::Sym) = integers(Infix, 11, :(%), :mod, x, y)
Base.div(x::Sym, y::Sym) = integers(Call, ATOM_LEVEL, :div, :div, x, y)
Base.rem(x::Sym, y::Sym) = integers(Call, ATOM_LEVEL, :rem, :rem, x, y)
Base.cld(x::Sym, y::Sym) = -fld(-x, y)
Base.mod1(x::Sym, y::Sym) = mod(x - 1, y) + 1
Base.fld1(x::Sym, y::Sym) = fld(x - 1, y) + 1
# Base has its own mixed methods for these three, which promote too late for us.
for f in (:fld, :mod, :div, :rem, :cld, :mod1, :fld1)
    @eval Base.$f(x::Sym, y::Union{Integer,AbstractFloat}) = $f(x, literal(y))
    @eval Base.$f(x::Union{Integer,AbstractFloat}, y::Sym) = $f(literal(x), y)
end
Base.iseven(x::Sym) = mod(x, literal(2)) == literal(0)
Base.isodd(x::Sym) = mod(x, literal(2)) == literal(1)
Base.:<<(x::Sym, y::Sym) = integers(Infix, 9, :(<<), :(<<), x, y)
Base.:>>(x::Sym, y::Sym) = integers(Infix, 9, :(>>), :(>>), x, y)
for f in (:<<, :>>)
    @eval Base.$f(x::Sym, y::Int) = $f(x, literal(y))
    @eval Base.$f(x::Sym, y::Unsigned) = $f(x, literal(y))
    @eval Base.$f(x::Integer, y::Sym) = $f(literal(x), y)
end

# ---- logic: on conditions, or bit by bit on integers ----

function logic(bools, bool_level, bits, bit_level, x::Sym, y::Sym)
    is_bool(x) && is_bool(y) && return operation(Infix, bool_level, bools, KindBool, x, y)
    is_int(x) && is_int(y) && return operation(Infix, bit_level, bits, KindI32, x, y)
    wrong(bits, x, y; hint = "it takes two conditions or two integers")
end
Base.:&(x::Sym, y::Sym) = logic(:(&&), 3, :(&), 6, x, y)
Base.:|(x::Sym, y::Sym) = logic(:(||), 2, :(|), 4, x, y)
Base.xor(x::Sym, y::Sym) = logic(:(!=), 7, :(^), 5, x, y)
for f in (:&, :|, :xor)  # Base promotes integers here, not every Real
    @eval Base.$f(x::Sym, y::Integer) = $f(x, literal(y))
    @eval Base.$f(x::Integer, y::Sym) = $f(literal(x), y)
end
Base.:!(x::Sym) = is_bool(x) ? operation(Prefix, PREFIX_LEVEL, :(!), KindBool, x) : wrong("!", x; hint = "write x == 0")
Base.:~(x::Sym) = is_bool(x) ? !x : is_int(x) ? operation(Prefix, PREFIX_LEVEL, :(~), KindI32, x) : wrong("~", x)

# ---- comparisons ----

compare(level, text, x::Sym, y::Sym) = operation(Infix, level, text, KindBool, number(x), number(y))
Base.:<(x::Sym, y::Sym) = compare(8, :(<), x, y)
Base.:<=(x::Sym, y::Sym) = compare(8, :(<=), x, y)
Base.:>(x::Sym, y::Sym) = compare(8, :(>), x, y)
Base.:>=(x::Sym, y::Sym) = compare(8, :(>=), x, y)
equality(text, x::Sym, y::Sym) =
    is_bool(x) && is_bool(y) ? operation(Infix, 7, text, KindBool, x, y) : compare(7, text, x, y)
Base.:(==)(x::Sym, y::Sym) = equality(:(==), x, y)
Base.:(!=)(x::Sym, y::Sym) = equality(:(!=), x, y)
# Base turns `>`, `>=` and `!=` of mixed operands round and does not promote them. Here the text stays as it was written.
for f in (:>, :>=, :(!=))
    @eval Base.$f(x::Sym, y::Real) = $f(x, literal(y))
    @eval Base.$f(x::Real, y::Sym) = $f(literal(x), y)
end
Base.isnan(x::Sym) = x != x
Base.isinf(x::Sym) = abs(x) == literal(Inf32)
Base.isfinite(x::Sym) = abs(x) < literal(Inf32)
Base.iszero(x::Sym) = x == zero(x)

# ---- choice ----

"""
    Fovea.select(c, x, y)

`ifelse(c, x, y)` for symbolic values, on every version of Julia.
"""
select(c::Bool, x, y) = c ? x : y
select(c::Sym, x, y) = choose(c, convert(Sym, x), convert(Sym, y))
function choose(c::Sym, x::Sym, y::Sym)
    is_bool(c) || wrong("ifelse", c, x, y; hint = "its first argument is a condition")
    is_bool(x) && is_bool(y) && return operation(Call, ATOM_LEVEL, :select, KindBool, c, x, y)
    x, y = number(x), number(y)
    return operation(Call, ATOM_LEVEL, :select, common(x, y), c, x, y)
end
# Before 1.8 ifelse has no methods to add to; old_ifelse.jl replaces it there.
VERSION >= v"1.8" && @eval Base.ifelse(c::Sym, x, y) = select(c, x, y)

function extremum(name, x::Sym, y::Sym)
    x, y = number(x), number(y)
    return operation(Call, ATOM_LEVEL, name, common(x, y), x, y)
end
Base.min(x::Sym, y::Sym) = extremum(:min, x, y)
Base.max(x::Sym, y::Sym) = extremum(:max, x, y)
Base.minmax(x::Sym, y::Sym) = (min(x, y), max(x, y))
Base.clamp(x::Sym, low::Real, high::Real) = clamped(x, convert(Sym, low), convert(Sym, high))
Base.clamp(x::Real, low::Sym, high::Sym) = clamped(convert(Sym, x), low, high)
function clamped(x::Sym, low::Sym, high::Sym)
    x, low, high = number(x), number(low), number(high)
    kind = common(x, low) === KindI32 && is_int(high) ? KindI32 : KindF32
    return operation(Call, ATOM_LEVEL, :clamp, kind, x, low, high)
end
