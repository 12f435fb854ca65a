# How captured arrays come to libfovea: named, indexed and laid out so that every engine takes them.

const P = draw(8, 2, 5, 2)
program(; options...) = Fovea.program_of(Fovea.read_options(values(options)), Fovea.sizes_of(P, P, P), eltype(P))
line(; options...) = program(; options...).recipe.line

# Gradients of everything captured, against finite differences in Float64; `mod` runs there on arrays from 0.
function check_gradients(mod, captured; options...)
    dO = draw(size(P)...)
    case = DenseCase(; mod = mod, captured = map(double, captured))
    o, lse = attention(P, P, P; captured..., options..., return_lse = true)
    @test relative(o, dense_forward(case, double(P), double(P), double(P))[1]) < 3e-6
    g = attention_backward(dO, o, lse, P, P, P; captured..., options...)
    for name in keys(captured)
        @test size(g[name]) == size(captured[name])
        @test relative(g[name], difference(case, name, double(dO), double(P), double(P), double(P))) < 1e-3
    end
    return g
end

@testset "an Array is dense, its last index first" begin
    bias = draw(5, 5, 2, 2)
    mod = (s, b, h, q, k, c) -> s + c.bias4[k, q, h, b]
    @test line(score_mod = mod, bias4 = bias) == "mod=\"score + bias4[b, h, q, k]\" tensor=\"bias4:f32[2,2,5,5]\" "
    @test line(bias = bias) == "mod=\"score + bias[b, h, q, k]\" tensor=\"bias:f32[2,2,5,5]\" "
    @test line(bias = draw(5, 1, 2)) == "mod=\"score + bias[h, 0, k]\" tensor=\"bias:f32[2,1,5]\" "
    @test line(mask_mod = fill(true, 5, 5)) == "mask=\"mask[q, k]\" tensor=\"mask:bool[5,5]\" "
    table = draw(2, 3, 5)
    @test Fovea.formula((s, b, h, q, k) -> s + table[h, 1, k]) == "score + table[k, 1, h]"
    @test isempty(program(; score_mod = mod, bias4 = bias).tensors[1] |> t -> Fovea.strides_text(t.array, t.order))
    array = Fovea.c_array(bias, Fovea.reversed_order(4))
    @test array.extent[1:4] == (2, 2, 5, 5) && array.stride[1:4] == (50, 25, 5, 1)
    check_gradients(mod, (bias4 = bias,); score_mod = mod)
    three = (s, b, h, q, k, c) -> s + c.table[h, 1, min(k, 3)] * c.other[q, h]
    check_gradients(three, (table = table, other = draw(5, 2)); score_mod = three)
end

@testset "a text keeps Julia's order, and says the strides" begin
    table = draw(5, 2)
    text = (score_mod = "score + table[k, h]", table = table)
    @test line(; text...) == "mod=\"score + table[k, h]\" tensor=\"table:f32[5,2]\" "
    @test Fovea.tensor_strides(program(; text...), "cpu") == ""
    @test Fovea.tensor_strides(program(; text...), "h200") == "table:1,5"
    @test occursin("tensor_strides", explain(P, P, P; text..., device = "h200"))
    check_gradients((s, b, h, q, k, c) -> s + c.table[k, h], (table = table,); score_mod = text.score_mod)
    # A function beside the text reads the same array in the same order.
    masked = (b, h, q, k, c) -> (c.table[k, h] < 100) & (q >= 0)
    @test line(; text..., mask_mod = masked) == "mod=\"score + table[k, h]\" mask=\"table[k, h] < 100 && q >= 0\" tensor=\"table:f32[5,2]\" "
    @test attention(P, P, P; text..., mask_mod = masked) == attention(P, P, P; text...)
end

@testset "views say their strides" begin
    wide = draw(9, 7, 2)
    mod = (s, b, h, q, k, c) -> s + c.part[k, q, h]
    part = view(wide, 2:6, 1:5, :)
    @test line(score_mod = mod, part = part) == line(score_mod = mod, part = copy(part))
    strides_of(x) = Fovea.tensor_strides(program(; score_mod = mod, part = x), "h200")
    @test strides_of(part) == "part:63,9,1" && strides_of(copy(part)) == "" && strides_of(view(wide, 1:5, 1:5, 1:1)) == "part:63,9,1"
    @test strides_of(PermutedDimsArray(draw(5, 2, 5), (1, 3, 2))) == "part:5,10,1"
    @test strides_of(view(draw(5, 5, 3), :, :, 2:3)) == ""  # dense where it begins
    g = check_gradients(mod, (part = part,); score_mod = mod)
    @test g.part isa Array
    # A gradient written where it belongs, by strides of its own.
    o, lse = attention(P, P, P; score_mod = mod, part = part, return_lse = true)
    places = (part = PermutedDimsArray(zeros(Float32, 2, 5, 5), (2, 3, 1)),)
    attention_backward!(places, o, o, lse, P, P, P; score_mod = mod, part = part)
    @test places.part == attention_backward(o, o, lse, P, P, P; score_mod = mod, part = part).part
end

@testset "eight dimensions" begin
    eight = draw(5, 1, 1, 1, 1, 1, 1, 2)
    read(s, b, h, q, k, c) = s + k * c.x[k, 0, 0, 0, 0, 0, 0, h]
    @test attention(P, P, P; score_mod = read, x = eight) ==
          attention(P, P, P; score_mod = "score + k * x[k, h]", x = reshape(eight, 5, 2))
    nine = reshape(eight, 5, 1, 1, 1, 1, 1, 1, 1, 2)
    longer(s, b, h, q, k, c) = s + k * c.x[k, 0, 0, 0, 0, 0, 0, 0, h]
    @test_throws_text "'x' has 9 dimensions, but a formula reads 8" attention(P, P, P; score_mod = longer, x = nine)
    @test_throws_text "'x' has 9 dimensions, but a formula reads 8" attention(P, P, P; score_mod = "score + x[k]", x = nine)
end

@testset "shorthands beside formulas with lets" begin
    bias = draw(5, 5)
    shared = (s, b, h, q, k) -> (y = s * s; y + y)
    o = attention(P, P, P; score_mod = shared, bias = bias)
    @test relative(o, double(attention(P, P, P; score_mod = (s, b, h, q, k) -> 2 * s * s + bias[k, q]))) < 1e-5
    near = (b, h, q, k) -> (y = q - k; (y < 3) & (y > -3))
    @test attention(P, P, P; mask_mod = near, causal = true) == attention(P, P, P; causal = true, window = 3)
end

@testset "a bias and a mask go by rows, whatever the offset" begin
    bias, kept = draw(5, 5), [key <= query + 2 for key in 1:5, query in 1:5]
    for offsets in ((q_offset = 3,), (k_offset = 2,), (q_offset = 4, k_offset = 2))
        @test attention(P, P, P; bias = bias, mask_mod = kept, offsets...) == attention(P, P, P; bias = bias, mask_mod = kept)
        o, lse = attention(P, P, P; bias = bias, offsets..., return_lse = true)
        g = attention_backward(o, o, lse, P, P, P; bias = bias, offsets...)
        @test keys(g) == (:q, :k, :v, :bias) && g == attention_backward(o, o, lse, P, P, P; bias = bias)
        # Modifiers see the offsets beside it, and may use the name of the number that takes them away.
        q0, k0 = get(offsets, :q_offset, 0), get(offsets, :k_offset, 0)
        @test attention(P, P, P; bias = bias, score_mod = "score + q_first * (q - k)", q_first = 0.5f0, offsets...) ≈
              attention(P, P, P; bias = bias .+ 0.5f0 * [(query + q0) - (key + k0) for key in 1:5, query in 1:5])
    end
    builds = Fovea.cache_statistics().builds
    for step in 5:8
        attention(P, P, P; bias = bias, mask_mod = kept, q_offset = step)
    end
    @test Fovea.cache_statistics().builds <= builds + 1  # another offset is no other plan
    one = draw(5, 1)  # a decoder's
    @test attention(P, P, P; bias = one, q_offset = 7) == attention(P, P, P; bias = one)
end

@testset "numbers beside positions" begin
    table = draw(3, 2)
    last(s, b, h, q, k, c) = s * c.table[end, h] + c.table[begin + 1, h]
    @test attention(P, P, P; score_mod = last, table = table) == attention(P, P, P; score_mod = "score * table[2, h] + table[1, h]", table = table)
    @test attention(P, P, P; score_mod = last, table = table, one_based = true) == attention(P, P, P; score_mod = last, table = table)
    @test_throws_text "an index of 'table' is 3, but beside a position indices count from 0, here to 2; `end` of an array counts from 1" attention(
        P, P, P; score_mod = (s, b, h, q, k) -> s * table[end, h])
    @test_throws_text "is 0, but beside a position indices count from 1, here to 3" attention(
        P, P, P; score_mod = (s, b, h, q, k) -> s * table[0, h], one_based = true)
    @test attention(P, P, P; score_mod = (s, b, h, q, k) -> s * table[end, h], one_based = true) ==
          attention(P, P, P; score_mod = (s, b, h, q, k) -> s * table[2, h])
end

@testset "masks are the same on every device" begin
    mask = [key <= query for key in 1:5, query in 1:5]
    @test program(; mask_mod = mask).recipe.line == "mask=\"mask[q, k]\" tensor=\"mask:bool[5,5]\" "
    @test attention_supported(P, P, P; mask_mod = mask) && attention_supported(P, P, P; mask_mod = trues(5, 5))
end

@testset "names" begin
    o, lse = attention(P, P, P; return_lse = true)
    gradients(; options...) = attention_backward(o, o, lse, P, P, P; options...)
    # What the language or a gradient is called.
    let v = draw(2), sink = draw(2), t0 = draw(2)
        f = (s, b, h, q, k) -> (y = s * v[h]; y * y + sink[h] * t0[h] * k)
        @test attention(P, P, P; score_mod = f) ==
              attention(P, P, P; score_mod = "let z = score * w[h]; z * z + x[h] * y[h] * k", w = v, x = sink, y = t0)
        @test keys(gradients(score_mod = f)) == (:q, :k, :v, :v_2, :sink, :t0)
    end
    f = (s, b, h, q, k, c) -> (y = c.t0 * s; y * y + c.t0)
    @test attention(P, P, P; score_mod = f, t0 = 0.5f0) == attention(P, P, P; score_mod = "let y = c * score; y * y + c", c = 0.5f0)
    # A closure's array beside a keyword of the same name.
    w, other = draw(2), draw(2)
    named(w) = (s, b, h, q, k, c) -> s + k * (w[h] + 2 * c.w[h])
    @test attention(P, P, P; score_mod = named(other), w = w) == attention(P, P, P; score_mod = "score + k * (x[h] + 2 * y[h])", x = other, y = w)
    g = gradients(score_mod = named(other), w = w)
    @test keys(g) == (:q, :k, :v, :w, :w_2) && relative(g.w, 2 * double(g.w_2)) < 1e-5
    # One array as several arguments: each has its share of the gradient.
    g = gradients(score_mod = (s, b, h, q, k, c) -> s + k * (c.x[h] + 2 * c.y[h]), x = w, y = w)
    @test relative(g.y, 2 * double(g.x)) < 1e-5
    bias = draw(5, 5)
    g = gradients(score_mod = (s, b, h, q, k) -> s + 3 * bias[k, q], bias = bias)
    @test keys(g) == (:q, :k, :v, :bias_2, :bias) && relative(g.bias_2, 3 * double(g.bias)) < 1e-5
end

@testset "offsets are said where there are some" begin
    config(; options...) = Fovea.config_of(Fovea.FORWARD, Fovea.sizes_of(P, P, P), Fovea.F32, Fovea.read_options(values(options)),
                                           (P, P, P), Fovea.Slots(P, nothing, nothing, nothing, nothing), (lse = false, grad_lse = false))
    @test (config().q_offset, config(q_offset = 7).q_offset, config(k_offset = 3).k_offset) == (0, 1, 1)
end
