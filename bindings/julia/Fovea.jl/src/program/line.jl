# The line that libfovea reads.

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
