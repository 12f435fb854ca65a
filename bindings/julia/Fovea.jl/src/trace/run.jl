# Calling a modifier with symbolic values.

struct Positions
    b::Sym
    h::Sym
    q::Sym
    k::Sym
end

function Positions(trace::Trace)
    position(name) = trace.one_based ? leaf(trace, name, KindI32) + literal(1) : leaf(trace, name, KindI32)
    return Positions(position("b"), position("h"), position("q"), position("k"))
end

# The last argument of a modifier that takes one more than the others: sizes (`c.Sq`), and what was captured by keyword.
# One type for whatever there is: a NamedTuple would compile every modifier's way through the package again.
struct Given
    names::Vector{Symbol}
    values::Vector{Any}
end
Base.propertynames(c::Given) = Tuple(getfield(c, :names))
function Base.getproperty(c::Given, name::Symbol)
    names = getfield(c, :names)
    at = findfirst(==(name), names)
    at === nothing && refuse("nothing called '$name' is captured; there are ", join(names, ", "))
    return getfield(c, :values)[at]
end

const SIZE_NAMES = (:B, :H, :Hkv, :Sq, :Skv)

function captured_argument(trace::Trace, captured)
    given = Given(collect(SIZE_NAMES), Any[leaf(trace, String(name), KindI32) for name in SIZE_NAMES])
    for (name, value) in captured
        push!(getfield(given, :names), name)
        push!(getfield(given, :values), symbolic(trace, name, value))
    end
    return given
end
symbolic(trace::Trace, name, x::AbstractArray) = Captured(trace, x)
symbolic(trace::Trace, name, x::Integer) = leaf(trace, String(name), KindI32)
symbolic(trace::Trace, name, x::Bool) = x
symbolic(trace::Trace, name, x::Real) = leaf(trace, String(name), KindF32)
symbolic(trace::Trace, name, x) = x

# What a function calls the arrays that it captures: the fields of a closure, or globals.
function note_names!(trace::Trace, @nospecialize(f), args::Tuple)
    for name in fieldnames(typeof(f))
        isdefined(f, name) || continue
        value = getfield(f, name)
        value isa Core.Box && isdefined(value, :contents) && (value = value.contents)
        value isa AbstractArray && push!(trace.hints, name => value)
    end
    for ref in facts_of(f, args).globals
        isdefined(ref.mod, ref.name) || continue
        value = getfield(ref.mod, ref.name)
        value isa AbstractArray && push!(trace.hints, ref.name => value)
    end
end

# What the code of a function says, as long as no method of anything has been defined since. Values that it reads are
# not part of it: those are looked up in every call.
struct CodeFacts
    world::UInt
    globals::Vector{GlobalRef}  # which may be arrays
    uses_ifelse::Bool
end

const FACTS = Dict{Tuple{DataType,Int},CodeFacts}()
const FACTS_LOCK = ReentrantLock()

function facts_of(@nospecialize(f), args::Tuple)
    key, world = (typeof(f), length(args)), Base.get_world_counter()
    lock(FACTS_LOCK)
    try
        known = get(FACTS, key, nothing)
        known === nothing || known.world != world || return known
        length(FACTS) < 1000 || empty!(FACTS)
        return FACTS[key] = new_facts(f, args, world)
    finally
        unlock(FACTS_LOCK)
    end
end

function new_facts(@nospecialize(f), args::Tuple, world)
    found = GlobalRef[]
    for code in code_lowered(f, Tuple{map(Core.Typeof, args)...})
        foreach(statement -> collect_globals!(found, statement), code.code)
    end
    unique!(found)
    # Functions are no arrays, and stay none.
    arrays = filter(ref -> !isconst(ref.mod, ref.name) || getfield(ref.mod, ref.name) isa AbstractArray, found)
    return CodeFacts(world, arrays, any(is_ifelse, found))
end
is_ifelse(x::GlobalRef) = x.name === :ifelse && isdefined(x.mod, x.name) && getfield(x.mod, x.name) === ifelse
collect_globals!(found, x::Expr) = foreach(arg -> collect_globals!(found, arg), x.args)
collect_globals!(found, x::GlobalRef) = push!(found, x)
collect_globals!(found, x) = nothing

const SIGNATURES = (score_mod = "score_mod(score, b, h, q, k[, c])", mask_mod = "mask_mod(b, h, q, k[, c])",
                    bprop = "bprop(grad, score, b, h, q, k[, c])")

# The formula of one modifier. `kind` is :score_mod, :mask_mod or :bprop, `first` what stands before the positions.
function trace_modifier(trace::Trace, @nospecialize(f), kind::Symbol, first::Tuple, captured)
    p = Positions(trace)
    args = (first..., p.b, p.h, p.q, p.k)
    if !applicable(f, args...)
        args = (args..., captured_argument(trace, captured))
        applicable(f, args...) || refuse("$kind is called as $(SIGNATURES[kind]), but $f has no such method")
    end
    note_names!(trace, f, args)
    return checked_result(kind, explained(() -> call_modifier(f, args), kind))
end

# Of old versions of Julia: old_ifelse.jl.
VERSION >= v"1.8" && @eval call_modifier(@nospecialize(f), args::Tuple) = f(args...)

function explained(call, which)
    try
        return call()
    catch e
        e isa TypeError && e.expected === Bool && e.got isa Sym || rethrow()
        refuse("$which asks for true or false where there is no value yet: write ifelse(c, x, y) (or, inside functions ",
               "it calls, Fovea.select) instead of `if` and `?:`, `&` and `|` instead of `&&` and `||`, and ",
               "(a < b) & (b < c) instead of a < b < c")
    end
end

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
function formula(f; mask::Bool = false, one_based::Bool = false)
    trace = Trace(one_based)
    mask && return formula_text(trace_modifier(trace, f, :mask_mod, (), ()))
    return formula_text(trace_modifier(trace, f, :score_mod, (leaf(trace, "score", KindF32),), ()))
end
