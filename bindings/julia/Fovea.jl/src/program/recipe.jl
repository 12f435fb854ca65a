# The program of a Request: texts, and which array or number each name in them is.

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
    words = Words(names, [order_of(r, slot, names[slot]) for slot in eachindex(names)], lets)
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

# Who writes a text chooses the order of indices, Julia's; then all formulas have it.
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

unused(name) = refuse("'$name' is no keyword of attention, and no formula uses it", suggestion(name))

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
    known = known_recipe(request)
    known === nothing || return known
    recipe = new_recipe(request)  # without the lock; refusals are not kept
    lock(RECIPES_LOCK) do
        length(RECIPES) < RECIPES_KEPT || empty!(RECIPES)
        RECIPES[request] = recipe
    end
    return recipe
end

function known_recipe(request::Request)
    lock(RECIPES_LOCK)
    try
        return get(RECIPES, request, nothing)
    finally
        unlock(RECIPES_LOCK)
    end
end
