# Julia 1.9 and later load this when ChainRulesCore is loaded; before, src/hooks.jl does the same.
module FoveaChainRulesCoreExt

using Fovea: Fovea
using ChainRulesCore: ChainRulesCore

include("chain_rules.jl")

end
