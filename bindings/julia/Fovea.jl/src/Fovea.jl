"""
Fused attention whose scores you can modify, on arrays `(head_dim, heads, seq, batch)`.

The functions: [`attention`](@ref), [`attention!`](@ref), [`attention_backward`](@ref),
[`attention_backward!`](@ref), [`attention_supported`](@ref), [`explain`](@ref), and
[`dot_product_attention`](@ref) for those who come from NNlib.

A modifier is a Julia function that is called once with symbolic values, or a text; see `Fovea.Sym`.
Positions are 0-based unless `one_based = true`.
"""
module Fovea

using Libdl: Libdl
using LinearAlgebra: LinearAlgebra

export attention, attention!, attention_backward, attention_backward!, attention_supported, explain
export cudnnSDPAForward, cudnnSDPAForward!, cudnnSDPABackward

# The C interface.
include("c/library.jl")
include("c/calls.jl")
# What arrays are made of, and where they lie.
include("memory/element_types.jl")
include("memory/layout.jl")
include("memory/devices.jl")
# Modifiers: from Julia functions to formulas.
include("trace/sym.jl")
include("trace/operations.jl")
include("trace/casts.jl")
include("trace/loads.jl")
include("trace/run.jl")
VERSION < v"1.8" && include("trace/old_ifelse.jl")
include("trace/text.jl")
# From options to a program.
include("options.jl")
include("program/captured.jl")
include("program/recipe.jl")
include("program/shorthands.jl")
include("program/program.jl")
# From a call to a plan.
include("problem.jl")
include("plans.jl")
include("bind.jl")
# What users call.
include("attention.jl")
include("backward.jl")
include("explain.jl")
include("names.jl")

# ---- optional packages: extensions (Project.toml) from Julia 1.9 on; before, the same files are read when one is loaded ----

const OPTIONAL = (:CUDA, :ChainRulesCore, :NNlib)

function __init__()
    find_gc_safe()
    isdefined(Base, :get_extension) && return
    foreach(read_extension, collect(keys(Base.loaded_modules)))
    push!(Base.package_callbacks, read_extension)
end

function read_extension(package::Base.PkgId)
    name, loaded = Symbol(package.name), get(Base.loaded_modules, package, nothing)
    name in OPTIONAL && loaded !== nothing || return
    around = Module(Symbol(:With, name))
    Core.eval(around, :(const Fovea, $name = $(@__MODULE__), $loaded))
    Base.include(around, joinpath(dirname(@__DIR__), "ext", "Fovea$(name)Ext.jl"))
    return nothing
end

# ---- the way of a call on plain arrays, inferred (and from Julia 1.9 on compiled) once, when the package is ----

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

end
