"""Second derivatives and forward mode: how a forward and its backward change along a direction, which the library computes as
direction=tangent. Second derivatives are symmetric, so the same numbers are the backward of a backward."""

import dataclasses

import torch

from .._core import Unsupported
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


class Gradients(torch.autograd.Function):
    """The node of autograd's graph for gradients that were computed before, made if a graph of the backward is asked for
    (create_graph=True)."""

    @staticmethod
    def forward(ctx, known, grads, q, k, v, sink, grad_o, grad_lse, *captured):
        call, o, lse = known
        ctx.call, ctx.present = call, [g is not None for g in grads]
        ctx.count = len(captured)
        ctx.save_for_backward(q, k, v, sink, grad_o, grad_lse, o, lse, *captured, *call.tensors())
        ctx.set_materialize_grads(False)
        return tuple(g for g in grads if g is not None)

    @staticmethod
    def backward(ctx, *changes):
        q, k, v, sink, grad_o, grad_lse, o, lse, *captured = ctx.saved_tensors
        captured, call = captured[: ctx.count], ctx.call
        names = names_of(call)
        needed = ctx.needs_input_grad[2:6] + ctx.needs_input_grad[8:]
        given = iter(changes)
        tangents = {name: next(given) for name, there in zip(names, ctx.present) if there}
        if all(x is None for x in tangents.values()):
            return (None,) * (8 + len(captured))
        wants = ",".join(name for name, need in zip(names, needed) if need)
        at = BoundCall(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse)
        with torch.no_grad():
            o_change, lse_change, grads = tangent(at, tangents, wants)
        found = [grads.get(name) for name in names]
        out = [*found[:4], o_change, lse_change if grad_lse is not None else None, *found[4:]]
        if torch.is_grad_enabled():
            out = once((*changes, *ctx.saved_tensors[: 8 + ctx.count]), out)
        return (None, None, *out)


def captured_names(call):
    return Formulas.parse(call.formulas).names


def names_of(call):
    """What gradients are called, in the order of a call's tensors."""
    return ["q", "k", "v", "sink", *captured_names(call)]


class NoThirdDerivative(torch.autograd.Function):
    """Passes gradients on; raises if they are differentiated again."""

    @staticmethod
    def forward(ctx, count, *tensors):
        return tensors[count:]

    @staticmethod
    def backward(ctx, *grads):
        raise Unsupported(
            "fovea.torch has first and second derivatives of attention, and no third one. What works: take it through "
            "torch.nn.attention.flex_attention.flex_attention in eager mode, which is made of differentiable operations, for "
            "the part of the model whose third derivative is needed"
        )


def once(inputs, grads):
    inputs, present = ([x for x in tensors if x is not None] for tensors in (inputs, grads))
    marked = iter(NoThirdDerivative.apply(len(inputs), *inputs, *present)) if present else None
    return [None if g is None else next(marked) for g in grads]
