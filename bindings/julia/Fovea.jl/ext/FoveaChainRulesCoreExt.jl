# Rules for reverse-mode differentiation (Zygote, Lux, Flux). Gradients flow to q, k, v and to what is captured by
# position: keywords have none in ChainRules, so a bias or a table to be learned goes into the NamedTuple.
module FoveaChainRulesCoreExt

# Before Julia 1.9 Fovea reads this file itself, into a module that has both packages.
isdefined(Base, :get_extension) ? (import Fovea, ChainRulesCore) : (import ..Fovea, ..ChainRulesCore)

const AbstractZero, NoTangent, ZeroTangent = ChainRulesCore.AbstractZero, ChainRulesCore.NoTangent, ChainRulesCore.ZeroTangent
const Tangent, unthunk = ChainRulesCore.Tangent, ChainRulesCore.unthunk

function ChainRulesCore.rrule(::typeof(Fovea.attention), q, k, v, captured::NamedTuple...; return_lse::Bool = false, options...)
    o, lse = Fovea.attention(q, k, v, captured...; return_lse = true, options...)
    function attention_pullback(ȳ)
        g = gradients(ȳ, o, lse, (q, k, v, captured...), return_lse, isempty(captured) ? (:q, :k, :v) : nothing, options)
        g === nothing && return (NoTangent(), ntuple(_ -> ZeroTangent(), 3 + length(captured))...)
        return (NoTangent(), g.q, g.k, g.v, map(c -> tangent(c, g), captured)...)
    end
    return (return_lse ? (o, lse) : o), attention_pullback
end

tangent(captured::NamedTuple{names}, g) where {names} =
    Tangent{typeof(captured)}(; NamedTuple{names}(map(name -> haskey(g, name) ? g[name] : NoTangent(), names))...)

# nothing if no gradient comes in.
function gradients(ȳ, o, lse, arguments, return_lse, names, options)
    ȳ = unthunk(ȳ)
    ȳ isa AbstractZero && return nothing
    dO = return_lse ? unthunk(ȳ[1]) : ȳ
    dlse = return_lse ? unthunk(ȳ[2]) : ZeroTangent()
    dO isa AbstractZero && dlse isa AbstractZero && return nothing
    return Fovea.attention_backward(like(o, dO), o, lse, arguments...; grads = names, options...,
                                    grad_lse = dlse isa AbstractZero ? nothing : like(lse, dlse))
end

# What comes in may be lazy (a Fill from `sum`), of another type, or nothing at all.
like(x, ::AbstractZero) = fill!(similar(x), 0)
like(x, dx::AbstractArray) = eltype(dx) === eltype(x) && is_readable(dx) ? dx : copyto!(similar(x), dx)

function is_readable(x)
    try
        Fovea.layout(x)
        Fovea.device_of(x)
        return true
    catch e
        e isa Fovea.UnreadableArray || rethrow()
        return false
    end
end

end
