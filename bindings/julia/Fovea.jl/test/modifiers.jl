# Modifiers that people use, each against the dense reference: output, lse, gradients of q, k, v, and finite differences
# for everything captured.

using Fovea: select, sigmoid, softplus

const B, H, HKV, SQ, SKV, D, DV = 2, 4, 2, 9, 11, 8, 12

# name => (mod, mask, captured)
const MODIFIERS = [
    "softcap" => ((s, b, h, q, k, c) -> c.cap * tanh(s / c.cap), nothing, (cap = 3.0f0,)),
    "alibi slopes" => ((s, b, h, q, k, c) -> s + c.slopes[h] * (k - q), nothing, (slopes = abs.(draw(H)) ./ 4,)),
    "alibi by formula" => ((s, b, h, q, k, c) -> s + exp2(-8 * (h + 1) / c.H) * (k - q), nothing, NamedTuple()),
    "causal" => (nothing, (b, h, q, k, c) -> q >= k, NamedTuple()),
    "sliding window" => (nothing, (b, h, q, k, c) -> (q >= k) & (q - k < 4), NamedTuple()),
    "prefix" => (nothing, (b, h, q, k, c) -> (k < c.n) | (q >= k), (n = 3,)),
    "documents" => (nothing, (b, h, q, k, c) -> c.doc[q, b] == c.doc[k, b], (doc = Int32[(i * (b + 1)) ÷ 5 for i in 1:SKV, b in 1:B],)),
    "learned bias" => ((s, b, h, q, k, c) -> s + c.bias2[k, q, h], nothing, (bias2 = draw(SKV, SQ, H),)),
    "relative table" => ((s, b, h, q, k, c) -> s + c.table[clamp(k - q + 5, 0, 10), h], nothing, (table = draw(11, H),)),
    "relative table, per batch and integer first" =>
        ((s, b, h, q, k, c) -> s + c.tables[1, b, min(abs(k - q), 6)], nothing, (tables = draw(2, B, 7),)),
    "temperature per head" => ((s, b, h, q, k, c) -> s * exp(c.logt[h]), nothing, (logt = draw(H) ./ 4,)),
    "temperature per position" => ((s, b, h, q, k, c) -> s * log2(Float32(k + 2)) * c.t, nothing, (t = 0.5f0,)),
    "gate by sigmoid" => ((s, b, h, q, k, c) -> s * sigmoid(c.gate[q]) + softplus(s), nothing, (gate = draw(SQ),)),
    "squared" => ((s, b, h, q, k, c) -> s^2 / (1 + abs(s)) + inv(1 + s^2), nothing, NamedTuple()),
    "polynomial with powers" => ((s, b, h, q, k, c) -> c.a * s^3 - muladd(c.a, s, 0.5), nothing, (a = 0.25f0,)),
    "block local" => (nothing, (b, h, q, k, c) -> fld(q, 4) == fld(k, 4), NamedTuple()),
    "dilated" => (nothing, (b, h, q, k, c) -> mod(q - k, 3) == 0, NamedTuple()),
    "strided by div and rem" => (nothing, (b, h, q, k, c) -> (div(q, 3) >= div(k, 3)) & (rem(q + k, 2) == 0), NamedTuple()),
    "bits" => (nothing, (b, h, q, k, c) -> xor(isodd(q), (k & 3) == 1) | ((q >> 1) == (k << 1)), NamedTuple()),
    "choice" => ((s, b, h, q, k, c) -> ifelse(k > q, s - c.penalty, s), nothing, (penalty = 0.75f0,)),
    "choice of -Inf" => ((s, b, h, q, k, c) -> ifelse(q >= k, s, -Inf), nothing, NamedTuple()),
    "condition times number" => ((s, b, h, q, k, c) -> s + (q > k) * c.step - (h == 1), nothing, (step = 0.5f0,)),
    "head dependent mask" => (nothing, (b, h, q, k, c) -> (h < 2) | (abs(q - k) <= 2), NamedTuple()),
    "key mask" => (nothing, (b, h, q, k, c) -> c.seen[k, b] & !(q == 3), (seen = [rand(rng) < 0.7 || k == 1 for k in 1:SKV, b in 1:B],)),
    "min, max, round" => ((s, b, h, q, k, c) -> max(min(s, c.top), -1.5) + round(k / 4) - floor(Int, q / 3), nothing, (top = 1.0f0,)),
    "cosine of distance" => ((s, b, h, q, k, c) -> s + c.amp * cos(c.freq[h] * (q - k)) + sin(s), nothing, (amp = 0.5f0, freq = abs.(draw(H)))),
    "everything" => ((s, b, h, q, k, c) -> c.cap * tanh((s + c.slopes[h] * (k - q)) / c.cap) + c.table[mod(k - q, 5)],
                     (b, h, q, k, c) -> (q + 2 >= k) & (c.doc[q, b] == c.doc[k, b]),
                     (cap = 5.0f0, slopes = draw(H) ./ 4, table = draw(5), doc = Int64[(i + b) ÷ 6 for i in 1:SKV, b in 1:B])),
]

function check_modifier(@nospecialize(mod), @nospecialize(mask), @nospecialize(captured))
    q, k, v = draw(D, H, SQ, B), draw(D, HKV, SKV, B), draw(DV, HKV, SKV, B)
    dO = draw(DV, H, SQ, B)
    options = (; (name => f for (name, f) in ((:score_mod, mod), (:mask_mod, mask)) if f !== nothing)...)
    case = DenseCase(; mod = mod, mask = mask, captured = map(double, captured))
    Q, K, V, DO = map(double, (q, k, v, dO))

    o, lse = attention(q, k, v; options..., captured..., return_lse = true)
    want, want_lse = dense_forward(case, Q, K, V)
    @test relative(o, want) < 3e-6
    @test all(isapprox.(lse, want_lse; rtol = 1e-5, atol = 1e-5))

    g = attention_backward(dO, o, lse, q, k, v; options..., captured...)
    for (got, ref) in zip((g.q, g.k, g.v), dense_backward(case, DO, Q, K, V))
        @test relative(got, ref) < 2e-5
    end
    for name in keys(captured)
        is_float = captured[name] isa AbstractFloat || captured[name] isa AbstractArray{<:AbstractFloat}
        @test haskey(g, name) == is_float
        is_float && @test relative(g[name], difference(case, name, DO, Q, K, V)) < 1e-3
    end
    # The same through the positional form, bit by bit.
    o2 = attention(q, k, v, captured; options...)
    @test o2 == o
end

@testset "modifiers: $name" for (name, (mod, mask, captured)) in MODIFIERS
    check_modifier(mod, mask, captured)
end

@testset "modifiers as texts" begin
    q, k, v = draw(D, H, SQ, B), draw(D, H, SQ, B), draw(D, H, SQ, B)
    slopes = abs.(draw(H))
    @test attention(q, k, v; score_mod = "score + slopes[h] * (k - q)", slopes = slopes) ==
          attention(q, k, v; score_mod = (s, b, h, q, k) -> s + slopes[h] * (k - q))
    @test attention(q, k, v; mask_mod = "causal", score_mod = "softcap(20)") ==
          attention(q, k, v; causal = true, score_mod = (s, b, h, q, k) -> 20 * tanh(s / 20))
    # Indices of a text stand in the order of the array's dimensions.
    table = draw(SQ, H)
    @test attention(q, k, v; score_mod = "score + table[k, h]", table = table) ==
          attention(q, k, v; score_mod = (s, b, h, q, k) -> s + table[k, h])
    o, lse = attention(q, k, v; score_mod = "score * score", return_lse = true)
    byhand = attention_backward(o, o, lse, q, k, v; score_mod = "score * score", bprop = "grad * 2 * score")
    derived = attention_backward(o, o, lse, q, k, v; score_mod = "score * score")
    traced = attention_backward(o, o, lse, q, k, v; score_mod = (s, b, h, q, k) -> s * s, bprop = (g, s, b, h, q, k) -> 2g * s)
    @test relative(byhand.q, double(derived.q)) < 1e-5 && relative(traced.k, double(derived.k)) < 1e-5
end
