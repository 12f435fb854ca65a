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
function program_of(o::Options, sizes::CSizes, device::String)
    is_plain(o) && return PLAIN
    o.bprop === nothing || o.score_mod !== nothing || refuse("bprop is given without score_mod")
    o.bprop === nothing || o.bias === nothing || refuse("bprop and bias exclude one another; add the bias in score_mod")
    trace = Trace(o.one_based, o.captured)
    given = given_facts!(trace, o.captured)
    roots = (root_of(trace, o.score_mod, :score_mod), root_of(trace, o.mask_mod, :mask_mod), root_of(trace, o.bprop, :bprop))
    texts = (text_of(o.score_mod, :score_mod), text_of(o.mask_mod, :mask_mod), text_of(o.bprop, :bprop))
    bias = o.bias === nothing ? 0 : (check_bias(o.bias); add_array!(trace, :bias, o.bias))
    mask = o.mask_mod isa AbstractArray ? add_array!(trace, :mask, mask_array(o.mask_mod, device)) : 0
    request = Request(trace.nodes, roots, texts, array_facts(trace), given, bias, mask, o.causal, o.window, sizes, o.unused_allowed)
    return program_of(recipe_of(request), trace.arrays, o.captured)
end

function given_facts!(trace::Trace, captured)
    isempty(captured) && return NOTHING_GIVEN
    return GivenFacts[given_facts!(trace, name, value) for (name, value) in captured]
end
function given_facts!(trace::Trace, name::Symbol, @nospecialize(value))
    check_captured(name, value)
    value isa AbstractArray && add_array!(trace, name, value)
    return GivenFacts(name, given_sort(value))
end

array_facts(trace::Trace) = ArrayFacts[ArrayFacts(trace.wanted[i], trace.arrays[i]) for i in eachindex(trace.arrays)]

# The node that a function returned; 0 where the modifier is no function.
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
