# Optional packages. From Julia 1.9 on they are package extensions (Project.toml); before, the same files are read when
# the package is loaded, which Julia tells through its list of callbacks. Nothing of this needs another package.

const OPTIONAL = (CUDA = "cuda", ChainRulesCore = "chain_rules", NNlib = "nnlib")

function __init__()
    find_gc_safe()
    if !isdefined(Base, :get_extension)
        foreach(hook_in, collect(keys(Base.loaded_modules)))
        push!(Base.package_callbacks, hook_in)
    end
end

function hook_in(package::Base.PkgId)
    name = Symbol(package.name)
    haskey(OPTIONAL, name) || return
    loaded = get(Base.loaded_modules, package, nothing)
    loaded === nothing && return
    extension = Module(Symbol(:Fovea, name, :Ext))
    Core.eval(extension, :(const Fovea = $(@__MODULE__)))
    Core.eval(extension, :(const $name = $loaded))
    Base.include(extension, joinpath(dirname(@__DIR__), "ext", OPTIONAL[name] * ".jl"))
    return nothing
end
