# Arrays that stand for a formula: a bias that is added to scores, a mask of Bools. Both are (keys, queries, heads,
# batch), and a dimension that is 1 or missing holds for all.

function with_bias(trace::Trace, mod, bias, sizes::CSizes)
    bias === nothing && return mod
    is_float(dtype(eltype(bias))) || refuse("bias has elements of type $(eltype(bias)); it takes Float32, Float16 or BFloat16")
    load = broadcast_load(trace, :bias, bias, sizes)
    return isempty(mod) ? "score + $load" : "($mod) + $load"
end

function mask_array(trace::Trace, mask, sizes::CSizes)
    eltype(mask) === Bool || refuse("mask_mod is an array of $(eltype(mask)); it takes Bool, true where a score is kept")
    return broadcast_load(trace, :mask, mask, sizes)
end

function broadcast_load(trace::Trace, key, array, sizes::CSizes)
    layout(array)  # refuses here what can't be read
    ndims(array) <= 4 || throw(DimensionMismatch("$key has size $(size(array)), more than the four dimensions (keys, queries, heads, batch)"))
    full = (sizes.skv, sizes.sq, sizes.h, sizes.b)
    words = map(1:ndims(array)) do i
        size(array, i) in (1, full[i]) ||
            throw(DimensionMismatch("$key has size $(size(array)), which does not broadcast to (keys, queries, heads, batch) = $full"))
        return size(array, i) == 1 ? "0" : ("k", "q", "h", "b")[i]
    end
    pushfirst!(trace.hints, key => array)
    return string(captured_name(trace, array), "[", join(words, ", "), "]")
end
