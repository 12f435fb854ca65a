# examples/julia/tour.jl runs and says what it promises.

@testset "tour" begin
    path = normpath(@__DIR__, "..", "..", "..", "..", "examples", "julia", "tour.jl")
    if isfile(path)
        output = IOBuffer()
        process = run(pipeline(ignorestatus(`$(Base.julia_cmd()) --startup-file=no -O1 $path`); stdout = output, stderr = output))
        text = String(take!(output))
        @test success(process) && occursin("learned bias: loss", text) && occursin("verdict", text)
        success(process) || print(text)
    else
        println("skipped: examples/julia/tour.jl, which is not there outside of a checkout")
    end
end
