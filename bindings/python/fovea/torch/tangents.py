"""Second derivatives and forward mode: how a forward and its backward change along a direction, which the library computes as
direction=tangent. Second derivatives are symmetric, so the same numbers are the backward of a backward."""

import dataclasses

import torch

from .._request import AXES
from . import runtime
from .call import BoundCall, resolved, zeros_like
from .call_cache import TABLE
from .modifiers import Formulas
from .plans import prepare_tangent
from .state import place


def tangent(at: BoundCall, tangents: dict, wants: str):
    """(change of o, of lse, of each gradient that `wants` names, by name) along the tangents, by name. `at` is where the
    derivatives are taken."""
    call = dataclasses.replace(at.call, wants=wants, engine="reference" if at.q.device.type == "cpu" else "")
    grad_o = grad_lse = None
    if wants:
        grad_o = zeros_like(at.o) if at.grad_o is None else resolved(at.grad_o)
        grad_lse = None if at.grad_lse is None else resolved(at.grad_lse).to(at.lse.dtype).contiguous()
    at = at._replace(call=call, grad_o=grad_o, grad_lse=grad_lse)
    q, k, v, where = at.q, at.k, at.v, place(at.q)
    found = prepared_for(at, where)

    tangents = {name: resolved(x.detach()) for name, x in tangents.items() if x is not None}
    inputs = {name: dense(tangents.get(name), x, call.layout) for name, x in zip("qkv", (q, k, v))}
    o = torch.empty_like(dense(None, at.o, call.layout), memory_format=torch.contiguous_format)
    lse = torch.empty_like(at.lse)
    grads = {name: torch.empty_strided(shape, strides, dtype=q.dtype) for name, shape, strides in found.inputs}
    bound = {"q": q, "k": k, "v": v, "lse": at.lse, "grad_o": grad_o, "grad_lse": grad_lse}
    bound.update({f"tangent_{name}": x for name, x in inputs.items()}, tangent_o=o, tangent_lse=lse)
    bound.update({f"grad_{name}": x for name, x in grads.items()})
    if at.sink is not None:
        bound.update(sink=at.sink, tangent_sink=like(tangents.get("sink"), at.sink))
        if "sink" in found.wanted:
            bound["grad_sink"] = grads["sink"] = torch.empty_like(at.sink)
    for name, tensor in call.lengths():
        bound[name] = tensor

    pointers, moving = [x.data_ptr() for x in at.captured], []
    for (name, code, extents, _), gradient, x in zip(found.captured, found.gradients, at.captured):
        if gradient is not None:
            grads[name] = torch.empty(x.shape, dtype=x.dtype)
            pointers.append(grads[name].data_ptr())
        if name in tangents:
            tangents[name] = like(tangents[name], x)
            moving.append((name, tangents[name].data_ptr(), code, extents, None))
    addresses = {name: x.data_ptr() for name, x in bound.items() if x is not None}
    runtime.run_with_numbers(found, call, pointers, where, **addresses, tensor_tangents=moving)
    return back(o, call.layout), lse, grads


def prepared_for(at, where):
    incoming = at.o if at.grad_o is None else at.grad_o
    seen = runtime.signature([at.q, at.k, at.v, at.o, incoming, *at.captured])
    key = ("tangent", at.call.key(), at.sink is None, at.grad_lse is None, where[2], seen)
    return TABLE.get(key) or TABLE.put(key, prepare_tangent(at, where))


def like(x, other):
    """The tangent, dense and of the type of its tensor; zeros if it is None."""
    return torch.zeros_like(other, memory_format=torch.contiguous_format) if x is None else x.to(other.dtype).contiguous()


def dense(x, other, layout):
    """The same for q, k, v or o: as [B, H, S, D], or packed."""
    x = zeros_like(other) if x is None else x
    return like(x if layout == "thd" else x.permute(AXES[layout]), other)


def back(x, layout):
    """[B, H, S, D] in the order of the layout."""
    return x if layout == "thd" else x.permute([AXES[layout].index(i) for i in range(4)])


def captured_names(call):
    return Formulas.parse(call.formulas).names


def names_of(call):
    """What gradients are called, in the order of a call's tensors."""
    return ["q", "k", "v", "sink", *captured_names(call)]
