# Everything a call can ask for beside modifiers, against the dense reference.

const Q, K, V = draw(16, 4, 10, 3), draw(16, 2, 13, 3), draw(8, 2, 13, 3)
const DO = draw(8, 4, 10, 3)
const IN64 = map(double, (Q, K, V))

function check_call(case; tolerance = 3e-6, grads = true, options...)
    o, lse = attention(Q, K, V; options..., return_lse = true)
    want, want_lse = dense_forward(case, IN64...)
    @test relative(o, want) < tolerance
    @test all(isapprox.(lse, want_lse; rtol = 1e-5, atol = 1e-5) .| (lse .== want_lse))
    @test attention(Q, K, V; options...) == o
    grads || return
    g = attention_backward(DO, o, lse, Q, K, V; options...)
    for (got, ref) in zip((g.q, g.k, g.v), dense_backward(case, double(DO), IN64...))
        @test relative(got, ref) < 10 * tolerance
    end
    return g
end

@testset "plain, scale" begin
    check_call(DenseCase())
    check_call(DenseCase(scale = 0.5); scale = 0.5)
end

@testset "causal and windows" begin
    check_call(DenseCase(mask = (b, h, q, k, c) -> q >= k); causal = true)
    check_call(DenseCase(mask = (b, h, q, k, c) -> q + 3 >= k); causal = :bottom_right)
    check_call(DenseCase(mask = (b, h, q, k, c) -> 0 <= q - k < 4); causal = true, window = 4)
    check_call(DenseCase(mask = (b, h, q, k, c) -> abs(q - k) < 3); window = 3)
    check_call(DenseCase(mask = (b, h, q, k, c) -> -1 <= q - k <= 2); window = (2, 1))
    check_call(DenseCase(mask = (b, h, q, k, c) -> k - q <= 2); window = (-1, 2))
    check_call(DenseCase(mask = (b, h, q, k, c) -> 0 <= q + 3 - k <= 2); window = (2, 0), causal = :bottom_right)
    check_call(DenseCase(mask = (b, h, q, k, c) -> q >= k && h != 1); causal = true, mask_mod = (b, h, q, k) -> h != 1)
end

@testset "lengths" begin
    ql, kl = [10, 0, 7], [13, 5, 1]
    check_call(DenseCase(q_lengths = ql, kv_lengths = kl); q_lengths = ql, kv_lengths = kl)
    check_call(DenseCase(kv_lengths = [0, 13, 2]); kv_lengths = Int32[0, 13, 2])
    # A row with nothing kept is zeros, never NaN.
    o, lse = attention(Q, K, V; kv_lengths = [0, 13, 2], return_lse = true)
    @test all(iszero, o[:, :, :, 1]) && all(==(-Inf32), lse[:, :, 1])
end

@testset "sinks" begin
    sinks = draw(4)
    g = check_call(DenseCase(sinks = double(sinks)); sinks = sinks)
    slope = map(1:4) do h
        at(e) = loss(DenseCase(sinks = double(sinks) .+ e .* (1:4 .== h)), double(DO), IN64...)
        return (at(1e-5) - at(-1e-5)) / 2e-5
    end
    @test relative(g.sinks, slope) < 1e-4
end

@testset "bias of shape $shape" for shape in ((13, 10, 4, 3), (13, 10), (13, 1, 4), (13, 1, 1, 3), (13,))
    bias = draw(shape...)
    at(x, n, i) = i > ndims(x) || size(x, i) == 1 ? 1 : n + 1
    load(x, b, h, q, k) = x[ntuple(i -> at(x, (k, q, h, b)[i], i), ndims(x))...]
    case = DenseCase(mod = (s, b, h, q, k, c) -> s + load(c.bias.array, b, h, q, k), captured = (bias = double(bias),))
    g = check_call(case; bias = bias)
    @test size(g.bias) == shape
    @test relative(g.bias, difference(case, :bias, double(DO), IN64...)) < 1e-4
end

@testset "bias and score_mod, masks as arrays" begin
    bias, mask = draw(13, 10, 4), rand(rng, Bool, 13, 10)
    mask[1, :] .= true
    case = DenseCase(mod = (s, b, h, q, k, c) -> 3tanh(s / 3) + c.bias[k, q, h], mask = (b, h, q, k, c) -> mask[k + 1, q + 1],
                     captured = (bias = double(bias),))
    check_call(case; bias = bias, mask_mod = mask, score_mod = (s, b, h, q, k) -> 3tanh(s / 3))
end

@testset "dropout" begin
    o = attention(Q, K, V; dropout = 0.4, seed = 7)
    @test o == attention(Q, K, V; dropout = 0.4, seed = 7)
    @test o != attention(Q, K, V; dropout = 0.4, seed = 8)
    @test o != attention(Q, K, V; dropout = 0.4, seed = 7, offset = 1)
    # The mean over seeds is the output without dropout, and the backward drops the same scores as the forward.
    mean = sum(attention(Q, K, V; dropout = 0.4, seed = s) for s in 1:400) ./ 400
    @test relative(mean, dense_forward(DenseCase(), IN64...)[1]) < 0.15
    o, lse = attention(Q, K, V; dropout = 0.4, seed = 7, return_lse = true)
    g = attention_backward(DO, o, lse, Q, K, V; dropout = 0.4, seed = 7)
    e = 1.0f-2 .* draw(size(V)...)
    up, down = attention(Q, K, V .+ e; dropout = 0.4, seed = 7), attention(Q, K, V .- e; dropout = 0.4, seed = 7)
    @test sum(DO .* (up .- down)) / 2 ≈ sum(g.v .* e) rtol = 1e-3
end

@testset "offsets, deterministic, engines" begin
    shifted = attention(Q, K, V; mask_mod = (b, h, q, k) -> q >= k, q_offset = 3)
    @test shifted == attention(Q, K, V; causal = :bottom_right)
    builds, kept = Fovea.cache_statistics().builds, length(Fovea.PLANS)
    attention(Q, K, V; mask_mod = (b, h, q, k) -> q >= k, q_offset = 4)
    @test (builds, kept) == (Fovea.cache_statistics().builds, length(Fovea.PLANS))
    @test attention(Q, K, V; kv_lengths = 11:13) == attention(Q, K, V; kv_lengths = [11, 12, 13])
    @test attention(Q, K, V; deterministic = true) == attention(Q, K, V; deterministic = true)
    @test relative(attention(Q, K, V; engine = "reference"), double(attention(Q, K, V; engine = "cpu"))) < 3e-6
    o64, lse64 = attention(IN64...; engine = "reference", return_lse = true)
    @test relative(o64, dense_forward(DenseCase(), IN64...)[1]) < 1e-12 && eltype(lse64) == Float64
end

@testset "Float64: numbers are not rounded to Float32" begin
    reference = (engine = "reference", return_lse = true)
    dO = double(DO)
    slopes = randn(rng, 4)
    # Numbers that no Float32 equals: in the code, captured, in arrays, as scale; 0.1f0 is the number that Julia has there.
    mod = (s, b, h, q, k, c) -> 0.044715 * s^3 + c.gain * s + c.slopes[h] * (k - q) / 3.0 + 0.1f0 * s
    captured = (slopes = slopes, gain = 1 / 7)
    case = DenseCase(mod = mod, captured = captured, scale = 1 / sqrt(11))
    o, lse = attention(IN64...; score_mod = mod, captured..., scale = 1 / sqrt(11), reference...)
    want_o, want_lse = dense_forward(case, IN64...)
    @test relative(o, want_o) < 1e-13 && relative(lse, want_lse) < 1e-13
    g = attention_backward(dO, o, lse, IN64...; score_mod = mod, captured..., scale = 1 / sqrt(11), engine = "reference")
    @test typeof(g.gain) == Float64 && eltype(g.slopes) == Float64
    for (got, want) in zip((g.q, g.k, g.v), dense_backward(case, dO, IN64...))
        @test relative(got, want) < 1e-9
    end
    @test relative(g.slopes, difference(case, :slopes, dO, IN64...)) < 1e-8
    by_gain = difference(case, :gain, dO, IN64...)
    @test abs(g.gain - by_gain) < 1e-8 * max(1, abs(by_gain))  # its terms may cancel
    bias = randn(rng, size(K, 3), size(Q, 3))
    biased = DenseCase(mod = (s, b, h, q, k, c) -> s + c.x[k, q], captured = (x = bias,))
    @test relative(attention(IN64...; bias = bias, engine = "reference"), dense_forward(biased, IN64...)[1]) < 1e-13
    # The same functions with Float32 arrays: their numbers are Float32, as before.
    @test Fovea.formula((s, b, h, q, k) -> 0.1 * s) == "0.1 * score" == Fovea.formula((s, b, h, q, k) -> 0.1f0 * s)
    single = attention(Q, K, V; score_mod = mod, slopes = Float32.(slopes), gain = 1 / 7, scale = 1 / sqrt(11))
    @test relative(single, want_o) < 1e-5
    @test_throws_text "Float32.(slopes)" attention(Q, K, V; score_mod = mod, captured...)
    @test_throws_text "bias has elements of type Float64" attention(Q, K, V; bias = bias)
end

@testset "gradient of lse" begin
    o, lse = attention(Q, K, V; return_lse = true)
    g = attention_backward(zero(o), o, lse, Q, K, V; grad_lse = one.(lse))
    e = 1e-6
    direction = double(draw(size(Q)...))
    total(q) = sum(dense_forward(DenseCase(), q, IN64[2], IN64[3])[2])
    @test sum(double(g.q) .* direction) ≈ (total(IN64[1] .+ e .* direction) - total(IN64[1] .- e .* direction)) / 2e rtol = 1e-4
end

@testset "in place" begin
    o, lse = zeros(Float32, 8, 4, 10, 3), zeros(Float32, 10, 4, 3)
    @test attention!(o, Q, K, V; causal = true, lse = lse) === o
    @test (o, lse) == attention(Q, K, V; causal = true, return_lse = true)
    slopes, c = draw(4), 2.0f0
    mod = (s, b, h, q, k, x) -> x.c * s + x.slopes[h] * k
    o, lse = attention(Q, K, V; score_mod = mod, slopes = slopes, c = c, return_lse = true)
    whole = attention_backward(DO, o, lse, Q, K, V; score_mod = mod, slopes = slopes, c = c)
    given = (slopes = similar(slopes), q = fill(NaN32, size(Q)), c = fill(NaN32, 1))
    @test attention_backward!(given, DO, o, lse, Q, K, V; score_mod = mod, slopes = slopes, c = c) === given
    @test given.slopes == whole.slopes && given.q == whole.q && given.c[1] == whole.c
    some = attention_backward(DO, o, lse, Q, K, V; score_mod = mod, slopes = slopes, c = c, grads = (:v, :c))
    @test keys(some) == (:v, :c) && some.v == whole.v && some.c == whole.c
end

@testset "half precision: $T" for (T, limit) in ((Float16, 8e-4), (Fovea.BFloat16, 6e-3))
    q, k, v, dO = T.(Q), T.(K), T.(V), T.(DO)
    o, lse = attention(q, k, v; causal = true, return_lse = true)
    @test eltype(o) == T && eltype(lse) == Float32
    case = DenseCase(mask = (b, h, q, k, c) -> q >= k)
    in64 = map(x -> Float64.(Float32.(x)), (q, k, v))
    @test relative(Float32.(o), dense_forward(case, in64...)[1]) < limit
    g = attention_backward(dO, o, lse, q, k, v; causal = true)
    for (got, ref) in zip((g.q, g.k, g.v), dense_backward(case, Float64.(Float32.(dO)), in64...))
        @test eltype(got) == T && relative(Float32.(got), ref) < 3 * limit
    end
    wide = zeros(Float32, size(o))  # an output of another type
    attention!(wide, q, k, v; causal = true)
    @test relative(wide, dense_forward(case, in64...)[1]) < limit
end

@testset "bfloat16" begin
    bf(x) = Float32(Fovea.BFloat16(x))
    @test bf(1.0) == 1 && bf(-0.15625) == -0.15625 && isnan(bf(NaN)) && bf(Inf) == Inf && bf(1.00390625f0) == 1 && bf(1.01171875f0) == 1.015625f0
    @test Fovea.BFloat16[1, 2.5] == [1, 2.5] && Float32.(Fovea.BFloat16.([3, 4])) == [3, 4]
    # BFloat16s.jl's, known by its name.
    others = Module()
    Core.eval(others, :(primitive type BFloat16 <: AbstractFloat 16 end))
    @test Fovea.dtype(others.BFloat16) == Fovea.BF16
end

@testset "empty arrays" begin
    @test size(attention(Q[:, :, 1:0, :], K, V)) == (8, 4, 0, 3)
    @test all(iszero, attention(Q, K[:, :, 1:0, :], V[:, :, 1:0, :]))
end

@testset "names of others" begin
    @test cudnnSDPAForward(Q, K, K; causal = true) == attention(Q, K, K; causal = true)
    o, lse = attention(Q, K, V; return_lse = true)
    g = attention_backward(DO, o, lse, Q, K, V)
    @test cudnnSDPABackward(DO, Q, K, V, o) == (g.q, g.k, g.v) == cudnnSDPABackward(DO, Q, K, V, o; stats = lse)
    @test cudnnSDPAForward!(similar(o), Q, K, V) == o
    x, y = draw(64, 7, 2), draw(32, 7, 2)
    causal = [i <= j for i in 1:7, j in 1:7]  # as NNlib's make_causal_mask
    split(x) = reshape(x, :, 4, 7, 2)
    @test Fovea.dot_product_attention(x, x, y; nheads = 4, mask = causal) ==
          reshape(attention(split(x), split(x), split(y); mask_mod = causal), 32, 7, 2)
    bias = draw(7, 7)
    @test Fovea.dot_product_attention(x[:, :, 1], x[:, :, 1], y[:, :, 1], bias; nheads = 4) ==
          Fovea.dot_product_attention(x, x, y, bias; nheads = 4)[:, :, 1]
end
