# From options to the program: texts of the formulas, and the arrays and numbers that they capture.

struct CapturedTensor
    key::Symbol    # in Julia: what the gradient is called
    name::String   # in the formulas
    array::AbstractArray
end

struct CapturedScalar
    key::Symbol
    name::String
    value::Float64
    is_float::Bool
end

struct Program
    mod::String
    mask::String
    bprop::String
    tensors::Vector{CapturedTensor}
    scalars::Vector{CapturedScalar}
end

is_empty(p::Program) = isempty(p.mod) && isempty(p.mask) && isempty(p.tensors) && isempty(p.scalars)

const PLAIN = Program("", "", "", CapturedTensor[], CapturedScalar[])

function program_of(o::Options, sizes::CSizes)
    o.score_mod === nothing && o.mask_mod === nothing && o.bprop === nothing && o.bias === nothing &&
        isempty(o.captured) && o.causal === :no && o.window == (-1, -1) && return PLAIN
    o.bprop === nothing || o.score_mod !== nothing || refuse("bprop is given without score_mod")
    o.bprop === nothing || o.bias === nothing || refuse("bprop and bias exclude one another; add the bias in score_mod")
    trace = Trace(o.one_based)
    for (name, value) in o.captured
        check_captured(name, value)
        value isa AbstractArray && push!(trace.hints, name => value)
    end
    texts = (mod = formula_of(trace, o, :score_mod), mask = formula_of(trace, o, :mask_mod), bprop = formula_of(trace, o, :bprop))
    mod = with_bias(trace, texts.mod, o.bias, sizes)
    mask = join_masks(trace, texts.mask, o, sizes)
    return with_captured(trace, (mod = mod, mask = mask, bprop = texts.bprop), o)
end

# The text of one formula; "" where there is none, or where mask_mod is an array.
function formula_of(trace::Trace, o::Options, which::Symbol)
    f = getfield(o, which)
    (f === nothing || f isa AbstractArray) && return ""
    f isa AbstractString && return checked_text(which, String(f))
    which === :mask_mod && return formula_text(trace_modifier(trace, f, which, (), o.captured))
    score = leaf(trace, "score", KindF32)
    which === :score_mod && return formula_text(trace_modifier(trace, f, which, (score,), o.captured))
    return formula_text(trace_modifier(trace, f, which, (leaf(trace, "grad", KindF32), score), o.captured))
end

function checked_text(which, text)
    isempty(strip(text)) && refuse("$which is an empty text; leave it out")
    '"' in text && refuse("$which = $(repr(text)): a formula has no quotes")
    return text
end

function check_captured(name, @nospecialize(value))
    name in (:q, :k, :v) && refuse("the name '$name' can't be captured: the gradient of $name has it")
    value isa AbstractArray && return load_kind(name, eltype(value))
    value isa Integer && !(typemin(Int32) <= value <= typemax(Int32)) && refuse("$name = $value does not fit Int32; give a Float32")
    value isa Real || refuse("'$name' is no keyword of attention, and a $(typeof(value)) can't be captured: arrays and numbers can",
                             suggestion(name))
    return nothing
end

function suggestion(name)
    nearest = sort!(collect(OPTION_NAMES); by = x -> edits(String(x), String(name)))[1]
    return edits(String(nearest), String(name)) <= 3 ? "; did you mean '$nearest'?" : ""
end

# Fewest insertions, deletions and replacements that turn one into the other.
function edits(a::String, b::String)
    row = collect(0:length(b))
    for (i, x) in enumerate(a)
        above, row[1] = row[1], i
        for (j, y) in enumerate(b)
            above, row[j + 1] = row[j + 1], min(above + (x != y), row[j] + 1, row[j + 1] + 1)
        end
    end
    return row[end]
end

# ---- masks ----

function join_masks(trace::Trace, mask, o::Options, sizes::CSizes)
    parts = String[]
    o.mask_mod isa AbstractArray && push!(parts, mask_array(trace, o.mask_mod, sizes))
    # A bottom-right diagonal ends at the last query and the last key.
    row = o.causal === :bottom_right ? "q + (Skv - Sq)" : "q"
    o.causal === :no || push!(parts, "$row >= k")
    before, after = o.window
    before >= 0 && push!(parts, "$row - k <= $before")
    after >= 0 && o.causal === :no && push!(parts, "k - q <= $after")
    isempty(parts) && return mask
    isempty(mask) || push!(parts, "($mask)")
    return join(parts, " && ")
end

# ---- what is captured ----

function with_captured(trace::Trace, texts, o::Options)
    tensors = CapturedTensor[]
    for (name, array) in zip(trace.names, trace.arrays)
        key = julia_name(trace, name, array)
        # Two arrays that their functions call the same.
        any(t -> t.key === key, tensors) && (key = Symbol(name))
        push!(tensors, CapturedTensor(key, name, array))
    end
    scalars = CapturedScalar[]
    for (name, value) in o.captured
        value isa AbstractArray && any(array -> array === value, trace.arrays) && continue
        text = String(name)
        if !any(mentions(formula, text) for formula in texts)
            # A Bool has been read by a function, and an array may stand for another of the same name.
            value isa Bool && continue
            o.unused_allowed || refuse("'$name' is no keyword of attention, and no formula uses it", suggestion(name))
            is_name(text) && !(text in WORDS) || continue
        end
        value isa Bool && refuse("'$name' is a Bool, which a text can't capture; give 0 or 1 and write $name != 0")
        is_name(text) || refuse("'$name' is no name of the formula language: letters of ASCII, digits and _, at most 60")
        text in WORDS && refuse("'$name' is a word of the formula language; give what is captured another name")
        value isa AbstractArray ? push!(tensors, CapturedTensor(name, text, value)) :
        push!(scalars, CapturedScalar(name, text, Float64(value), !(value isa Integer)))
    end
    # Captured by a NamedTuple and used nowhere: the language wants a formula beside it.
    none = isempty(texts.mod) && isempty(texts.mask) && !(isempty(tensors) && isempty(scalars))
    return Program(none ? "score" : texts.mod, texts.mask, texts.bprop, tensors, scalars)
end

function julia_name(trace, name, array)
    for hint in trace.hints
        hint.second === array && return hint.first
    end
    return Symbol(name)
end

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

# ---- the line that libfovea reads ----

# Extents as numbers: what the cache of plans compares. `symbolic` gives sizes their names, so that one plan of libfovea
# serves several lengths.
program_line(p::Program) = program_line(p, (tensor, i) -> string(size(tensor.array, i)))
symbolic_line(p::Program, sizes::CSizes) = program_line(p, (tensor, i) -> extent_word(p, tensor, i, sizes))

function program_line(p::Program, extent)
    is_empty(p) && return ""
    io = IOBuffer()
    isempty(p.mod) || print(io, "mod=\"", p.mod, "\" ")
    isempty(p.mask) || print(io, "mask=\"", p.mask, "\" ")
    isempty(p.bprop) || print(io, "bprop=\"", p.bprop, "\" ")
    for t in p.tensors
        print(io, "tensor=\"", t.name, ":", dtype_word(dtype(eltype(t.array))), "[")
        join(io, (extent(t, i) for i in 1:ndims(t.array)), ",")
        print(io, "]\" ")
    end
    for s in p.scalars
        print(io, "scalar=\"", s.name, s.is_float ? "" : ":i32", "\" ")
    end
    return String(take!(io))
end

# The size that dimension i must have because a position indexes it; else its number.
function extent_word(p::Program, t::CapturedTensor, i, sizes::CSizes)
    for (position, word, size_) in (("b", "B", sizes.b), ("h", "H", sizes.h), ("q", "Sq", sizes.sq), ("k", "Skv", sizes.skv))
        size(t.array, i) == size_ || continue
        any(indexed_by(formula, t.name, i, position) for formula in (p.mod, p.mask, p.bprop)) && return word
    end
    return string(size(t.array, i))
end

indexed_by(formula, name, i, position) =
    any(m -> (words = split(m.captures[1], ','); length(words) >= i && strip(words[i]) == position),
        eachmatch(Regex("\\b" * name * "\\[([^\\[\\]()]*)\\]"), formula))
