# Calling a modifier with symbolic values. Before that: what its code says without being called.

# What an old Julia runs statement by statement (old_ifelse.jl).
struct Source
    code::Core.CodeInfo
    method::Method
    parameters::Core.SimpleVector
end

# What the code of a function says, as long as no method of anything has been defined since. Values that it reads are
# not part of it: those are looked up in every call.
struct CodeFacts
    world::UInt
    globals::Vector{GlobalRef}  # which may be arrays
    source::Union{Nothing,Source}  # of code that uses ifelse, if ifelse cannot be given methods
end

const FACTS = Dict{Tuple{DataType,DataType},CodeFacts}()
const FACTS_LOCK = ReentrantLock()

function facts_of(@nospecialize(f), args::Tuple)
    key, world = (typeof(f), typeof(args)), Base.get_world_counter()
    (f isa Type || any(arg -> arg isa Type, args)) && return new_facts(f, args, world)  # which `typeof` does not tell apart
    Base.@lock FACTS_LOCK begin
        known = get(FACTS, key, nothing)
        known === nothing || known.world != world || return known
        length(FACTS) < 1000 || empty!(FACTS)
        return FACTS[key] = new_facts(f, args, world)
    end
end

function new_facts(@nospecialize(f), args::Tuple, world)
    found = GlobalRef[]
    for code in code_lowered(f, Tuple{map(Core.Typeof, args)...})
        foreach(statement -> collect_globals!(found, statement), code.code)
    end
    unique!(found)
    # A constant that is no array (a function, say) can't become one.
    arrays = filter(ref -> !isconst(ref.mod, ref.name) || getfield(ref.mod, ref.name) isa AbstractArray, found)
    return CodeFacts(world, arrays, VERSION < v"1.8" && any(is_ifelse, found) ? source_of(f, args) : nothing)
end

function source_of(@nospecialize(f), args::Tuple)
    types = map(Core.Typeof, args)
    method = which(f, Tuple{types...})
    parameters = ccall(:jl_type_intersection_with_env, Any, (Any, Any), Tuple{Core.Typeof(f),types...}, method.sig)[2]
    return Source(Base.uncompressed_ast(method), method, parameters::Core.SimpleVector)
end

is_ifelse(x::GlobalRef) = x.name === :ifelse && isdefined(x.mod, x.name) && getfield(x.mod, x.name) === ifelse
collect_globals!(found, x::Expr) = foreach(arg -> collect_globals!(found, arg), x.args)
collect_globals!(found, x::GlobalRef) = push!(found, x)
collect_globals!(found, x) = nothing

# --- the call ---

struct Positions
    b::Sym
    h::Sym
    q::Sym
    k::Sym
end

function Positions(trace::Trace)
    position(name) = trace.one_based ? leaf(trace, name, KindI32) + literal(1) : leaf(trace, name, KindI32)
    return Positions(position(:b), position(:h), position(:q), position(:k))
end

# The last argument of a modifier that takes one more than the others: sizes (`c.Sq`), and what was captured by keyword.
# One type for all of them: with a NamedTuple each modifier would compile the package's functions again.
struct Given
    trace::Trace
end
const SIZE_NAMES = (:B, :H, :Hkv, :Sq, :Skv)

Base.propertynames(c::Given) = (SIZE_NAMES..., (name for (name, _) in getfield(c, :trace).given)...)
function Base.getproperty(c::Given, name::Symbol)
    trace = getfield(c, :trace)
    name in SIZE_NAMES && return leaf(trace, name, KindI32)
    slot = 0  # arrays of keywords have the first slots
    for given in trace.given
        given.second isa AbstractArray && (slot += 1)
        given.first === name && return symbolic(trace, name, slot, given.second)
    end
    refuse("nothing called '$name' is captured; there are ", join(propertynames(c), ", "))
end

symbolic(trace::Trace, name, slot, x::AbstractArray) = Captured(trace, slot, x)
function symbolic(trace::Trace, name, slot, x::Bool)
    trace.flags = [trace.flags; name]
    return x
end
symbolic(trace::Trace, name, slot, x::Integer) = leaf(trace, name, KindI32)
symbolic(trace::Trace, name, slot, x::Real) = leaf(trace, name, KindF32)

const SIGNATURES = (score_mod = "score_mod(score, b, h, q, k[, c])", mask_mod = "mask_mod(b, h, q, k[, c])",
                    bprop = "bprop(grad, score, b, h, q, k[, c])")

# What one modifier returns. `kind` is :score_mod, :mask_mod or :bprop.
function trace_modifier(trace::Trace, @nospecialize(f), kind::Symbol)
    p = Positions(trace)
    kind === :mask_mod && return trace_call(trace, f, kind, (p.b, p.h, p.q, p.k))
    score = leaf(trace, :score, KindF32)
    kind === :score_mod && return trace_call(trace, f, kind, (score, p.b, p.h, p.q, p.k))
    return trace_call(trace, f, kind, (leaf(trace, :grad, KindF32), score, p.b, p.h, p.q, p.k))
end

function trace_call(trace::Trace, @nospecialize(f), kind::Symbol, args::Tuple)
    applicable(f, args...) && return traced(trace, f, kind, args)
    longer = (args..., Given(trace))
    applicable(f, longer...) || refuse("$kind is called as $(SIGNATURES[kind]), but $f has no such method")
    return traced(trace, f, kind, longer)
end

function traced(trace::Trace, @nospecialize(f), kind::Symbol, args::Tuple)
    trace.modifier, trace.arguments = f, args
    return checked_result(kind, explained(f, args, kind))
end

# Of old versions of Julia: old_ifelse.jl.
VERSION >= v"1.8" && @eval call_modifier(@nospecialize(f), args::Tuple) = f(args...)

function explained(@nospecialize(f), args::Tuple, which)
    try
        return call_modifier(f, args)
    catch e
        reason = what_lacks(e)
        reason === nothing || refuse("$which ", reason, "; ?Fovea.Sym lists what symbolic values have")
        e isa TypeError && e.expected === Bool && e.got isa Sym || rethrow()
        refuse("$which asks for true or false where there is no value yet: write ifelse(c, x, y) (or, inside functions ",
               "it calls, Fovea.select) instead of `if` and `?:`, `&` and `|` instead of `&&` and `||`, and ",
               "(a < b) & (b < c) instead of a < b < c")
    end
end

# Why Base could not go on with a symbolic value, or nothing if the error has another cause.
what_lacks(e) = nothing
what_lacks(::StackOverflowError) = "uses a function that formulas do not have"
what_lacks(e::MethodError) =
    any(x -> x isa Sym, e.args) ? "uses $(e.f) of a symbolic value, which formulas do not have" : nothing
what_lacks(e::TypeError) = e.expected !== Bool && e.got isa Sym ?
    "uses a symbolic value where Julia needs a $(e.expected) (a tuple can't be indexed by a position: give a vector)" : nothing

function checked_result(which, result)
    result isa Real || refuse("$which returned a $(typeof(result)), not a number")
    value = convert(Sym, result)
    which === :mask_mod || return number(value)
    is_bool(value) || refuse("mask_mod returned $(kind_name(value.kind)), not a condition; write x != 0")
    return value
end

"""
    Fovea.formula(f; mask = false, one_based = false)

The formula that a modifier without captured things is traced into: of a `score_mod`, or of a `mask_mod`.

```jldoctest
julia> Fovea.formula((score, b, h, q, k) -> ifelse(q >= k, score, -Inf))
"select(q >= k, score, -inf)"
```
"""
formula(f; mask::Bool = false, one_based::Bool = false) =
    formula_text(trace_modifier(Trace(one_based), f, mask ? :mask_mod : :score_mod))
