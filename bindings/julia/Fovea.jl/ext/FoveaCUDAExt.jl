# Julia 1.9 and later load this when CUDA is loaded; before, src/hooks.jl does the same.
module FoveaCUDAExt

using Fovea: Fovea
using CUDA: CUDA

include("cuda.jl")

end
