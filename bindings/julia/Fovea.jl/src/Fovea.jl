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

include("bfloat16.jl")
# The C interface.
include("c/types.jl")
include("c/library.jl")
include("c/calls.jl")
# Where arrays lie in memory.
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
include("hooks.jl")
include("precompile.jl")

end
