# A tour of Fovea.jl. Run it with `./dev julia examples/julia/tour.jl`, or line by line.
using Fovea

# Arrays are (head_dim, heads, seq, batch), as in NNlib, Flux and Lux. k and v may have fewer heads.
q, k, v = randn(Float32, 64, 8, 256, 2), randn(Float32, 64, 2, 256, 2), randn(Float32, 64, 2, 256, 2)
o = attention(q, k, v; causal = true)
println("attention: ", size(o))

# A soft cap: a score modifier is a function of one score and of the 0-based batch, head, query and key. It is called
# once, with symbolic values; Fovea compiles what it did.
softcap = (score, b, h, q, k) -> 20 * tanh(score / 20)
println("softcap: ", Fovea.formula(softcap))
o = attention(q, k, v; causal = true, score_mod = softcap)

# ALiBi: a modifier captures arrays as any closure does, and reads them by position.
slopes = Float32[2.0^-h for h in 1:8]
alibi = (score, b, h, q, k) -> score + slopes[h] * (k - q)
o = attention(q, k, v; causal = true, score_mod = alibi)
println("alibi: ", sum(abs, o))

# A document mask: tiles that a mask leaves empty are not computed.
document = Int32[(i - 1) ÷ 64 for i in 1:256]
o = attention(q, k, v; mask_mod = (b, h, q, k) -> (q >= k) & (document[q] == document[k]))
println("documents: ", sum(abs, o))

# A learned bias with its gradient: what is captured by name (c.table) is an input like q, and so has a gradient.
# The derivative of the formula is Fovea's work.
relative(score, b, h, q, k, c) = score + c.gain * c.table[clamp(k - q + 16, 0, 32), h]
function train(q, k, v, steps)
    table, gain, target = zeros(Float32, 33, 8), 1.0f0, randn(Float32, size(q))
    for step in 1:steps
        o, lse = attention(q, k, v; score_mod = relative, table = table, gain = gain, return_lse = true)
        step in (1, steps) && println("learned bias: loss ", sum(abs2, o - target) / length(o))
        g = attention_backward(2 .* (o - target) ./ length(o), o, lse, q, k, v; score_mod = relative, table = table, gain = gain)
        table .-= 200 .* g.table
        gain -= 200 * g.gain
    end
end
train(q, k, v, 20)

# Which engine runs a call, and why the others can't: without running it, and for GPUs that are not here.
println(explain(q, k, v; score_mod = softcap, causal = true))
println(explain(Float16.(q), Float16.(k), Float16.(v); score_mod = softcap, causal = true, device = "h200"))
println("Float64? ", attention_supported(Float64.(q), Float64.(k), Float64.(v)))
