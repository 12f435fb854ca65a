# What is refused, with the argument, its value and the rule.

const X = draw(8, 2, 5, 1)
const O, LSE = attention(X, X, X; return_lse = true)

@testset "arrays" begin
    @test_throws_text "Float32, Float16 and BFloat16" attention(Float64.(X), Float64.(X), Float64.(X))
    @test_throws_text "Float32.(q)" attention(Float64.(X), Float64.(X), Float64.(X))
    @test_throws_text "elements of type Int64" attention(ones(Int, 8, 2, 5, 1), ones(Int, 8, 2, 5, 1), ones(Int, 8, 2, 5, 1))
    @test_throws_text "must be equal" attention(X, Float16.(X), X)
    @test_throws_text "(head_dim, heads, seq, batch)" attention(X[:, :, :, 1], X, X)
    @test_throws_text "q has size (8, 2, 5)" attention(X[:, :, :, 1], X, X)
    @test_throws_text "head_dim of q and k" attention(X, draw(4, 2, 5, 1), X)
    @test_throws_text "lengths of k and v" attention(X, X, draw(8, 2, 6, 1))
    @test_throws_text "batches" attention(X, draw(8, 2, 5, 2), X)
    @test_throws_text "multiple" attention(draw(8, 3, 5, 1), X, X)
    @test_throws_text "o has size (8, 2, 4, 1), but must have (8, 2, 5, 1)" attention!(draw(8, 2, 4, 1), X, X, X)
end

struct SkewedArray{T,N} <: AbstractArray{T,N}
    inner::Array{T,N}
end
Base.size(x::SkewedArray) = size(x.inner)
Base.getindex(x::SkewedArray, i::Int...) = x.inner[i...]

@testset "array types" begin
    @test_throws_text "CUDA.jl is loaded" attention(SkewedArray(X), X, X)
    @test_throws_text "CUDA.jl is loaded" attention(X, X, SkewedArray(X))
    @test !attention_supported(SkewedArray(X), X, X)
end

@testset "engines" begin
    @test_throws_text "works on the memory of a GPU" attention(X, X, X; engine = "cudnn")
    @test_throws_text "load CUDA.jl and give CuArrays" attention_backward(X, O, LSE, X, X, X; engine = "jit")
    @test_throws_text "engine 'cpuu' is unknown" attention(X, X, X; engine = "cpuu")
    @test !attention_supported(Float64.(X), Float64.(X), Float64.(X))
    @test attention_supported(Float64.(X), Float64.(X), Float64.(X); engine = "reference")
    @test attention_supported(X, X, X; direction = :backward, score_mod = "softcap(3)")
    @test occursin("engine   cpu", explain(X, X, X; causal = true))
    @test occursin("NVIDIA H200", explain(X, X, X; device = "h200"))
    shown = sprint(show, MIME("text/plain"), explain(X, X, X; score_mod = "softcap(3)", direction = :backward))
    @test occursin("direction=backward", shown) && occursin("verdict", shown)
end

@testset "options" begin
    @test_throws_text "did you mean 'window'" attention(X, X, X; widnow = 3)
    @test_throws_text "did you mean 'score_mod'" attention(X, X, X; scoremod = (s, b, h, q, k) -> s)
    @test_throws_text "no formula uses it" attention(X, X, X; slopes = draw(2))
    @test_throws_text "0 <= dropout < 1" attention(X, X, X; dropout = 1)
    @test_throws_text "dropout = \"half\"" attention(X, X, X; dropout = "half")
    @test_throws_text "needs a seed" attention(X, X, X; dropout = 0.1)
    @test_throws_text "needs a seed" attention_backward(X, O, LSE, X, X, X; dropout = 0.1)
    @test attention_supported(X, X, X; dropout = 0.1)
    @test_throws_text "seed = 1.5: an integer" attention(X, X, X; dropout = 0.1, seed = 1.5)
    @test_throws_text "q_offset = [1]: an integer, 0 or more" attention(X, X, X; q_offset = [1])
    @test_throws_text "k_offset = -1: an integer, 0 or more" attention(X, X, X; k_offset = -1)
    @test_throws_text "engine = 3: a name" attention(X, X, X; engine = 3)
    @test_throws_text "an integer between 0 and 5" attention(X, X, X; q_lengths = [2.5])
    # A Bool is read by functions while they are traced: whether one was is known all the same.
    @test_throws_text "'casual' is no keyword of attention, and no formula uses it; did you mean 'causal'?" attention(X, X, X; casual = true)
    flagged(s, b, h, q, k, c) = c.flag ? 2 * s : s
    @test attention(X, X, X; score_mod = flagged, flag = true) == attention(X, X, X; score_mod = "2 * score")
    @test_throws_text "did you mean 'causal'?" attention(X, X, X; score_mod = flagged, flag = true, casual = true)
    @test_throws_text "a Bool, which a text can't capture" attention(X, X, X; score_mod = "score * flag", flag = true)
    @test_throws_text "finite number other than 0" attention(X, X, X; scale = 0)
    @test_throws_text ":bottom_right" attention(X, X, X; causal = :upper)
    @test_throws_text "window = 0" attention(X, X, X; window = 0)
    @test_throws_text "kv_lengths has 2 entries for a batch of 1" attention(X, X, X; kv_lengths = [1, 2])
    @test_throws_text "kv_lengths = [6]: each must be an integer between 0 and 5" attention(X, X, X; kv_lengths = [6])
    @test_throws_text "sinks has 3 entries for 2 heads" attention(X, X, X; sinks = draw(3))
    @test_throws_text "bprop is given without score_mod" attention(X, X, X; bprop = "grad")
    @test_throws_text "does not broadcast" attention(X, X, X; bias = draw(4, 5))
    @test_throws_text "Float32, Float16 or BFloat16" attention(X, X, X; bias = ones(5, 5))
    @test_throws_text "it takes Bool" attention(X, X, X; mask_mod = draw(5, 5))
    @test_throws_text "`bias`" attention(X, X, X; score_mod = draw(5, 5))
    @test_throws_text "the gradient of q has it" attention(X, X, X; score_mod = "score * q", q = 3.0f0)
    @test_throws_text "give Float32.(slopes)" attention(X, X, X; score_mod = "score * slopes[h]", slopes = ones(2))
    @test_throws_text "unknown name 'scor'; did you mean 'score'?" attention(X, X, X; score_mod = "scor + 1")
    @test_throws_text "unknown name 'cap'; give it as a keyword of the call" attention(X, X, X; score_mod = "score * cap")
    @test_throws_text "unknown tensor 's' (give it as a keyword, s = ...)" attention(X, X, X; score_mod = "score + s[h]")
    @test_throws_text "must cover" attention(X, X, X; score_mod = "score + t[k]", t = draw(3))
    @test_throws_text "captured and given as a keyword" attention(X, X, X, (bias = draw(5),); bias = draw(5))
    @test_throws_text "nheads = 0" Fovea.dot_product_attention(draw(4, 3), draw(4, 3), draw(4, 3); nheads = 0)
    @test_throws_text "use dropout and seed" Fovea.dot_product_attention(draw(4, 3), draw(4, 3), draw(4, 3); fdrop = x -> x)
end

@testset "functions that formulas do not have" begin
    refused(text, f) = @test_throws_text text attention(X, X, X; score_mod = (s, b, h, q, k) -> f(s, h))
    refused("formulas have no atan", (s, h) -> atan(s))
    refused("score_mod uses exponent of a symbolic value, which formulas do not have", (s, h) -> exponent(s))
    refused("score_mod uses a symbolic value where Julia needs a", (s, h) -> s * (1.0f0, 2.0f0)[h])
    refused("of a symbolic value, which formulas do not have; ?Fovea.Sym", (s, h) -> s * Dict(0 => 1.0f0)[h])
end

@testset "backward" begin
    @test keys(attention_backward(X, O, LSE, X, X, X; grads = :k)) == (:k,)
    @test_throws_text "return_lse = true" attention_backward(X, O, nothing, X, X, X)
    @test_throws_text "lse has size" attention_backward(X, O, draw(5, 1, 2), X, X, X)
    @test_throws_text "there are gradients of q, k, v" attention_backward(X, O, LSE, X, X, X; grads = (:slopes,))
    @test_throws_text "no gradient is asked for" attention_backward!(NamedTuple(), X, O, LSE, X, X, X)
    @test_throws_text "the gradient of q has size" attention_backward!((q = draw(8, 2, 4, 1),), X, O, LSE, X, X, X)
    scaled = (score_mod = "c * score", c = 2.0f0)
    @test_throws_text "an array of one Float32" attention_backward!((c = zeros(Float16, 1),), X, O, LSE, X, X, X; scaled...)
    @test_throws_text "an array of one Float32" attention_backward!((c = zeros(Float32, 2),), X, O, LSE, X, X, X; scaled...)
    @test_throws_text "dense vector of 2 numbers" attention_backward!((sinks = zeros(Float32, 1),), X, O, LSE, X, X, X; sinks = [0.0f0, 1.0f0])
    @test_throws_text "does not fit Int32" attention(X, X, X; score_mod = "score + n", n = 2^40)
    @test_throws_text "dO has size" attention_backward(draw(8, 2, 4, 1), O, LSE, X, X, X)
end

@testset "an error says what failed" begin
    e = try attention(X, X, X; score_mod = "score +") catch e; e end
    @test e isa Fovea.FoveaError && e.status == Fovea.INVALID_ARGUMENT
    # And nothing is broken by it.
    @test attention(X, X, X) == O
end
