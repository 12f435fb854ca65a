# Runs the examples of docstrings and of docs/julia.md: what stands after `julia>` gives what stands below.

function examples(text)
    return [m.captures[1] for m in eachmatch(r"```jldoctest[^\n]*\n(.*?)```"s, text)]
end

# (input, expected output) pairs.
function prompts(block)
    found = Tuple{String,String}[]
    for part in split("\n" * block, "\njulia> ")[2:end]
        lines = split(part, '\n')
        count = something(findfirst(line -> !startswith(line, "       "), lines[2:end]), length(lines)) - 1
        input = join(lines[1:(count + 1)], '\n')
        push!(found, (String(input), String(strip(join(lines[(count + 2):end], '\n')))))
    end
    return found
end

function check_block(block, where_, place)
    for (input, expected) in prompts(block)
        value = try
            include_string(where_, input)
        catch e
            println(place, ": ", input, "\n  ", sprint(showerror, e))
            @test false
            continue
        end
        shown = endswith(rstrip(input), ';') || value === nothing ? "" : Base.invokelatest(repr, MIME("text/plain"), value)
        shown == expected || println(place, ": ", input)
        @test shown == expected
    end
end

function fresh()
    where_ = Module(:Doctest)
    Core.eval(where_, :(using Fovea, Random; Random.seed!($SEED)))
    return where_
end

function docstrings()
    found = Pair{String,String}[]
    for (binding, docs) in Base.Docs.meta(Fovea), doc in values(docs.docs)
        text = join(part for part in doc.text if part isa AbstractString)
        push!(found, string(binding) => text)
    end
    return found
end

@testset "docstrings" begin
    blocks = [name => block for (name, text) in docstrings() for block in examples(text)]
    @test length(blocks) >= 12
    for (name, block) in blocks
        check_block(block, fresh(), name)
    end
    # Whatever is exported says what it is.
    for name in names(Fovea)
        @test haskey(Base.Docs.meta(Fovea), Base.Docs.Binding(Fovea, name)) || name === :Fovea
    end
end

@testset "docs/julia.md" begin
    page = normpath(@__DIR__, "..", "..", "..", "..", "docs", "julia.md")
    if isfile(page)
        where_ = fresh()
        for block in examples(read(page, String))
            check_block(block, where_, "docs/julia.md")
        end
    else
        println("skipped: docs/julia.md, which is not there outside of a checkout")
    end
end

# The programs in examples/julia run, and print what they promise.
const EXAMPLES = normpath(@__DIR__, "..", "..", "..", "..", "examples", "julia")
const PROMISED = Dict("tour.jl" => ["learned bias: loss", "verdict", "Float64? false"], "softcap_alibi.jl" => ["(:q, :k, :v, :slopes, :cap)"])

function check_example(file)
    good, text = other_process(joinpath(EXAMPLES, file))
    good || print(text)
    @test good && all(part -> occursin(part, text), get(PROMISED, file, String[]))
end

if isdir(EXAMPLES)
    @testset "$file" for file in readdir(EXAMPLES)
        check_example(file)
    end
else
    println("skipped: examples/julia, which is not there outside of a checkout")
end
