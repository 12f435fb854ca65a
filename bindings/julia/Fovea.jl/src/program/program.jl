# From options to the program: texts of the formulas, and the arrays and numbers that they capture.

struct Program
    recipe::Recipe
    tensors::Vector{CapturedTensor}
    scalars::Vector{CapturedScalar}
end

const PLAIN = Program(Recipe("", "", "", "", TensorRecipe[], ScalarRecipe[]), CapturedTensor[], CapturedScalar[])

is_plain(o::Options) = o.score_mod === nothing && o.mask_mod === nothing && o.bprop === nothing && o.bias === nothing &&
                       isempty(o.captured) && o.causal === :no && o.window == (-1, -1)

# A modifier is traced in every call: what its code reads beside its arguments (numbers that it captures, globals,
# elements of arrays) may have changed since the last one. All after the trace depends on the Request alone.
function program_of(o::Options, sizes::CSizes, type::DataType)
    is_plain(o) && return PLAIN
    o.bprop === nothing || o.score_mod !== nothing || refuse("bprop is given without score_mod")
    o.bprop === nothing || o.bias === nothing || refuse("bprop and bias exclude one another; add the bias in score_mod")
    captured, firsts = with_firsts(o)
    trace = Trace(o.one_based, captured, type === Float64)
    given = given_facts!(trace, captured)
    roots = (root_of(trace, o.score_mod, :score_mod), root_of(trace, o.mask_mod, :mask_mod), root_of(trace, o.bprop, :bprop))
    texts = (text_of(o.score_mod, :score_mod), text_of(o.mask_mod, :mask_mod), text_of(o.bprop, :bprop))
    check_flags(o, trace, texts)
    bias = o.bias === nothing ? 0 : (check_bias(trace, o.bias); add_array!(trace, :bias, o.bias))
    mask = o.mask_mod isa AbstractArray ? add_array!(trace, :mask, mask_array(o.mask_mod)) : 0
    request = Request(trace.nodes, roots, texts, array_facts(trace), given, bias, mask, firsts, o.causal, o.window, sizes,
                      o.unused_allowed, trace.doubles)
    return program_of(recipe_of(request), trace.arrays, captured)
end

# Functions read a Bool while they are traced, so no formula shows whether it was used.
function check_flags(o::Options, trace::Trace, texts)
    o.unused_allowed && return
    for (name, value) in o.captured
        value isa Bool && !(name in trace.flags) && !any(text -> mentions(text, String(name)), texts) && unused(name)
    end
end

# A bias and a mask of Bools go by row and column of the call. If positions have an offset, the formula subtracts it again:
# it is one more number that is captured, so that another offset needs no other plan.
function with_firsts(o::Options)
    q = o.q_offset != 0 && any(x -> is_array_of(x, 2), (o.bias, o.mask_mod))
    k = o.k_offset != 0 && any(x -> is_array_of(x, 1), (o.bias, o.mask_mod))
    q || k || return o.captured, NO_FIRSTS
    names = (q ? hidden_name(o, "q_first") : :none, k ? hidden_name(o, "k_first") : :none)
    hidden = Pair{Symbol,Any}[name => first for (name, first) in zip(names, (o.q_offset, o.k_offset)) if name !== :none]
    return Pair{Symbol,Any}[o.captured; hidden], names
end
const NO_FIRSTS = (:none, :none)

is_array_of(x, dimension) = x isa AbstractArray && size(x, dimension) != 1

function hidden_name(o::Options, wanted)
    taken = Set{String}(String(name) for (name, _) in o.captured)
    for text in (o.score_mod, o.mask_mod, o.bprop)
        text isa AbstractString && mentions(String(text), wanted) && push!(taken, wanted)
    end
    return Symbol(free_name(taken, wanted))
end

function given_facts!(trace::Trace, captured)
    isempty(captured) && return NOTHING_GIVEN
    return GivenFacts[given_facts!(trace, name, value) for (name, value) in captured]
end
function given_facts!(trace::Trace, name::Symbol, @nospecialize(value))
    check_captured(trace, name, value)
    value isa AbstractArray && add_array!(trace, name, value)
    return GivenFacts(name, given_sort(value))
end

array_facts(trace::Trace) = ArrayFacts[ArrayFacts(trace.wanted[i], trace.arrays[i]) for i in eachindex(trace.arrays)]

# The node that a function returned; 0 if the modifier is no function.
function root_of(trace::Trace, @nospecialize(f), which::Symbol)
    (f === nothing || f isa AbstractArray || f isa AbstractString) && return Int32(0)
    return node_of(trace, trace_modifier(trace, f, which))
end

function text_of(@nospecialize(f), which)
    f isa AbstractString || return ""
    text = String(f)
    isempty(strip(text)) && refuse("$which is an empty text; leave it out")
    '"' in text && refuse("$which = $(repr(text)): a formula has no quotes")
    return text
end

# A recipe with the arrays and numbers of this call.
function program_of(recipe::Recipe, arrays, captured)
    tensors = CapturedTensor[CapturedTensor(t.key, t.name, arrays[t.slot], t.order) for t in recipe.tensors]
    scalars = CapturedScalar[CapturedScalar(s.key, s.name, Float64(captured[s.at].second), s.is_float) for s in recipe.scalars]
    return Program(recipe, tensors, scalars)
end
