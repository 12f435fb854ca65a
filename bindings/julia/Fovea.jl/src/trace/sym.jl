# Symbolic values: what a modifier calculates with while it is traced. A value is a node of a graph of operations, kept
# in the Trace that all values of one program share.

@enum Kind::UInt8 KindF32 KindI32 KindBool

kind_name(kind::Kind) = kind === KindF32 ? "f32" : kind === KindI32 ? "i32" : "bool"

@enum Form::UInt8 Leaf Literal Call Load Prefix Infix

# The precedence of a text's outermost operator, as in C: 2 for || up to 11 for *, then these two.
const PREFIX_LEVEL, ATOM_LEVEL = 12, 13

const MOST_INDICES = 8
const Args = NTuple{MOST_INDICES,Int32}

# Plain data without memory of its own, so that a trace costs little and two are compared quickly: a modifier is traced
# in every call, and texts are only made of a trace that is new (recipe.jl).
struct Node
    form::Form
    kind::Kind
    level::Int8
    count::Int8      # of args
    text::Symbol     # the leaf, operator or function
    number::Float64  # a literal's value, or the slot of the array that a load reads
    args::Args
end

mutable struct Trace
    nodes::Vector{Node}
    arrays::Vector{AbstractArray}  # those given by keyword, then the others in the order in which they were met
    wanted::Vector{Symbol}         # what the program calls them
    given::Vector{Pair{Symbol,Any}}  # by keyword
    one_based::Bool
    doubles::Bool                  # q has Float64: numbers are not rounded to Float32
    modifier::Any                  # the function that is traced now, and its arguments
    arguments::Tuple
    flags::Vector{Symbol}          # the Bools among what is given that a modifier has asked for
end
const NO_FLAGS = Symbol[]
Trace(one_based::Bool, given = Pair{Symbol,Any}[], doubles::Bool = false) =
    Trace(sizehint!(Node[], 24), AbstractArray[], Symbol[], given, one_based, doubles, nothing, (), NO_FLAGS)

"""
    Fovea.Sym

A symbolic number: what a modifier gets instead of numbers. It goes through `+ - * / ^ ÷ % ! & | ⊻ ~ << >>`, comparisons,
`ifelse`, `min`, `max`, `clamp`, `abs`, `sign`, `exp`, `exp2`, `expm1`, `log`, `log2`, `log1p`, `sqrt`, `tanh`, `sin`,
`cos`, `tan`, `sinh`, `cosh`, `cbrt`, `hypot`, `copysign`, `floor`, `ceil`, `round`, `trunc`, `div`, `rem`, `fld`, `mod`,
`muladd`, casts like `Float32(x)` and `floor(Int, x)`, and it indexes captured arrays. `Fovea.select` (an `ifelse` for every
version of Julia), `Fovea.sigmoid`, `Fovea.softplus`, `Fovea.rsqrt` and `Fovea.erf` are there as well.

Calculations are in Float32 (Float64 if `q` has it), Int32 and Bool. `if`, `&&`, `||` and chains like `a < b < c` need a value
that is not there yet: write `ifelse(c, x, y)`, `&`, `|`, `(a < b) & (b < c)`.

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
    value::Float64               # of a literal; every Int32 fits, and a trace rounds the others if it has to
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
    isinf(Float32(x)) && !isinf(x) && refuse("the number $x of a formula does not fit Float32; write Inf32")
    return Sym(nothing, 0, KindF32, Float64(x))
end

Base.convert(::Type{Sym}, x::Sym) = x
Base.convert(::Type{Sym}, x::Real) = literal(x)
Base.promote_rule(::Type{Sym}, ::Type{<:Real}) = Sym
Sym(x::Real) = literal(x)
Sym(x::Sym) = x

literal_text(x::Sym) = literal_text(x.kind, x.value)
function literal_text(kind::Kind, value::Float64, doubles = false)
    kind === KindBool && return value != 0 ? "true" : "false"
    kind === KindI32 && return string(Int32(value))
    isnan(value) && return "nan"
    isinf(value) && return value > 0 ? "inf" : "-inf"
    return doubles ? string(value) : string(Float32(value))
end

# ---- nodes ----

args_of() = (Int32(0), Int32(0), Int32(0), Int32(0), Int32(0), Int32(0), Int32(0), Int32(0))
args_of(a) = (a, Int32(0), Int32(0), Int32(0), Int32(0), Int32(0), Int32(0), Int32(0))
args_of(a, b) = (a, b, Int32(0), Int32(0), Int32(0), Int32(0), Int32(0), Int32(0))
args_of(a, b, c) = (a, b, c, Int32(0), Int32(0), Int32(0), Int32(0), Int32(0))

function push_node(trace::Trace, node::Node)
    push!(trace.nodes, node)
    return length(trace.nodes) % Int32
end

leaf(trace::Trace, text::Symbol, kind::Kind) =
    Sym(trace, push_node(trace, Node(Leaf, kind, ATOM_LEVEL, 0, text, 0.0, args_of())), kind)

function node_of(trace::Trace, x::Sym)
    x.trace === trace && return x.id
    x.trace === nothing || refuse("a symbolic value of one modifier is used in another")
    level = x.kind !== KindBool && signbit(x.value) ? PREFIX_LEVEL : ATOM_LEVEL
    value = x.kind === KindF32 && !trace.doubles ? Float64(Float32(x.value)) : x.value
    return push_node(trace, Node(Literal, x.kind, level, 0, :literal, value, args_of()))
end

trace_of(x::Sym) = x.trace === nothing ? refuse("an operation on symbolic constants alone; write it with numbers") : x.trace
trace_of(x::Sym, y::Sym) = x.trace === nothing ? trace_of(y) : x.trace
trace_of(x::Sym, y::Sym, z::Sym) = x.trace === nothing ? trace_of(y, z) : x.trace

# One method per number of operands, without varargs, which would allocate: tracing is part of every call.
function operation(form::Form, level::Int, text::Symbol, kind::Kind, x::Sym)
    trace = trace_of(x)
    return with_node(trace, form, level, text, kind, 1, args_of(node_of(trace, x)))
end
function operation(form::Form, level::Int, text::Symbol, kind::Kind, x::Sym, y::Sym)
    trace = trace_of(x, y)
    return with_node(trace, form, level, text, kind, 2, args_of(node_of(trace, x), node_of(trace, y)))
end
function operation(form::Form, level::Int, text::Symbol, kind::Kind, x::Sym, y::Sym, z::Sym)
    trace = trace_of(x, y, z)
    return with_node(trace, form, level, text, kind, 3, args_of(node_of(trace, x), node_of(trace, y), node_of(trace, z)))
end

with_node(trace::Trace, form, level, text, kind, count, args) =
    Sym(trace, push_node(trace, Node(form, kind, level, count, text, 0.0, args)), kind)

Base.show(io::IO, x::Sym) =
    x.trace === nothing ? print(io, literal_text(x)) : print(io, "Fovea.Sym(", formula_text(x), ")")
