# The optional integrations, with the packages themselves if they are installed, with stand-ins otherwise.

const STUBS = joinpath(@__DIR__, "stubs")
STUBS in LOAD_PATH || push!(LOAD_PATH, STUBS)
import CUDA, ChainRulesCore, NNlib

is_stub(package) = startswith(pathof(package), STUBS)
loaded(name) = isdefined(Base, :get_extension) ? Base.get_extension(Fovea, name) !== nothing : true

# Device arrays up to the C call, on a device that is the host in truth.
function stub_cuda(x, y, z, slopes)
    a = CUDA.CuArray(copy(x))
    part = view(a, 1:4, :, 2:5, :)
    @test Fovea.device_of(part) == "cuda:0"
    @test Fovea.address(part) == Ptr{Cvoid}(pointer(a.data, LinearIndices(a.data)[1, 1, 2, 1]))
    @test Fovea.strides4("q", part) == (80, 8, 16, 1)
    CUDA.HANDLE[] = Ptr{Cvoid}(UInt(0x1230))
    @test Fovea.current_stream(a) == Ptr{Cvoid}(UInt(0x1230))
    CUDA.HANDLE[] = C_NULL
    @test_throws_text "k is on cpu, but q is on cuda:0" attention(a, x, a)
    @test_throws_text "captured array 'slopes' is on cpu" attention(a, a, a; score_mod = "score * slopes[h]", slopes = slopes)
    # No GPU here: an error that names the device, or a verdict of no.
    @test_throws_text "cuda" attention(a, a, a)
    CUDA.CURRENT[] = 1
    @test_throws_text "q is on cuda:0, but this task works on device 1: call CUDA.device!(0) first" attention(a, a, a)
    CUDA.CURRENT[] = 0
    # A mask of Bools is read where it lies; views of captured arrays say how they lie.
    mask = CUDA.CuArray([key <= query for key in 1:5, query in 1:5])
    made = Fovea.program_of(Fovea.read_options((mask_mod = mask,)), Fovea.sizes_of(a, a, a), eltype(a))
    @test made.tensors[1].array isa CUDA.CuArray{Bool} && made.recipe.mask == "mask[q, k]"
    wide = view(CUDA.CuArray(draw(7, 5)), 2:6, :)
    made = Fovea.program_of(Fovea.read_options((bias = wide,)), Fovea.sizes_of(a, a, a), eltype(a))
    @test Fovea.tensor_strides(made, "cuda:0") == "bias:7,1"

    @eval Fovea.device_name(::CUDA.CuArray) = "cpu"
    Base.invokelatest(stub_run, x, y, z, slopes)
end

function stub_run(x, y, z, slopes)
    a, b, c, s = map(CUDA.CuArray ∘ copy, (x, y, z, slopes))
    mod = (s, b, h, q, k, c) -> c.cap * tanh(s / c.cap) + c.slopes[h] * (k - q)
    options(slopes) = (score_mod = mod, slopes = slopes, cap = 2.0f0, kv_lengths = [6, 3], sinks = [0.5f0, -1.0f0])
    o, lse = attention(a, b, c; options(s)..., return_lse = true)
    want, want_lse = attention(x, y, z; options(slopes)..., return_lse = true)
    @test o isa CUDA.CuArray && Array(o) == want && Array(lse) == want_lse
    g, h = attention_backward(o, o, lse, a, b, c; options(s)...), attention_backward(want, want, want_lse, x, y, z; options(slopes)...)
    @test keys(g) == keys(h) && all(Array(g[n]) == h[n] for n in (:q, :k, :v, :slopes, :sinks)) && g.cap == h.cap
    @test :context in CUDA.CALLS && :free in CUDA.CALLS
end

if !all(loaded, (:FoveaCUDAExt, :FoveaChainRulesCoreExt, :FoveaNNlibExt))
    println("skipped: the tests of extensions, which Julia $VERSION does not load from a plain load path; use Pkg.test")
else
    x, y, z = draw(8, 2, 5, 2), draw(8, 2, 6, 2), draw(4, 2, 6, 2)
    slopes = draw(2)

    @testset "ChainRules" begin
        o, pullback = ChainRulesCore.rrule(attention, x, y, z; causal = true)
        @test o == attention(x, y, z; causal = true)
        _, lse = attention(x, y, z; causal = true, return_lse = true)
        want = attention_backward(o, o, lse, x, y, z; causal = true)
        @test pullback(o)[2:4] == (want.q, want.k, want.v)
        @test pullback(view(o, :, :, :, :))[2:4] == (want.q, want.k, want.v)
        @test pullback(Float64.(o))[2:4] == (want.q, want.k, want.v)  # of another type: converted
        @test pullback(ChainRulesCore.ZeroTangent())[2] isa ChainRulesCore.ZeroTangent
        mod = (s, b, h, q, k, c) -> s + c.slopes[h] * (k - q)
        (o, lse), pullback = ChainRulesCore.rrule(attention, x, y, z, (slopes = slopes, bias = draw(6, 5)); score_mod = mod, return_lse = true)
        tangents = pullback((o, ChainRulesCore.ZeroTangent()))
        @test size(tangents[5].slopes) == (2,) && size(tangents[5].bias) == (6, 5)
        @test all(iszero, pullback((ChainRulesCore.ZeroTangent(), zero(lse)))[2])
    end

    @testset "NNlib" begin
        @test Fovea.formula((s, b, h, q, k) -> NNlib.sigmoid(s) + NNlib.softplus(s) + NNlib.relu(s)) ==
              "sigmoid(score) + softplus(score) + max(score, 0.0)"
    end

    @testset "CUDA" begin
        if !is_stub(CUDA)
            println("CUDA.jl is the real one; its calls are tested with engine = \"cudnn\" if there is a GPU")
        else
            stub_cuda(x, y, z, slopes)
        end
    end
end
