# Finding libfovea, and the structs of its interface as the C compiler lays them out.

using Libdl: Libdl

const CHECKOUT = normpath(@__DIR__, "..", "..", "..", "..")

# The structs of fovea.h whose fields have the same names in Julia.
const STRUCTS = [Fovea.CSizes => "fovea_sizes", Fovea.CProblemConfig => "fovea_problem_config", Fovea.CPlanOptions => "fovea_plan_options",
                 Fovea.CArray => "fovea_array", Fovea.CTensorBinding => "fovea_tensor_binding",
                 Fovea.CScalarBinding => "fovea_scalar_binding", Fovea.CTensor => "fovea_tensor", Fovea.CF32Value => "fovea_f32_value",
                 Fovea.CI32Value => "fovea_i32_value", Fovea.CU64Value => "fovea_u64_value", Fovea.CBindings => "fovea_bindings",
                 Fovea.CCacheStats => "fovea_cache_stats"]

# A line per struct: its size, then the offset of each field.
function c_layouts(compiler)
    numbers(type, name) = join([["(int)sizeof(struct $name)"]; ["(int)offsetof(struct $name, $field)" for field in fieldnames(type)]], ", ")
    format(type) = join(fill("%d", fieldcount(type) + 1), " ")
    lines = ["  printf(\"$(format(type))\\n\", $(numbers(type, name)));" for (type, name) in STRUCTS]
    return mktempdir() do folder
        write(joinpath(folder, "layout.c"), "#include <stdio.h>\n#include <fovea/fovea.h>\nint main(void) {\n$(join(lines, '\n'))\n}\n")
        run(`$compiler -I$(joinpath(CHECKOUT, "include")) -o $folder/layout $folder/layout.c`)
        return read(`$folder/layout`, String)
    end
end

both_ours(pair) = pair[1].module === Fovea && pair[2].module === Fovea

@testset "where the library is not" begin
    call = "using Fovea; x = zeros(Float32, 8, 1, 2, 1); attention(x, x, x)"
    _, text = other_process("-e", call; FOVEA_LIBRARY = "/nowhere/libfovea.so")
    @test occursin("/nowhere/libfovea.so: no such file", text) && occursin("FOVEA_LIBRARY", text)
    withenv("FOVEA_LIBRARY" => nothing) do  # beside the package, in a checkout, then the system's
        package = dirname(dirname(pathof(Fovea)))
        @test Fovea.places()[1:2] == [joinpath(package, "lib", "libfovea.so"), joinpath(CHECKOUT, "build", "libfovea.so")]
        @test Fovea.places()[end] == "libfovea.so"
    end
    # Some other library is no libfovea.
    other = first(filter(path -> occursin("libm.so", path), Libdl.dllist()))
    _, text = other_process("-e", "using Fovea; Fovea.engines()"; FOVEA_LIBRARY = other)
    @test occursin("it is no libfovea of this version", text)
end

@testset "structs" begin
    compiler = Sys.which("cc")
    if compiler === nothing || !isfile(joinpath(CHECKOUT, "include", "fovea", "fovea.h"))
        println("skipped: the layout of structs, for want of a C compiler or of fovea.h")
    else
        for (ours, line) in zip(STRUCTS, split(c_layouts(compiler), '\n'))
            type = ours.first
            expected = vcat(sizeof(type), [Int(fieldoffset(type, i)) for i in 1:fieldcount(type)])
            @test (ours.second, parse.(Int, split(line))) == (ours.second, expected)
        end
    end
end

@testset "ambiguities" begin
    @test isempty(filter(both_ours, detect_ambiguities(Fovea)))
end

@testset "what the library says" begin
    @test "reference" in Fovea.engines()
    @test occursin("cpu", Fovea.doctor())
    @test Fovea.differentiate("mod=\"c * score\" scalar=c", "c") == "score"
    attention(zeros(Float32, 4, 1, 2, 1), zeros(Float32, 4, 1, 2, 1), zeros(Float32, 4, 1, 2, 1))
    @test Fovea.cache_statistics().plans > 0
    Fovea.clear_cache()
    @test Fovea.cache_statistics().plans == 0 && isempty(Fovea.PLANS)
    # More problems than plans are kept.
    for n in 1:(Fovea.PLANS_KEPT + 20)
        x = zeros(Float32, 4, 1, n, 1)
        attention(x, x, x)
    end
    @test length(Fovea.PLANS) == Fovea.PLANS_KEPT
end
