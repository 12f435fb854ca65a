# What a traced call asks for, and the program that follows from it. A Request has everything that a program can depend
# on and nothing of the caller's (no array, no function), so equal Requests have equal programs whatever happened between
# them, and texts are made once for each.

struct Request
    nodes::Vector{Node}         # of all modifiers
    roots::NTuple{3,Int32}      # of score_mod, mask_mod, bprop; 0 where it is no function
    texts::NTuple{3,String}     # "" where it is no text
    arrays::Vector{ArrayFacts}  # by slot: those of keywords, those met in traces, bias, mask
    given::Vector{GivenFacts}
    bias::Int                   # its slot, or 0
    mask::Int
    firsts::Tuple{Symbol,Symbol}  # what takes the offset of q and of k from them, for bias and mask; :none
    causal::Symbol
    window::Tuple{Int,Int}
    sizes::CSizes
    unused_allowed::Bool
end

Base.:(==)(a::Request, b::Request) =
    a.roots === b.roots && a.sizes === b.sizes && a.causal === b.causal && a.window === b.window && a.bias == b.bias &&
    a.mask == b.mask && a.firsts === b.firsts && a.unused_allowed == b.unused_allowed && same(a.nodes, b.nodes) && same(a.arrays, b.arrays) &&
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
