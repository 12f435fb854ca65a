# tests/gpu/julia_calls.c replays on a GPU the calls that this package would make there: its table is compared with what the
# package makes.

const TABLE = normpath(@__DIR__, "..", "..", "..", "..", "tests", "gpu", "julia_cases.h")

# name => (program line, strides of what is captured, gradients), of the C source.
function replayed(source)
    texts = Dict("\"\"" => "")
    for m in eachmatch(r"#define (\w+) \"(.*)\"", source)
        texts[m.captures[1]] = unescape_string(m.captures[2])
    end
    strides = Dict(m.captures[1] => m.captures[2] for m in eachmatch(r"static const Captured (\w+) = \{\s*\"\w*\",\s*\w+,[^\"]*\"(.*?)\"", source))
    rows = eachmatch(r"\{\"([^\"]+)\", (\w+|\"\"), \"([^\"]*)\", &(\w+),", source)
    return Dict(m.captures[1] => (texts[m.captures[2]], strides[m.captures[4]], m.captures[3]) for m in rows)
end

const QUERY, KEY = zeros(Fovea.BFloat16, 64, 4, 96, 2), zeros(Fovea.BFloat16, 64, 2, 128, 2)
const EVERY_SECOND = view(zeros(Fovea.BFloat16, 64, 8, 96, 2), :, 1:2:7, :, :)

# What a call gives to libfovea for a GPU, in the same words.
function made(@nospecialize(options::NamedTuple = NamedTuple()), grads = nothing)
    o, sizes = Fovea.read_options(options), Fovea.sizes_of(QUERY, KEY, KEY)
    program = Fovea.program_of(o, sizes, eltype(QUERY))
    words = join((Fovea.word_of(program, name) for name in Fovea.wanted(program, o, grads)), ",")
    return Fovea.symbolic_line(program.recipe, sizes), Fovea.tensor_strides(program, "cuda:0"), words
end

softcap(score, b, h, q, k, c) = c.cap * tanh(score / c.cap)
alibi(score, b, h, q, k, c) = score + c.slopes[h] * (k - q)
const FIRST = (:q, :k, :v)
const CALLS = Dict(
    "plain" => made(), "causal" => made((causal = true,)), "strided view" => made((causal = true,)),
    "kv_lengths" => made((kv_lengths = [128, 37],)), "q_offset" => made((causal = true, q_offset = 32)),
    "softcap" => made((score_mod = softcap, cap = 3.0f0), FIRST),
    "softcap with its gradient" => made((score_mod = softcap, cap = 3.0f0)),
    "alibi" => made((score_mod = alibi, slopes = zeros(Float32, 4), causal = true), FIRST),
    "bias" => made((bias = zeros(Float32, 128, 96, 4, 2),), FIRST),
    "bias with its gradient" => made((bias = zeros(Fovea.BFloat16, 128, 96, 4, 2),)),
    "bias that is a view, with its gradient" => made((bias = view(zeros(Fovea.BFloat16, 136, 96, 4, 2), 9:136, :, :, :),)),
    "table of a text" => made((score_mod = "score + table[k, q, h, b]", table = zeros(Float32, 128, 96, 4, 2)), FIRST),
    "mask of Bools" => made((mask_mod = fill(true, 128, 96),)))

if isfile(TABLE)
    @testset "the table of julia_calls.c" begin
        table = replayed(read(TABLE, String))
        @test Set(keys(table)) == Set(keys(CALLS))
        for name in keys(CALLS)
            @test (name, table[name]) == (name, CALLS[name])
        end
        @test Fovea.strides4("q", EVERY_SECOND) == (64 * 8 * 96, 2 * 64, 64 * 8, 1)
    end
else
    println("skipped: the calls that are replayed on a GPU, which are not there outside of a checkout")
end
