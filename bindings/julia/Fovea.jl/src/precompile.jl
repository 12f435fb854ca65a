# The way of a call on plain arrays, inferred (and from Julia 1.9 on compiled) once, when the package is.

for T in (Float32, Float16, BFloat16)
    A = Array{T,4}
    precompile(attention, (A, A, A))
    precompile(forward, (A, A, A, Options, Bool))
    precompile(forward!, (A, Nothing, A, A, A, Options))
    precompile(forward!, (A, Array{Float32,3}, A, A, A, Options))
    precompile(backward, (A, A, Array{Float32,3}, Tuple{A,A,A}, Options, Nothing, Nothing))
end
precompile(program_of, (Options, CSizes, String))
precompile(build, (PlanKey, Program))
precompile(formula_text, (Vector{Node}, Int32, Words))
precompile(recipe_of, (Request,))
for op in (+, -, *, /, <, <=, >, >=, ==, !=, max, min)
    precompile(op, (Sym, Sym))
    precompile(op, (Sym, Int))
    precompile(op, (Int, Sym))
end
