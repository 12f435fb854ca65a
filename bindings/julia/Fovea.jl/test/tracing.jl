# What tracing makes of Julia's operators, and what it refuses.

f(g; options...) = Fovea.formula(g; options...)

function helper(x)
    y = x * x
    return y + y
end

@testset "more of Base" begin
    near(x, y) = isapprox(Float32(x), y; rtol = 1e-5)
    q = reshape(Float32[-2.0, 0.5, 3.0], 1, 1, 3, 1)
    one_key = ones(Float32, 1, 1, 1, 1)
    for (f, g) in ((sinh, sinh), (cosh, cosh), (x -> cbrt(x + 4), x -> cbrt(x + 4)), (x -> hypot(x, 2), x -> hypot(x, 2)),
                   (x -> copysign(1.5, x), x -> copysign(1.5, x)))
        # With one key the logarithm of the sum is the score itself.
        _, lse = attention(q, one_key, one_key; scale = 1, score_mod = (s, b, h, q, k) -> f(s), return_lse = true)
        @test all(near.(vec(lse), g.(vec(q))))
    end
end

@testset "formulas" begin
    @test f((s, b, h, q, k) -> -s + 2s / 3 - 1) == "-score + 2 * score / 3 - 1"
    @test f((s, b, h, q, k) -> s - (1 - s)) == "score - (1 - score)"
    @test f((s, b, h, q, k) -> (s + 1) * (s - 0.5f0)) == "(score + 1) * (score - 0.5)"
    @test f((s, b, h, q, k) -> s * -2) == "score * -2"
    @test f((s, b, h, q, k) -> helper(s)) == "let t0 = score * score; t0 + t0"
    @test f((s, b, h, q, k) -> s + 1e-30 + π) == "score + 1.0e-30 + 3.1415927"
    @test f((s, b, h, q, k) -> s + (q ÷ 3) + mod(q, 3) + q % 5) == "score + div(q, 3) + q % 3 + rem(q, 5)"
    @test f((s, b, h, q, k) -> s^2 + q^2 + s^0.5) == "pow(score, 2) + q * q + pow(score, 0.5)"
    @test f((s, b, h, q, k) -> clamp(s, -1, 1) + max(s, 0) + min(q, k)) == "clamp(score, -1, 1) + max(score, 0) + min(q, k)"
    @test f((s, b, h, q, k) -> ifelse((q > k) & !(h == 2), s, zero(s))) == "select(q > k && !(h == 2), score, 0.0)"
    @test f((s, b, h, q, k) -> round(s) + trunc(Int, s) + Float32(q) + floor(Int, s)) ==
          "round(score) + i32(score) + f32(q) + i32(floor(score))"
    @test f((s, b, h, q, k) -> 5.0) == "5.0"
    @test f((s, b, h, q, k) -> s + (q > k)) == "score + i32(q > k)"
    @test f((s, b, h, q, k) -> s * NaN32 + Inf) == "score * nan + inf"
    @test f((b, h, q, k) -> true; mask = true) == "true"
    @test f((b, h, q, k) -> (q >= k) | ((k < 2) ⊻ (b == 0)); mask = true) == "q >= k || k < 2 != (b == 0)"
    @test f((b, h, q, k) -> iseven(q) & isnan(1.0 * q); mask = true) == "let t0 = 1.0 * q; q % 2 == 0 && t0 != t0"
    @test f((b, h, q, k) -> q >= k; mask = true, one_based = true) == "q + 1 >= k + 1"
    @test f((s, b, h, q, k, c) -> s + c.Skv) == "score + Skv"
    # Sharing keeps a text short: 2^30 uses of one value.
    @test length(f((s, b, h, q, k) -> foldl((x, _) -> x + x, 1:30; init = s))) < 1000
    # Depth is cut before the parser's limit.
    q = draw(4, 1, 3, 1)
    deep = (s, b, h, q, k) -> foldl((x, _) -> tanh(x) + 1, 1:300; init = s)
    @test size(attention(q, q, q; score_mod = deep)) == size(q)
end

@testset "refused formulas" begin
    refuses(part, g; options...) = @test_throws_text part Fovea.formula(g; options...)
    refuses("ifelse(c, x, y)", (s, b, h, q, k) -> q > k ? s : -s)
    refuses("`&` and `|`", (b, h, q, k) -> q > k && h == 1; mask = true)
    refuses("(a < b) & (b < c)", (b, h, q, k) -> 0 < q < 5; mask = true)
    refuses("no such method", (s, q) -> s)
    refuses("not a condition", (b, h, q, k) -> q - k; mask = true)
    refuses("not a number", (s, b, h, q, k) -> "score")
    refuses("it takes integers", (s, b, h, q, k) -> mod(s, 3))
    refuses("two conditions or two integers", (b, h, q, k) -> (q > k) & q; mask = true)
    refuses("does not fit Int32", (s, b, h, q, k) -> s + 2^40)
    refuses("does not fit Float32", (s, b, h, q, k) -> s + 1e300)
    refuses("Float32.(captured)", (s, b, h, q, k) -> s + [1.0, 2.0][h])
    refuses("is indexed by 1", (s, b, h, q, k) -> s + zeros(Float32, 2, 2)[h])
    refuses("floor(Int, x)", (s, b, h, q, k) -> s + Float32[1, 2][h / 2])
end

@testset "one_based" begin
    q, k, v = draw(8, 2, 5, 2), draw(8, 2, 5, 2), draw(8, 2, 5, 2)
    slopes, table = draw(2), draw(5, 2)
    zero_based = (s, b, h, q, k) -> s + slopes[h] * (k - q) + table[k, 1]
    one_based = (s, b, h, q, k) -> s + slopes[h] * (k - q) + table[k, 2]
    @test attention(q, k, v; score_mod = zero_based) == attention(q, k, v; score_mod = one_based, one_based = true)
    @test attention(q, k, v; mask_mod = (b, h, q, k) -> q >= 3) != attention(q, k, v; mask_mod = (b, h, q, k) -> q >= 3, one_based = true)
end

@testset "captured things" begin
    q = draw(8, 2, 5, 1)
    make(slopes, cap) = (s, b, h, q, k) -> cap * tanh(s / cap) + slopes[h] * (k - q)
    a = make(draw(2), 3.0f0)  # a power of two would be another formula: it divides exactly, by a product
    # Names: a closure's, a global's, and one that the language has itself.
    o, lse = attention(q, q, q; score_mod = a, return_lse = true)
    @test keys(attention_backward(o, o, lse, q, q, q; score_mod = a)) == (:q, :k, :v, :slopes)
    let h = draw(2), α = draw(2)
        g = attention_backward(o, o, lse, q, q, q; score_mod = (s, b, head, q, k) -> s + h[head] + α[head])
        @test Set(keys(g)) == Set((:q, :k, :v, :h, :α))
    end
    # Two closures that capture different arrays under one name.
    named(w) = (s, b, h, q, k) -> s + w[h]
    masked(w) = (b, h, q, k) -> w[h] < 100
    g = attention_backward(o, o, lse, q, q, q; score_mod = named(draw(2)), mask_mod = masked(draw(2)))
    @test keys(g) == (:q, :k, :v, :w, :w_2) && g.w_2 == zeros(2)
    @test_throws_text "no name of the formula language" attention(q, q, q; score_mod = (s, b, h, q, k, c) -> c.α * s, α = 2.0f0)
    # Unused, but asked for: zeros.
    o, lse = attention(q, q, q, (w = draw(3), c = 1.0f0); return_lse = true)
    g = attention_backward(o, o, lse, q, q, q, (w = draw(3), c = 1.0f0))
    @test g.w == zeros(3) && g.c == 0
    # One plan for other numbers, data and lengths.
    attention(q, q, q; score_mod = a)
    builds = Fovea.cache_statistics().builds
    attention(q, q, q; score_mod = make(draw(2), 7.0f0))
    @test Fovea.cache_statistics().builds == builds
end
