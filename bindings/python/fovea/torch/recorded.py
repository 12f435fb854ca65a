"""Callbacks (graph, score, tensors) as Transformer Engine takes them: run once per call against Fovea's recorder. Under
torch.compile they run once per compilation, on stand-ins that have a shape and a type."""

import torch

from .._core import InvalidArgument
from ..recorder import record
from .modifiers import Formulas, bindable, is_callback, mask_text, take_captured
from .trace import Trace


def record_callbacks(score_mod, bprop, mask_mod, named, sizes, like) -> Formulas:
    """named: {"tensors": ..., "bprop_tensors": ..., "scalars": ...}; sizes: (B, H, Sq, Skv), or None if packed."""
    if score_mod is None:
        raise InvalidArgument("score_mod_bprop: given without score_mod")
    if named["scalars"]:
        raise InvalidArgument("scalars: a callback has tensors only; give a tensor of one element")
    if not is_callback(score_mod) or (bprop is not None and not is_callback(bprop, (3, 4))):
        raise InvalidArgument(
            "score_mod and score_mod_bprop: both are callbacks (graph, score, tensors), or neither is"
        )
    tensors, bprop_tensors = named["tensors"] or {}, named["bprop_tensors"] or {}
    out = Formulas()
    if torch.compiler.is_compiling():
        captures = recorded_once(out, score_mod, bprop, tensors, bprop_tensors, sizes)
    else:
        found = record(score_mod, bprop, tensors=tensors, bprop_tensors=bprop_tensors or None, sizes=sizes)
        out.mod, out.bprop = found.mod, found.bprop or ""
        captures = [(capture.name, capture.tensor) for capture in found.captures]
    if mask_mod is not None:  # before the others: names of what a trace captures are numbered from 0
        trace = Trace(like)
        out.mask = mask_text(trace, mask_mod)
        take_captured(out, trace, like)
    for name, tensor in captures:
        tensor = bindable(tensor, like, name)
        out.names.append(name)
        out.tensors.append(tensor)
        out.uses.append("?" * tensor.dim())
    return out


class StandIn:
    """The shape and type of a tensor, which is all that the recorder reads, and its number."""

    def __init__(self, at, shape, dtype):
        self.at, self.shape, self.dtype = at, shape, dtype


def recorded_once(out, score_mod, bprop, tensors, bprop_tensors, sizes):
    known = []
    first, second = entries(tensors, known), entries(bprop_tensors, known)
    out.mod, out.bprop, captures = texts(score_mod, bprop, first, second, sizes)
    return [(name, known[at]) for name, at in captures]


def entries(tensors, known):
    """(key, number of the tensor, shape, type) of each: constants that Dynamo can hand on."""
    out = []
    for key, tensor in tensors.items():
        at = next((i for i, other in enumerate(known) if other is tensor), len(known))
        if at == len(known):
            known.append(tensor)
        out.append((key, at, tuple(tensor.shape), str(tensor.dtype)))
    return tuple(out)


@torch.compiler.assume_constant_result
def texts(score_mod, bprop, first, second, sizes):
    made = {at: StandIn(at, shape, dtype) for _, at, shape, dtype in (*first, *second)}
    given = [{key: made[at] for key, at, *_ in group} for group in (first, second)]
    found = record(score_mod, bprop, tensors=given[0], bprop_tensors=given[1] or None, sizes=sizes)
    for capture in found.captures:
        if not isinstance(capture.tensor, StandIn):
            raise InvalidArgument(
                f"score_mod: under torch.compile the tensor {capture.name!r} of a callback must come in "
                f"score_mod_tensors"
            )
    return (
        found.mod,
        found.bprop or "",
        tuple((capture.name, capture.tensor.at) for capture in found.captures),
    )
