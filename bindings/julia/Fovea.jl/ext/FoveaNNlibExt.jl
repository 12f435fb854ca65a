# NNlib's activations in modifiers: each as one operation of the language instead of the several that it consists of.
module FoveaNNlibExt

# Before Julia 1.9 Fovea reads this file itself, into a module that has both packages.
isdefined(Base, :get_extension) ? (import Fovea, NNlib) : (import ..Fovea, ..NNlib)

NNlib.sigmoid(x::Fovea.Sym) = Fovea.sigmoid(x)
NNlib.softplus(x::Fovea.Sym) = Fovea.softplus(x)
NNlib.relu(x::Fovea.Sym) = max(x, zero(x))
if isdefined(NNlib, :tanh_fast)
    NNlib.tanh_fast(x::Fovea.Sym) = tanh(x)
    NNlib.sigmoid_fast(x::Fovea.Sym) = Fovea.sigmoid(x)
end

end
