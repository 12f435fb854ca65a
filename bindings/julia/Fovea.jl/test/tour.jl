# The examples run; the tour says what it promises.

const EXAMPLES = normpath(@__DIR__, "..", "..", "..", "..", "examples", "julia")
const PROMISED = Dict("tour.jl" => ["learned bias: loss", "verdict", "Float64? false"], "softcap_alibi.jl" => ["(:q, :k, :v, :slopes, :cap)"])

function check_example(file)
    output = IOBuffer()
    command = `$(Base.julia_cmd()) --startup-file=no $(joinpath(EXAMPLES, file))`
    process = run(pipeline(ignorestatus(command); stdout = output, stderr = output))
    text = String(take!(output))
    success(process) || print(text)
    @test success(process) && all(part -> occursin(part, text), get(PROMISED, file, String[]))
end

if isdir(EXAMPLES)
    @testset "$file" for file in readdir(EXAMPLES)
        check_example(file)
    end
else
    println("skipped: examples/julia, which is not there outside of a checkout")
end
