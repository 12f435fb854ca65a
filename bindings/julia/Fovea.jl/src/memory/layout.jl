# Where the elements of an array are: the address of the first, and strides in elements. Worked out type by type from the array
# that owns the memory; an unknown wrapper is refused, so that nothing is ever read by wrong strides.

"""
An array that Fovea cannot read where it lies. `Fovea.attention_supported` answers `false` for it.
"""
struct UnreadableArray <: Exception
    message::String
end
Base.showerror(io::IO, e::UnreadableArray) = print(io, "Fovea: ", e.message)

# Where an array begins, as an offset in elements from the first of `owner`.
struct Layout{N}
    first::Int
    strides::NTuple{N,Int}
end

# The array that owns the memory of x.
owner(x::DenseArray) = x
owner(x::SubArray) = owner(parent(x))
owner(x::PermutedDimsArray) = owner(parent(x))
owner(x::Base.ReshapedArray) = owner(parent(x))
owner(x::LinearAlgebra.Transpose) = owner(parent(x))
owner(x::LinearAlgebra.Adjoint{<:Real}) = owner(parent(x))
owner(x::AbstractArray) = x

dense_strides(size::NTuple{N,Int}) where {N} = ntuple(i -> prod(ntuple(j -> size[j], i - 1)), Val(N))
dense_strides(size::NTuple{4,Int}) = (1, size[1], size[1] * size[2], size[1] * size[2] * size[3])

layout(x::DenseArray) = Layout(0, dense_strides(size(x)))

function layout(x::PermutedDimsArray{T,N,perm}) where {T,N,perm}
    inner = layout(parent(x))
    return Layout(inner.first, ntuple(i -> inner.strides[perm[i]], Val(N)))
end

function layout(x::Union{LinearAlgebra.Transpose{T,<:AbstractMatrix},LinearAlgebra.Adjoint{T,<:AbstractMatrix}}) where {T<:Real}
    inner = layout(parent(x))
    return Layout(inner.first, (inner.strides[2], inner.strides[1]))
end

function layout(x::Base.ReshapedArray{T,N}) where {T,N}
    inner = layout(parent(x))
    strides = reshaped_strides(size(parent(x)), inner.strides, size(x))
    strides === nothing &&
        throw(UnreadableArray("$(summary(x)) reshapes a view across its gaps, which has no strides; copy it first"))
    return Layout(inner.first, NTuple{N,Int}(strides))
end

# Strides of the same memory under another size, or nothing: both sizes are walked together, in groups of dimensions with
# as many elements, and the old ones of a group must lie behind one another.
function reshaped_strides(old, strides, new)
    prod(new) == 0 && return collect(Int, dense_strides(new))
    kept = [i for i in eachindex(old) if old[i] != 1]
    result = zeros(Int, length(new))
    at, next = 1, 1  # of `kept` and of `new`
    while next <= length(new)
        if at > length(kept)  # only ones are left
            result[next], next = 1, next + 1
            continue
        end
        first, count, filled, step = at, old[kept[at]], 1, strides[kept[at]]
        while next <= length(new) && filled < count
            result[next] = step * filled
            filled *= new[next]
            next += 1
            while filled > count && at < length(kept)
                at += 1
                strides[kept[at]] == strides[kept[at - 1]] * old[kept[at - 1]] || return nothing
                count *= old[kept[at]]
            end
        end
        filled == count || return nothing
        at += 1
    end
    return result
end

const StridedIndex = Union{Integer,AbstractRange{<:Integer},Base.Slice}

function layout(x::SubArray{T,N,P,I}) where {T,N,P,I<:Tuple{Vararg{StridedIndex}}}
    inner = layout(parent(x))
    return sub_layout(inner.first, inner.strides, parentindices(x), Val(N))
end

function sub_layout(start, strides, indices, ::Val{N}) where {N}
    skipped = map((index, stride) -> (first(index) - 1) * stride, indices, strides)
    start = foldl(+, skipped; init = start)
    return Layout(start, kept_strides(indices, strides)::NTuple{N,Int})
end
kept_strides(::Tuple{}, ::Tuple) = ()
kept_strides(indices::Tuple, strides::Tuple) =
    (kept(indices[1], strides[1])..., kept_strides(Base.tail(indices), Base.tail(strides))...)
kept(::Integer, stride) = ()
kept(index, stride) = (step(index) * stride,)
kept(::Base.Slice, stride) = (stride,)

check_strides(name, strides) = all(>=(0), strides) ||
    throw(UnreadableArray("$name has strides $strides: a view that runs backwards can't be read; copy it first"))

layout(x::AbstractArray) = throw(UnreadableArray(unreadable(x)))
layout(x::SubArray) = throw(UnreadableArray("$(summary(x)) takes elements from a list of indices, so it has no strides; copy it first"))

function unreadable(x)
    kind = nameof(typeof(x))
    x isa BitArray && return "$(summary(x)) packs its elements into bits; give Array{Bool}(x)"
    return "$(summary(x)) can't be read where it lies. Fovea reads Array, views of it, and CuArray once CUDA.jl is " *
           "loaded; convert it with Array(x) ($kind is not known)"
end

# ---- the order in which a formula indexes a captured array ----

# Languages with row-major arrays, libfovea's among them, want the fastest index last. An Array is one of those with its
# dimensions reversed, and so is its gradient: A[i, j, k] is read as A[k, j, i].
const Order = NTuple{8,Int8}
const JULIA_ORDER = Order(1:8)
reversed_order(rank) = ntuple(i -> (i <= rank ? rank + 1 - i : i) % Int8, Val(8))

# By dimension of the formula; "" if the fastest comes last without gaps. Dimensions of one are left out of the question.
strides_text(x::DenseArray, order::Order) = ndims(x) <= 1 || order[1] != 1 ? "" : given_strides(x, order)
strides_text(x::AbstractArray, order::Order) = given_strides(x, order)

function given_strides(x::AbstractArray{T,N}, order::Order) where {T,N}
    sizes, strides = in_order(size(x), order), in_order(layout(x).strides, order)
    dense = 1
    for i in N:-1:1
        sizes[i] <= 1 || strides[i] == dense || return join(strides[1:N], ",")
        dense *= sizes[i]
    end
    return ""
end

in_order(x::NTuple{N,Int}, order::Order) where {N} = ntuple(i -> i <= N ? x[order[i]] : 0, Val(8))
filled8(x::NTuple{N,Int}) where {N} = ntuple(i -> i <= N ? x[i] : 0, Val(8))
