"""Callbacks (graph, score, tensors) as Transformer Engine takes them: run once per call against Fovea's recorder."""
from .._core import InvalidArgument
from .modifiers import Formulas, bindable, mask_text
from .trace import Trace


def record_callbacks(score_mod, bprop, mask_mod, tensors, scalars, sizes, like, bprop_tensors=None) -> Formulas:
    if score_mod is None:
        raise InvalidArgument("score_mod_bprop: given without score_mod")
    if scalars:
        raise InvalidArgument("scalars: a callback has tensors only; give a tensor of one element")
    from ..recorder import record
    known = None if None in sizes else tuple(sizes)
    recorded = record(score_mod, bprop, tensors=tensors, bprop_tensors=bprop_tensors or {}, sizes=known)
    out = Formulas()
    out.mod, out.bprop = recorded.mod, recorded.bprop or ""
    for capture in recorded.captures:
        tensor = bindable(capture.tensor, like, capture.name)
        out.names.append(capture.name)
        out.tensors.append(tensor)
        out.uses.append("?" * tensor.dim())
    if mask_mod is not None:
        trace = Trace(like.device)
        out.mask = mask_text(trace, mask_mod)
        for i, tensor in enumerate(trace.tensors):
            out.names.append("_c" + str(i))
            out.tensors.append(bindable(tensor, like))
            out.uses.append("".join([leaf or "-" for leaf in trace.leaves[i]]))
    return out
