# A modifier is traced in every call, and the results of equal traces are kept. Whatever a closure can read may have changed
# since the last call: each of these tests would give a wrong result if a kept program were used for the closure.

const Y = draw(8, 2, 5, 1)
modified_by(f; options...) = attention(Y, Y, Y; score_mod = f, options...)
scaled_by(x) = modified_by("$(Float32(x)) * score")

@testset "numbers that a closure captures" begin
    factor = 2.0f0
    f = (s, b, h, q, k) -> factor * s  # in a box, since it is assigned below
    @test modified_by(f) == scaled_by(2)
    factor = 3.0f0
    @test modified_by(f) == scaled_by(3)
    cell = Ref(2.0f0)
    g = (s, b, h, q, k) -> cell[] * s
    @test modified_by(g) == scaled_by(2)
    cell[] = 5
    @test modified_by(g) == scaled_by(5)
    # One formula has -0.0, the other 0.0.
    divided(zero) = (s, b, h, q, k) -> s + clamp(1 / (zero * (q + 1)), -1, 1) * k
    @test modified_by(divided(0.0f0)) == modified_by("score + k") && modified_by(divided(-0.0f0)) == modified_by("score - k")
end

@testset "elements of arrays" begin
    table = Float32[2, 7]
    # A plain number indexes the array itself: its element is a constant of the formula.
    f = (s, b, h, q, k) -> table[1] * s
    @test modified_by(f) == scaled_by(2)
    table[1] = 4
    @test modified_by(f) == scaled_by(4)
    total = (s, b, h, q, k) -> sum(table) * s
    @test modified_by(total) == scaled_by(11)
    table .= 1
    @test modified_by(total) == scaled_by(2)
    # Read by position, elements are data: other ones need no other program.
    loaded = (s, b, h, q, k) -> s * table[h]
    modified_by(loaded)
    kept = length(Fovea.RECIPES)
    table .= (3, 3)
    @test modified_by(loaded) == scaled_by(3) && length(Fovea.RECIPES) == kept
    push!(table, 1)
    @test modified_by(loaded) == scaled_by(3) && length(Fovea.RECIPES) == kept + 1  # of another size
end

@testset "globals and definitions" begin
    where_ = Module()
    run_in(code) = Core.eval(where_, code)
    call() = Base.invokelatest(modified_by, Base.invokelatest(getfield, where_, :f))
    run_in(:(factor = 2.0f0; helper(s) = factor * s; f = (s, b, h, q, k) -> helper(s)))
    @test call() == scaled_by(2)
    run_in(:(factor = 3.0f0))  # a global, read by a function that the closure calls
    @test call() == scaled_by(3)
    run_in(:(helper(s) = 4s))
    @test call() == scaled_by(4)
    run_in(:(f = (s, b, h, q, k) -> ifelse(q >= 0, factor * s, 0)))
    @test call() == scaled_by(3)
    run_in(:(factor = 5.0f0))
    @test call() == scaled_by(5)
    run_in(:(table = Float32[2, 2]; f = (s, b, h, q, k) -> s * table[h]))
    @test call() == scaled_by(2)
    run_in(:(table = Float32[6, 6]))  # another array under the same name
    @test call() == scaled_by(6)
    run_in(:(g(s, b, h, q, k) = 2s; f = g))
    @test call() == scaled_by(2)
    run_in(:(g(s, b, h, q, k) = 7s))
    @test call() == scaled_by(7)
end

@testset "what a closure does, not what it is" begin
    turn = 0
    @test modified_by((s, b, h, q, k) -> (turn += 1) * s) == scaled_by(1)
    @test [modified_by((s, b, h, q, k) -> (turn += 1) * s) == scaled_by(n) for n in 2:3] == [true, true]
    leaked = Ref{Any}()
    modified_by((s, b, h, q, k) -> (leaked[] = s; s))
    @test_throws_text "of one modifier is used in another" modified_by((s, b, h, q, k) -> s + leaked[])
end

@testset "what is kept" begin
    make(slopes, cap) = (s, b, h, q, k) -> cap * tanh(s / cap) + slopes[h] * (k - q)
    modified_by(make(draw(2), 2.0f0))
    kept = length(Fovea.RECIPES)
    modified_by(make(draw(2), 2.0f0))
    @test length(Fovea.RECIPES) == kept
    a, b = draw(2), draw(2)
    both(x, y) = (s, b, h, q, k) -> s * x[h] * y[h]
    @test modified_by(both(a, a)) != modified_by(both(a, b))  # one array, and two
    @test relative(modified_by(both(a, b)), double(modified_by(both(b, a)))) < 1e-5
    for n in 1:(Fovea.RECIPES_KEPT + 5)
        Fovea.program_of(Fovea.read_options((window = n,)), Fovea.sizes_of(Y, Y, Y), eltype(Y))
    end
    @test length(Fovea.RECIPES) <= Fovea.RECIPES_KEPT
    Fovea.clear_cache()
    @test isempty(Fovea.RECIPES)
end
