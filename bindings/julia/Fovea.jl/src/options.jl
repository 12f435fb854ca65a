# What a call asks for, apart from its arrays. One value that every function of the package reads, so that a question about a
# call and the call itself cannot differ.

mutable struct Options
    score_mod::Any  # nothing, a text or a function
    mask_mod::Any   # or an array of Bool
    bprop::Any
    causal::Symbol  # :no, :top_left, :bottom_right
    window::Tuple{Int,Int}  # keys before and after a query; -1: all
    scale::Float64  # 0: 1 / sqrt(head_dim)
    bias::Union{Nothing,AbstractArray}
    kv_lengths::Union{Nothing,AbstractVector}
    q_lengths::Union{Nothing,AbstractVector}
    sinks::Union{Nothing,AbstractVector}
    dropout::Float32
    seed::UInt64
    offset::UInt64
    q_offset::Int32
    k_offset::Int32
    engine::String  # "": Fovea's choice
    deterministic::Bool
    one_based::Bool
    captured::Vector{Pair{Symbol,Any}}
    unused_allowed::Bool  # of what is captured: it then has a gradient of zeros
    is_seeded::Bool
end

default_options() = Options(nothing, nothing, nothing, :no, (-1, -1), 0, nothing, nothing, nothing, nothing, 0, 0, 0, 0, 0,
                            "", false, false, Pair{Symbol,Any}[], false, false)

const OPTION_NAMES = (:score_mod, :mask_mod, :bprop, :causal, :window, :scale, :bias, :kv_lengths, :q_lengths, :sinks,
                      :dropout, :seed, :offset, :q_offset, :k_offset, :engine, :deterministic, :one_based)

# Not specialised: a new modifier must not compile the whole package again.
function read_options(@nospecialize(keywords::NamedTuple), @nospecialize(captured::NamedTuple = NamedTuple()))
    options = default_options()
    for name in keys(keywords)
        set_option!(options, name, getfield(keywords, name))
    end
    options.unused_allowed = !isempty(captured)
    for name in keys(captured)
        haskey(keywords, name) && refuse("'$name' is captured and given as a keyword as well")
        set_option!(options, name, getfield(captured, name))
    end
    return options
end

function set_option!(o::Options, name::Symbol, @nospecialize(value))
    name in (:score_mod, :bprop) && value isa AbstractArray &&
        refuse("$name is a $(typeof(value)), but takes a function or a text; an array that is added to scores is `bias`")
    if name in (:score_mod, :mask_mod, :bprop)
        setfield!(o, name, value)
    elseif name === :causal
        o.causal = causal_option(value)
    elseif name === :window
        o.window = window_option(value)
    elseif name in (:bias, :kv_lengths, :q_lengths, :sinks)
        set_array!(o, name, value)
    elseif name === :engine
        value isa Union{Nothing,AbstractString,Symbol} || refuse("engine = $(repr(value)): a name, or nothing for Fovea's choice")
        o.engine = value === nothing ? "" : String(value)
    elseif name in (:seed, :offset)
        value isa Integer || refuse("$name = $(repr(value)): an integer")
        setfield!(o, name, value % UInt64)
        name === :seed && (o.is_seeded = true)
    elseif name in (:q_offset, :k_offset)
        value isa Integer && 0 <= value <= typemax(Int32) || refuse("$name = $(repr(value)): an integer, 0 or more")
        setfield!(o, name, Int32(value))
    elseif name === :scale
        value === nothing || (o.scale = scale_option(value))
    elseif name === :dropout
        value isa Real && 0 <= value < 1 || refuse("dropout = $(repr(value)): a probability, 0 <= dropout < 1")
        o.dropout = value
    elseif name in (:deterministic, :one_based)
        value isa Bool || refuse("$name = $(repr(value)): true or false")
        setfield!(o, name, value)
    else
        push!(o.captured, name => value)
    end
    return nothing
end

function set_array!(o::Options, name, @nospecialize(value))
    value === nothing && return
    value isa fieldtype(Options, name) ||
        refuse("$name is a $(typeof(value)), but takes ", name === :bias ? "an array" : "a vector")
    setfield!(o, name, value)
end

causal_option(value::Bool) = value ? :top_left : :no
causal_option(value::Symbol) =
    value in (:top_left, :bottom_right) ? value : refuse("causal = :$value: true, false, :top_left or :bottom_right")
causal_option(value) = refuse("causal = $(repr(value)): true, false, :top_left or :bottom_right")

window_option(::Nothing) = (-1, -1)
window_option(n::Integer) = n > 0 ? (Int(n) - 1, Int(n) - 1) : refuse("window = $n: a number of keys above 0, or (before, after)")
function window_option(pair::Tuple{Any,Any})
    before, after = map(x -> x === nothing ? -1 : Int(x), pair)
    before >= -1 && after >= -1 || refuse("window = $pair: (before, after), each 0 or more, or -1 for all")
    return (before, after)
end
window_option(value) = refuse("window = $(repr(value)): a number of keys, or (before, after)")

# Asked where a call runs; a question about it needs no seed.
check_seed(o::Options) = o.dropout == 0 || o.is_seeded ||
    refuse("dropout = $(o.dropout) needs a seed, an integer: one seed drops the same scores in every call, so a step of a ",
           "training takes a new one, and its backward that of its forward")

function scale_option(value)
    value isa Real && isfinite(value) && Float32(value) != 0 || refuse("scale = $(repr(value)): a finite number other than 0")
    return Float64(value)
end
