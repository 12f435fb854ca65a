# A stand-in for ChainRulesCore if there is none: as much of it as Fovea uses.
module ChainRulesCore

abstract type AbstractTangent end
abstract type AbstractZero <: AbstractTangent end
struct NoTangent <: AbstractZero end
struct ZeroTangent <: AbstractZero end
struct Thunk{F}
    f::F
end
unthunk(x) = x
unthunk(x::Thunk) = x.f()
struct Tangent{P,T} <: AbstractTangent
    backing::T
end
Tangent{P}(; parts...) where {P} = Tangent{P,typeof(values(parts))}(values(parts))
Base.getproperty(x::Tangent, name::Symbol) = getproperty(getfield(x, :backing), name)
function rrule end

end
