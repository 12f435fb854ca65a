# Modifiers given without a formula: diagonals, windows, and arrays: a bias that is added to scores and a mask of Bools. Both
# are (keys, queries, heads, batch); a dimension that is 1 or missing applies to all.

function with_bias(mod, r, words::Words)
    r.bias == 0 && return mod
    load = broadcast_load(r, r.bias, "bias", words)
    return isempty(mod) ? "score + $load" : "($mod) + $load"
end

check_bias(trace::Trace, bias) = is_float(dtype(eltype(bias))) || eltype(bias) === Float64 && trace.doubles ||
    refuse("bias has elements of type $(eltype(bias)); it takes Float32, Float16 or BFloat16")

# Read where it lies, but for what `a .<= b` gives, which Julia packs into bits.
function mask_array(mask)
    eltype(mask) === Bool || refuse("mask_mod is an array of $(eltype(mask)); it takes Bool, true where a score is kept")
    return owner(mask) isa BitArray ? Array(mask) : mask
end

function broadcast_load(r, slot, name, words::Words)
    facts, full = r.arrays[slot], (r.sizes.skv, r.sizes.sq, r.sizes.h, r.sizes.b)
    size_ = facts.extent[1:facts.rank]
    facts.rank <= 4 || throw(DimensionMismatch("$name has size $size_, more than the four dimensions (keys, queries, heads, batch)"))
    indices = map(1:facts.rank) do i
        size_[i] in (1, full[i]) ||
            throw(DimensionMismatch("$name has size $size_, which does not broadcast to (keys, queries, heads, batch) = $full"))
        return size_[i] == 1 ? "0" : (row("k", r.firsts[2]), row("q", r.firsts[1]), "h", "b")[i]
    end
    order = words.orders[slot]
    return string(words.names[slot], "[", join((indices[order[i]] for i in 1:facts.rank), ", "), "]")
end

row(position, first) = first === :none ? position : "$position - $first"

# ---- masks ----

function join_masks(mask, r::Request, words::Words)
    parts = String[]
    r.mask == 0 || push!(parts, broadcast_load(r, r.mask, "mask", words))
    # A bottom-right diagonal ends at the last query and the last key.
    row = r.causal === :bottom_right ? "q + (Skv - Sq)" : "q"
    r.causal === :no || push!(parts, "$row >= k")
    before, after = r.window
    before >= 0 && push!(parts, "$row - k <= $before")
    after >= 0 && r.causal === :no && push!(parts, "k - q <= $after")
    isempty(parts) && return mask
    isempty(mask) || push!(parts, "($mask)")
    return join(parts, " && ")
end
