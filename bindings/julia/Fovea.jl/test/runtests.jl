# The tests of Fovea.jl. Random numbers come from a printed seed; FOVEA_TEST_SEED repeats one.
using Fovea
using LinearAlgebra
using Random
using Test

const SEED = parse(Int, get(ENV, "FOVEA_TEST_SEED", string(rand(RandomDevice(), UInt16))))
println("Julia $VERSION, $(Threads.nthreads()) threads, FOVEA_TEST_SEED=$SEED, ", Fovea.library().path)

# The call fails, and its text has this part.
macro test_throws_text(part, call)
    return quote
        local text = try
            $(esc(call))
            "nothing was thrown"
        catch e
            sprint(showerror, e)
        end
        occursin($(esc(part)), text) || println("got: ", text)
        @test occursin($(esc(part)), text)
    end
end

const rng = MersenneTwister(SEED)
draw(size...) = randn(rng, Float32, size...)
double(x::AbstractArray{<:AbstractFloat}) = Float64.(x)
double(x::AbstractFloat) = Float64(x)
double(x) = x

# Whether another process of this Julia ended well, and what it printed, errors included.
function other_process(arguments...; environment...)
    variables = Dict{String,String}(String(name) => value for (name, value) in environment)
    command = setenv(`$(Base.julia_cmd()) --startup-file=no -O1 $arguments`, merge(Dict{String,String}(ENV), variables))
    output = IOBuffer()
    process = run(pipeline(ignorestatus(command); stdout = output, stderr = output))
    return success(process), String(take!(output))
end

include("dense.jl")
const PARTS = ["modifiers", "tracing", "retracing", "captured", "replay", "calls", "views", "refusals", "library", "extensions", "threads", "doctests"]
@testset "Fovea.jl" begin
    for part in (isempty(ARGS) ? PARTS : ARGS)
        seconds = @elapsed @testset "$part" begin
            include("$part.jl")
        end
        println(rpad(part, 12), round(seconds; digits = 1), " s")
    end
end
