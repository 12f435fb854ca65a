# The names that users of NNlib and of CUDA.jl's cuDNN know.

"""
    Fovea.dot_product_attention(query, key, value, bias = nothing; nheads = 1, mask = nothing, fdrop = nothing, options...)

NNlib's function of this name, fused: `query` is `(features, seq, batch...)`, `bias` and `mask` broadcast to
`(keys, queries, heads, batch)`. It returns the output alone: the attention scores, which NNlib returns beside it, never
exist. Instead of a dropout layer `fdrop` there are `dropout` and `seed`; all options of [`attention`](@ref) are taken, and
with `return_lse = true` it returns `(o, lse)`, `lse` of size `(queries, heads, batch...)`.

```jldoctest
julia> q, k, v = rand(Float32, 8, 5, 3), rand(Float32, 8, 7, 3), rand(Float32, 12, 7, 3);

julia> size(Fovea.dot_product_attention(q, k, v; nheads = 2))
(12, 5, 3)
```
"""
function dot_product_attention(query, key, value, bias = nothing; nheads::Integer = 1, mask = nothing, fdrop = nothing, options...)
    nheads > 0 || refuse("nheads = $nheads: 1 or more")
    fdrop === nothing || fdrop === identity ||
        refuse("fdrop = $fdrop: a dropout layer needs the scores, which a fused attention never has; use dropout and seed")
    for (name, x) in (("query", query), ("key", key), ("value", value))
        ndims(x) >= 2 || refuse("$name has size $(size(x)), but takes (features, seq, batch...)")
        size(x, 1) % nheads == 0 || throw(DimensionMismatch("$name has $(size(x, 1)) features, which $nheads heads do not divide"))
    end
    q, k, v = map(x -> split_heads(x, nheads), (query, key, value))
    captured = bias === nothing ? NamedTuple() : (bias = bias,)
    o = mask === nothing ? attention(q, k, v, captured; options...) :
        attention(q, k, v, captured; mask_mod = mask, options...)
    joined(o) = reshape(o, size(value, 1), size(query, 2), size(query)[3:end]...)
    o isa Tuple || return joined(o)
    return joined(o[1]), reshape(o[2], size(query, 2), Int(nheads), size(query)[3:end]...)
end

split_heads(x, nheads) = reshape(x, size(x, 1) ÷ nheads, Int(nheads), size(x, 2), prod(size(x)[3:end]))

"""
    cudnnSDPAForward(q, k, v; options...)

[`attention`](@ref), under the name in CUDA.jl's cuDNN.
"""
cudnnSDPAForward(q, k, v; options...) = attention(q, k, v; options...)

"""
    cudnnSDPAForward!(out, q, k, v; options...)

[`attention!`](@ref), under the name in CUDA.jl's cuDNN.
"""
cudnnSDPAForward!(out, q, k, v; options...) = attention!(out, q, k, v; options...)

"""
    cudnnSDPABackward(dout, q, k, v, out; stats = nothing, options...)

The gradients `(dq, dk, dv)`, under the name in CUDA.jl's cuDNN. `stats` is the `lse` of the forward; without it the
forward runs once more. [`attention_backward`](@ref) has the gradients of what is captured, too.

```jldoctest
julia> q = rand(Float32, 8, 2, 4, 1); out = cudnnSDPAForward(q, q, q; causal = true);

julia> size.(cudnnSDPABackward(out, q, q, q, out; causal = true)) == (size(q), size(q), size(q))
true
```
"""
function cudnnSDPABackward(dout, q, k, v, out; stats = nothing, options...)
    stats === nothing && ((_, stats) = attention(q, k, v; return_lse = true, options...))
    gradients = attention_backward(dout, out, stats, q, k, v; grads = (:q, :k, :v), options...)
    return gradients.q, gradients.k, gradients.v
end
