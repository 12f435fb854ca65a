# The program of a Request: texts, and which array or number each of their names stands for. Also its line, which libfovea
# reads.

# What a traced call asks for. A Request has everything that a program can depend on and nothing of the caller's (no array, no
# function), so equal Requests have equal programs whatever happened between them, and texts are made once for each.
struct Request
    nodes::Vector{Node}         # of all modifiers
    roots::NTuple{3,Int32}      # of score_mod, mask_mod, bprop; 0 if it is no function
    texts::NTuple{3,String}     # "" if it is no text
    arrays::Vector{ArrayFacts}  # by slot: those of keywords, those met in traces, bias, mask
    given::Vector{GivenFacts}
    bias::Int                   # its slot, or 0
    mask::Int
    firsts::Tuple{Symbol,Symbol}  # what `bias` and `mask` subtract from positions: the offsets of q and of k, by name, or :none
    causal::Symbol
    window::Tuple{Int,Int}
    sizes::CSizes
    unused_allowed::Bool
    doubles::Bool               # whether numbers are Float64
end

Base.:(==)(a::Request, b::Request) =
    a.roots === b.roots && a.sizes === b.sizes && a.causal === b.causal && a.window === b.window && a.bias == b.bias &&
    a.mask == b.mask && a.firsts === b.firsts && a.unused_allowed == b.unused_allowed &&
    a.doubles == b.doubles && same(a.nodes, b.nodes) && same(a.arrays, b.arrays) &&
    same(a.given, b.given) && a.texts == b.texts

# Bit by bit: -0.0 is not 0.0 in a formula, and NaN is NaN.
function same(a::Vector{T}, b::Vector{T}) where {T}
    length(a) == length(b) || return false
    for i in eachindex(a)
        @inbounds a[i] === b[i] || return false
    end
    return true
end

mix(h::UInt, x::UInt) = (y = (h ⊻ x) * 0x9e3779b97f4a7c15; y ⊻ (y >> 29))

function Base.hash(r::Request, seed::UInt)
    h = mix(seed, objectid(r.causal) + UInt(r.window[1] + 2) << 32 + (r.window[2] + 2) % UInt)
    h = mix(h, (r.sizes.sq + r.sizes.skv << 24 + r.sizes.h << 48) % UInt)
    for node in r.nodes
        h = mix(h, objectid(node.text) + (node.args[1] % UInt32) + UInt(node.args[2] % UInt32) << 32)
        h = mix(h, reinterpret(UInt64, node.number) + node.args[3] % UInt32)
    end
    for facts in r.arrays
        h = mix(h, objectid(facts.wanted) + facts.extent[1] % UInt + (facts.extent[2] % UInt) << 32)
    end
    for facts in r.given
        h = mix(h, objectid(facts.name))
    end
    for text in r.texts
        isempty(text) || (h = hash(text, h))
    end
    return h
end

struct TensorRecipe
    key::Symbol
    name::String
    slot::Int
    order::Order
    type::DType
    extent::NTuple{8,Int}  # in the order of the formula
    rank::Int
end

struct ScalarRecipe
    key::Symbol
    name::String
    at::Int  # among what is given by keyword
    is_float::Bool
end

struct Recipe
    mod::String
    mask::String
    bprop::String
    line::String  # the program as libfovea reads it, with extents as numbers
    tensors::Vector{TensorRecipe}
    scalars::Vector{ScalarRecipe}
end

function new_recipe(r::Request)
    names = array_names(r.arrays, r.given, r.bias)
    lets = let_prefix([names; [String(g.name) for g in r.given]])
    words = Words(names, [order_of(r, slot, names[slot]) for slot in eachindex(names)], lets, r.doubles)
    text(i) = r.roots[i] == 0 ? r.texts[i] : formula_text(r.nodes, r.roots[i], words)
    mod, mask, bprop = with_bias(text(1), r, words), join_masks(text(2), r, words), text(3)
    tensors = TensorRecipe[]
    for (slot, key) in enumerate(array_keys(r, names))
        is_declared(r, slot, names[slot]) && push!(tensors, tensor_recipe(r.arrays[slot], key, names[slot], slot, words.orders[slot]))
    end
    scalars = scalar_recipes(r, (mod, mask, bprop))
    # Captured by a NamedTuple and used nowhere: the language wants a formula beside it.
    isempty(mod) && isempty(mask) && !(isempty(tensors) && isempty(scalars)) && (mod = "score")
    recipe = Recipe(mod, mask, bprop, "", tensors, scalars)
    return Recipe(mod, mask, bprop, program_line(recipe), tensors, scalars)
end

tensor_recipe(facts::ArrayFacts, key, name, slot, order) =
    TensorRecipe(key, name, slot, order, facts.code, in_order(facts.extent, order), facts.rank)

# If a text names an array, all formulas index it in Julia's order; otherwise in the order of the memory.
order_of(r::Request, slot, name) = in_texts(r, name) ? JULIA_ORDER : reversed_order(r.arrays[slot].rank)
is_keyword(r::Request, slot) = slot <= count(g -> g.sort === GivenArray, r.given)
in_texts(r::Request, name) = any(text -> mentions(text, name), r.texts)

# Whether the program declares an array. What was given by keyword must be used, or asked for.
function is_declared(r::Request, slot, name)
    is_keyword(r, slot) || return true
    any(node -> node.form === Load && node.number == slot, r.nodes) && return true
    wanted = r.arrays[slot].wanted
    if in_texts(r, String(wanted))
        check_text_name(wanted)
        return true
    end
    r.unused_allowed || unused(wanted)
    return String(wanted) == name
end

unused(name) = refuse("'$name' is no keyword of attention, and no formula uses it", suggestion(name, OPTION_NAMES))

function check_text_name(name)
    text = String(name)
    is_name(text) || refuse("'$name' is no name of the formula language: letters of ASCII, digits and _, at most 60")
    text in WORDS && refuse("'$name' is a word of the formula language; give what is captured another name")
end

function scalar_recipes(r::Request, formulas)
    scalars = ScalarRecipe[]
    for (at, given) in enumerate(r.given)
        given.sort === GivenArray && continue
        text = String(given.name)
        if given.sort === GivenBool  # has been read by a function
            in_texts(r, text) && refuse("'$text' is a Bool, which a text can't capture; give 0 or 1 and write $text != 0")
            continue
        end
        if !any(formula -> mentions(formula, text), formulas)
            r.unused_allowed || unused(given.name)
            is_name(text) && !(text in WORDS) || continue
        end
        check_text_name(given.name)
        push!(scalars, ScalarRecipe(given.name, text, at, given.sort === GivenFloat))
    end
    return scalars
end

# ---- each is made once ----

const RECIPES = Dict{Request,Recipe}()
const RECIPES_LOCK = ReentrantLock()
const RECIPES_KEPT = 512

function recipe_of(request::Request)
    known = Base.@lock RECIPES_LOCK get(RECIPES, request, nothing)
    known === nothing || return known
    recipe = new_recipe(request)  # without the lock; refusals are not kept
    Base.@lock RECIPES_LOCK begin
        length(RECIPES) < RECIPES_KEPT || empty!(RECIPES)
        RECIPES[request] = recipe
    end
    return recipe
end

# --- the line ---

# `symbolic` gives sizes their names, so that one plan of libfovea serves several lengths.
program_line(r::Recipe) = program_line(r, (tensor, i) -> string(tensor.extent[i]))
symbolic_line(r::Recipe, sizes::CSizes) = program_line(r, (tensor, i) -> extent_word(r, tensor, i, sizes))

function program_line(r::Recipe, extent)
    io = IOBuffer()
    isempty(r.mod) || print(io, "mod=\"", r.mod, "\" ")
    isempty(r.mask) || print(io, "mask=\"", r.mask, "\" ")
    isempty(r.bprop) || print(io, "bprop=\"", r.bprop, "\" ")
    for t in r.tensors
        print(io, "tensor=\"", t.name, ":", dtype_word(t.type), "[")
        join(io, (extent(t, i) for i in 1:t.rank), ",")
        print(io, "]\" ")
    end
    for s in r.scalars
        print(io, "scalar=\"", s.name, s.is_float ? "" : ":i32", "\" ")
    end
    return String(take!(io))
end

# The size that dimension i must have because a position indexes it; else its number.
function extent_word(r::Recipe, t::TensorRecipe, i, sizes::CSizes)
    for (position, word, size_) in (("b", "B", sizes.b), ("h", "H", sizes.h), ("q", "Sq", sizes.sq), ("k", "Skv", sizes.skv))
        t.extent[i] == size_ || continue
        any(indexed_by(formula, t.name, i, position) for formula in (r.mod, r.mask, r.bprop)) && return word
    end
    return string(t.extent[i])
end

indexed_by(formula, name, i, position) =
    any(m -> (words = split(m.captures[1], ','); length(words) >= i && strip(words[i]) == position),
        eachmatch(Regex("\\b" * name * "\\[([^\\[\\]()]*)\\]"), formula))

# Does a formula use this name as a word?
function mentions(formula::String, name::String)
    from = 1
    while true
        found = findnext(name, formula, from)
        found === nothing && return false
        before = first(found) == 1 || !is_word(formula[prevind(formula, first(found))])
        after = last(found) == lastindex(formula) || !is_word(formula[nextind(formula, last(found))])
        before && after && return true
        from = nextind(formula, first(found))
    end
end
