# Many tasks on four threads, with garbage collections and emptied caches in between: in a process of its own, since
# the number of threads is fixed when Julia starts.

@testset "four threads" begin
    environment = merge(Dict{String,String}(ENV), Dict("JULIA_NUM_THREADS" => "4"))
    script = joinpath(@__DIR__, "stress.jl")
    command = setenv(`$(Base.julia_cmd()) --startup-file=no -O1 $script $SEED`, environment)
    output = IOBuffer()
    process = run(pipeline(ignorestatus(command); stdout = output, stderr = output))
    text = String(take!(output))
    print(text)
    @test success(process)
    @test occursin("all right", text)
end
