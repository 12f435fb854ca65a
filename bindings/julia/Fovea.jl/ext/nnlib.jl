# NNlib's activations in modifiers: as one operation of the language instead of what they are made of.

NNlib.sigmoid(x::Fovea.Sym) = Fovea.sigmoid(x)
NNlib.softplus(x::Fovea.Sym) = Fovea.softplus(x)
NNlib.relu(x::Fovea.Sym) = max(x, zero(x))
if isdefined(NNlib, :tanh_fast)
    NNlib.tanh_fast(x::Fovea.Sym) = tanh(x)
    NNlib.sigmoid_fast(x::Fovea.Sym) = Fovea.sigmoid(x)
end
