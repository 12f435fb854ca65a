# Strided arrays are read in place, and correctly; arrays without strides are refused.

const BASE = draw(16, 6, 20, 4)
const DENSE = copy(view(BASE, 1:8, 2:5, 3:12, 1:2))
same(x) = attention(x, x, x; causal = true) == attention(copy(x), copy(x), copy(x); causal = true)

@testset "views" begin
    for x in (view(BASE, 1:8, 2:5, 3:12, 1:2), view(BASE, :, 1:2:5, 20 .- (19:-1:0), :), view(BASE, 2:2:16, :, 1:3:20, 2:4),
              view(BASE, :, :, 5:5, 1:1), view(view(BASE, :, 2:6, :, :), 1:8, 1:2:5, 2:9, 2:3), reshape(BASE, 8, 12, 20, 4),
              reshape(view(BASE, :, :, :, 2:3), 8, 12, 20, 2), PermutedDimsArray(draw(9, 8, 2, 3), (2, 3, 1, 4)),
              PermutedDimsArray(view(draw(9, 8, 2, 3), 2:8, :, :, 2:3), (2, 3, 1, 4)), view(draw(3, 8, 4, 10, 2), 2, :, :, :, :),
              PermutedDimsArray(draw(3, 10, 4, 8), (4, 3, 2, 1)))
        @test same(x)
        @test Fovea.layout(x).strides == strides(x)
        x isa PermutedDimsArray || @test Fovea.address(x) == Ptr{Cvoid}(pointer(x, 1))
    end
    # Not copied: bytes allocated do not grow with the array.
    big = draw(64, 8, 512, 1)
    half, o = view(big, :, 1:2:7, :, :), zeros(Float32, 64, 4, 512, 1)
    attention!(o, half, half, half)
    @test (@allocated attention!(o, half, half, half)) < sizeof(half) ÷ 10
end

@testset "reshaped views" begin
    gaps = view(BASE, :, :, 3:12, 1:2)
    for x in (reshape(gaps, 8, 12, 10, 2), reshape(gaps, 96, 1, 10, 2), reshape(gaps, 4, 24, 10, 2), reshape(view(BASE, 1:8, :, 3:12, :), 4, 2, 6, 40),
              reshape(view(BASE, 1:8, 2:3, 1:2:19, 2:2), 8, 2, 10, 1), reshape(view(BASE, :, 2, :, :), 16, 1, 20, 4))
        x isa Array || @test x isa Base.ReshapedArray
        (size(x) == (4, 2, 6, 40)) && (@test_throws_text "across its gaps" attention(x, x, x); continue)
        @test same(x)
    end
    # Features of several heads, as layers have them, of some of the tokens.
    tokens = view(draw(8, 9, 2), :, 2:6, :)
    @test Fovea.dot_product_attention(tokens, tokens, tokens; nheads = 2) ==
          Fovea.dot_product_attention(copy(tokens), copy(tokens), copy(tokens); nheads = 2)
    o, lse = Fovea.dot_product_attention(tokens, tokens, tokens; nheads = 2, return_lse = true)
    @test o == Fovea.dot_product_attention(tokens, tokens, tokens; nheads = 2) && size(lse) == (5, 2, 2)
end

@testset "an output that is an input" begin
    x = copy(DENSE)
    @test_throws_text "shares memory with q" attention!(x, x, DENSE, DENSE)
    @test_throws_text "shares memory with v" attention!(x, DENSE, DENSE, view(x, :, :, :, :))
    @test x == DENSE
end

@testset "written views" begin
    out = fill(NaN32, 16, 6, 20, 4)
    place = view(out, 1:8, 2:5, 3:12, 1:2)
    attention!(place, DENSE, DENSE, DENSE)
    @test copy(place) == attention(DENSE, DENSE, DENSE)
    @test count(isnan, out) == length(out) - length(place)
    o, lse = attention(DENSE, DENSE, DENSE; return_lse = true)
    dq = PermutedDimsArray(zeros(Float32, 10, 8, 4, 2), (2, 3, 1, 4))
    attention_backward!((q = dq,), o, o, lse, DENSE, DENSE, DENSE)
    @test dq == attention_backward(o, o, lse, DENSE, DENSE, DENSE).q
end

@testset "captured views" begin
    table = draw(12, 9)
    for x in (view(table, 2:2:9, :), transpose(table), view(table', 1:8, 3:9), PermutedDimsArray(table, (2, 1)))
        mod = (s, b, h, q, k, c) -> s + c.x[h, min(k, 6)]
        o, lse = attention(DENSE, DENSE, DENSE; score_mod = mod, x = x, return_lse = true)
        @test o == attention(DENSE, DENSE, DENSE; score_mod = mod, x = copy(x))
        g = attention_backward(o, o, lse, DENSE, DENSE, DENSE; score_mod = mod, x = x)
        @test g.x == attention_backward(o, o, lse, DENSE, DENSE, DENSE; score_mod = mod, x = copy(x)).x
    end
    scalar = fill(0.5f0)  # no dimensions
    @test attention(DENSE, DENSE, DENSE; score_mod = (s, b, h, q, k, c) -> s * c.x[], x = scalar) ==
          attention(DENSE, DENSE, DENSE; score_mod = "score * x[]", x = scalar)
end

@testset "what has no strides" begin
    for x in (view(BASE, :, [1, 3], :, :), view(BASE, 8:-1:1, :, :, :), reshape(view(BASE, 1:8, :, :, :), 16, 3, 20, 4),
              reinterpret(Float32, rand(UInt32, 8, 2, 4, 1)))
        @test_throws Fovea.UnreadableArray attention(x, x, x)
        @test !attention_supported(x, x, x)
    end
    backwards = view(draw(4), 4:-1:1)
    reads(x) = (score_mod = (s, b, h, q, k) -> s * x[h],)
    @test_throws_text "captured array 'x' has strides (-1,): a view that runs backwards" attention(DENSE, DENSE, DENSE; reads(backwards)...)
    @test !attention_supported(DENSE, DENSE, DENSE; reads(backwards)...) && attention_supported(DENSE, DENSE, DENSE; reads(copy(backwards))...)
    # Such a view works after a copy.
    @test size(attention(BASE[:, [1, 3], :, :], BASE[:, [1, 3], :, :], BASE[:, [1, 3], :, :])) == (16, 2, 20, 4)
    kept = (1:10) .<= (1:10)'  # packed into bits, as Julia does it
    @test kept isa BitArray
    for mask in (kept, view(kept, :, :), reshape(kept, 10, 10, 1))
        @test attention(DENSE, DENSE, DENSE; mask_mod = mask) == attention(DENSE, DENSE, DENSE; mask_mod = Array(mask))
    end
    @test_throws_text "Array{Bool}" attention(DENSE, DENSE, DENSE; mask_mod = (b, h, q, k) -> kept[k, q])
end
