# Julia 1.9 and later load this when NNlib is loaded; before, src/hooks.jl does the same.
module FoveaNNlibExt

using Fovea: Fovea
using NNlib: NNlib

include("nnlib.jl")

end
