# A soft cap and a learned distance bias under a causal mask, forward and backward.
using Fovea

q, k, v = (0.1f0 .* randn(Float32, 16, 4, 32, 1) for _ in 1:3)    # (head_dim, heads, seq, batch)
mod(score, b, h, q, k, c) = c.cap * tanh(score / c.cap) + c.slopes[h] * (k - q)
options = (score_mod = mod, causal = true, cap = 30f0, slopes = Float32[0.25, 0.0625, 0.0156, 0.0039])

o, lse = attention(q, k, v; options..., return_lse = true)
gradients = attention_backward(one.(o), o, lse, q, k, v; options...)
println(keys(gradients), " ", gradients.slopes)
