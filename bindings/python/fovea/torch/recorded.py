"""Callbacks (graph, score, tensors) as Transformer Engine takes them: run once per call against Fovea's recorder."""
from .._core import InvalidArgument
from .modifiers import Formulas, bindable, is_callback, mask_text, take_captured
from .trace import Trace


def record_callbacks(score_mod, bprop, mask_mod, named, sizes, like) -> Formulas:
    """named: {"tensors": ..., "bprop_tensors": ..., "scalars": ...}; sizes: (B, H, Sq, Skv), or None where packed."""
    from ..recorder import record
    if score_mod is None:
        raise InvalidArgument("score_mod_bprop: given without score_mod")
    if named["scalars"]:
        raise InvalidArgument("scalars: a callback has tensors only; give a tensor of one element")
    if not is_callback(score_mod) or (bprop is not None and not is_callback(bprop, (3, 4))):
        raise InvalidArgument("score_mod and score_mod_bprop: both are callbacks (graph, score, tensors), or neither is")
    recorded = record(score_mod, bprop, tensors=named["tensors"] or {}, bprop_tensors=named["bprop_tensors"] or {},
                      sizes=sizes)
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
        take_captured(out, trace, like)
    return out
