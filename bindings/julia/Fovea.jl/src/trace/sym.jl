# Symbolic values: what a modifier calculates with while it is traced. A value is a node of a graph of operations, kept
# in the Trace that all values of one program share.

@enum Kind::UInt8 KindF32 KindI32 KindBool

kind_name(kind::Kind) = kind === KindF32 ? "f32" : kind === KindI32 ? "i32" : "bool"

@enum Form::UInt8 Leaf Call Load Prefix Infix

# How tightly a text holds together, as in C: 2 for || up to 11 for *, then these two.
const PREFIX_LEVEL, ATOM_LEVEL = 12, 13

struct Node
    form::Form
    level::Int
    text::String  # the leaf, operator, function or tensor
    args::Vector{Int32}
end

mutable struct Trace
    nodes::Vector{Node}
    arrays::Vector{AbstractArray}  # captured, in the order in which they were met
    names::Vector{String}          # theirs in the formula
    hints::Vector{Pair{Symbol,AbstractArray}}  # what the program calls them
    one_based::Bool
end
Trace(one_based) = Trace(Node[], AbstractArray[], String[], Pair{Symbol,AbstractArray}[], one_based)

"""
    Fovea.Sym

A symbolic number: what a modifier gets instead of numbers. It goes through `+ - * / ^ ÷ % ! & | ⊻ ~ << >>`, comparisons,
`ifelse`, `min`, `max`, `clamp`, `abs`, `sign`, `exp`, `exp2`, `expm1`, `log`, `log2`, `log1p`, `sqrt`, `tanh`, `sin`,
`cos`, `tan`, `floor`, `ceil`, `round`, `trunc`, `div`, `rem`, `fld`, `mod`, `muladd`, casts like `Float32(x)` and
`floor(Int, x)`, and it indexes captured arrays. `Fovea.select` (an `ifelse` for every version of Julia),
`Fovea.sigmoid`, `Fovea.softplus`, `Fovea.rsqrt` and `Fovea.erf` are there as well.

Calculations are in Float32, Int32 and Bool. `if`, `&&`, `||` and chains like `a < b < c` need a value that is not there
yet: write `ifelse(c, x, y)`, `&`, `|`, `(a < b) & (b < c)`.

```jldoctest
julia> Fovea.formula((score, b, h, q, k) -> 30 * tanh(score / 30) + (k - q))
"30 * tanh(score / 30) + (k - q)"

julia> Fovea.formula((b, h, q, k) -> (q >= k) & (q - k < 128); mask = true)
"q >= k && q - k < 128"
```
"""
struct Sym <: Real
    trace::Union{Nothing,Trace}  # of a literal: nothing
    id::Int32
    kind::Kind
    value::Float64               # of a literal; every Int32 and Float32 fits
end
Sym(trace::Trace, id::Integer, kind::Kind) = Sym(trace, id, kind, 0.0)

function refuse(words...)
    throw(ArgumentError(string(words...)))
end

# ---- literals ----

function literal(x::Integer)
    typemin(Int32) <= x <= typemax(Int32) || refuse("the integer $x of a formula does not fit Int32; write $x.0")
    return Sym(nothing, 0, KindI32, Float64(x))
end
literal(x::Bool) = Sym(nothing, 0, KindBool, Float64(x))
function literal(x::Real)
    single = Float32(x)
    isinf(single) && !isinf(x) && refuse("the number $x of a formula does not fit Float32; write Inf32")
    return Sym(nothing, 0, KindF32, Float64(single))
end

Base.convert(::Type{Sym}, x::Sym) = x
Base.convert(::Type{Sym}, x::Real) = literal(x)
Base.promote_rule(::Type{Sym}, ::Type{<:Real}) = Sym
Sym(x::Real) = literal(x)
Sym(x::Sym) = x

function literal_text(x::Sym)
    x.kind === KindBool && return x.value != 0 ? "true" : "false"
    x.kind === KindI32 && return string(Int32(x.value))
    isnan(x.value) && return "nan"
    isinf(x.value) && return x.value > 0 ? "inf" : "-inf"
    return string(Float32(x.value))
end

# ---- nodes ----

function push_node(trace::Trace, form, level, text, args)
    push!(trace.nodes, Node(form, level, text, args))
    return length(trace.nodes) % Int32
end

leaf(trace::Trace, text::AbstractString, kind::Kind) =
    Sym(trace, push_node(trace, Leaf, ATOM_LEVEL, text, Int32[]), kind)

function node_of(trace::Trace, x::Sym)
    x.trace === trace && return x.id
    x.trace === nothing || refuse("a symbolic value of one modifier is used in another")
    level = x.kind !== KindBool && signbit(x.value) ? PREFIX_LEVEL : ATOM_LEVEL
    return push_node(trace, Leaf, level, literal_text(x), Int32[])
end

trace_of(x::Sym) = x.trace === nothing ? refuse("an operation on symbolic constants alone; write it with numbers") : x.trace
trace_of(x::Sym, y::Sym) = x.trace === nothing ? trace_of(y) : x.trace
trace_of(x::Sym, y::Sym, z::Sym) = x.trace === nothing ? trace_of(y, z) : x.trace

operation(form::Form, level::Int, text::String, kind::Kind, args::Sym...) = added(trace_of(args...), form, level, text, kind, args...)

# One method per number of operands: tracing is part of every call.
added(trace::Trace, form, level, text, kind, x) =
    Sym(trace, push_node(trace, form, level, text, Int32[node_of(trace, x)]), kind)
added(trace::Trace, form, level, text, kind, x, y) =
    Sym(trace, push_node(trace, form, level, text, Int32[node_of(trace, x), node_of(trace, y)]), kind)
added(trace::Trace, form, level, text, kind, x, y, z) =
    Sym(trace, push_node(trace, form, level, text, Int32[node_of(trace, x), node_of(trace, y), node_of(trace, z)]), kind)

Base.show(io::IO, x::Sym) =
    x.trace === nothing ? print(io, literal_text(x)) : print(io, "Fovea.Sym(", formula_text(x), ")")
