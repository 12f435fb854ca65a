# Captured arrays and numbers: what formulas call them, and in which order they are indexed.

# Everything about an array that can show in a program: not its address and not its elements.
struct ArrayFacts
    wanted::Symbol  # what Julia calls it
    code::DType
    rank::Int8
    extent::NTuple{8,Int}  # in Julia's order
end
function ArrayFacts(wanted::Symbol, x::AbstractArray{T,N}) where {T,N}
    N <= MOST_INDICES || refuse("the captured array '$wanted' has $N dimensions, but a formula reads $MOST_INDICES at most")
    x isa DenseArray || check_strides("the captured array '$wanted'", layout(x).strides)  # refuses what can't be read
    return ArrayFacts(wanted, dtype(T), N, filled8(size(x)))
end

# Captured by keyword: an array, which has the next slot, or a number.
@enum GivenSort::UInt8 GivenArray GivenFloat GivenInteger GivenBool
struct GivenFacts
    name::Symbol
    sort::GivenSort
end
const NOTHING_GIVEN = GivenFacts[]

given_sort(::AbstractArray) = GivenArray
given_sort(::Bool) = GivenBool
given_sort(::Integer) = GivenInteger
given_sort(::Real) = GivenFloat

struct CapturedTensor
    key::Symbol    # in Julia: what the gradient is called
    name::String   # in the formulas
    array::AbstractArray
    order::Order   # of its dimensions in the formulas
end

struct CapturedScalar
    key::Symbol
    name::String
    value::Float64
    is_float::Bool
end

function check_captured(trace::Trace, name, @nospecialize(value))
    name in (:q, :k, :v) && refuse("the name '$name' can't be captured: the gradient of $name has it")
    value isa AbstractArray && return load_kind(trace, name, eltype(value))
    value isa Integer && !(typemin(Int32) <= value <= typemax(Int32)) && refuse("$name = $value does not fit Int32; give a Float32")
    value isa Real || refuse("'$name' is no keyword of attention, and a $(typeof(value)) can't be captured: arrays and numbers can",
                             suggestion(name, OPTION_NAMES))
    return nothing
end

# ---- names ----

# Words of the language, and of the list of gradients.
const WORDS = Set(["score", "grad", "b", "h", "q", "k", "B", "H", "Hkv", "Sq", "Skv", "let", "true", "false", "inf", "nan", "v", "sink"])

is_name(text) = 0 < length(text) <= 60 && !isdigit(first(text)) && all(c -> isascii(c) && is_word(c), text)
is_word(c::Char) = c == '_' || isletter(c) || isdigit(c)

# What formulas call the arrays of all slots. A keyword (`bias` is one) keeps its name, since a text may use it; the others
# are called as in the program if that is a name of the language and not taken.
function array_names(arrays::Vector{ArrayFacts}, given::Vector{GivenFacts} = NOTHING_GIVEN, bias = 0)
    taken = Set{String}(String(g.name) for g in given)
    bias == 0 || push!(taken, "bias")
    keywords = count(g -> g.sort === GivenArray, given)
    names = String[]
    for (slot, facts) in enumerate(arrays)
        wanted = String(facts.wanted)
        keeps = slot == bias || slot <= keywords && is_name(wanted) && !(wanted in WORDS)
        push!(names, keeps ? wanted : free_name(taken, wanted))
        push!(taken, names[end])
    end
    return names
end

function free_name(taken, wanted)
    is_name(wanted) || (wanted = "captured")
    name, n = wanted, 1
    while name in taken || name in WORDS
        name = string(wanted, "_", n += 1)
    end
    return name
end

# What gradients are called: keywords, then `bias`, then what the program calls an array, if that is not taken.
function array_keys(r, names)
    taken = Set{Symbol}([:q, :k, :v, :sinks])
    union!(taken, (g.name for g in r.given))
    r.bias == 0 || push!(taken, :bias)
    keywords = count(g -> g.sort === GivenArray, r.given)
    return map(1:length(r.arrays)) do slot
        wanted = r.arrays[slot].wanted
        (slot <= keywords || slot == r.bias) && return wanted
        key = wanted in taken ? Symbol(names[slot]) : wanted
        push!(taken, key)
        return key
    end
end
