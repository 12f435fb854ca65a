"""Eager calls: straight into the library, with a torch.autograd.Function if a gradient is wanted. The host's time of small
calls is spent here. Calls that are not plain eager go through the operators of ops.py."""

import dataclasses

import torch

from .._core import OUTPUTS
from . import ops, runtime, vmap
from .block_tables import settled
from .call import PLAIN, BoundCall, resolved, zeros_like
from .call_cache import find
from .modifiers import names_of
from .state import is_forward_mode, is_watched, place, transforms

NONE = (None,) * len(OUTPUTS)


class Attention(torch.autograd.Function):
    """The node of autograd's graph for outputs that were computed before: a call that is looked up has run by then. Saved
    tensors carry torch's version check: if one was changed in place before the backward, that is an error."""

    @staticmethod
    def forward(ctx, run, q, k, v, sink, *captured):
        prepared, call, (o, lse, *others) = run
        ctx.run = prepared, call, sink is not None
        if is_forward_mode():
            ctx.at = BoundCall(call, q, k, v, sink, captured, o, lse)
        if prepared.plain and call.seed is None:
            ctx.save_for_backward(q, k, v, o, lse, *captured)
        else:
            extra = [x for x in (sink, *call.tensors()) if x is not None]
            ctx.save_for_backward(q, k, v, o, lse, *captured, *extra)
        ctx.set_materialize_grads(False)
        if not call.outputs:  # each output takes autograd time
            return o
        ctx.mark_non_differentiable(*[x for x in others if x is not None])
        return o, lse if "lse" in call.outputs else None, *others

    @staticmethod
    def backward(ctx, grad_o, grad_lse=None, *_):
        saved, (prepared, call, _), found = ctx.saved_tensors, ctx.run, None
        if grad_lse is None and grad_o is not None and prepared.direct is not None and not torch.is_grad_enabled():
            found = find(prepared, None, [grad_o, *saved], call.scale, call.values)
            if found is not None and found[0] is None:
                return found[3]
        return long_backward(ctx.run, saved, grad_o, grad_lse, found)

    @staticmethod
    def jvp(ctx, _, *moving):
        call = ctx.at.call
        with torch.no_grad():
            o, lse, _ = runtime.tangent(ctx.at, dict(zip(names_of(call), moving)), "")
        if not call.outputs:
            return o
        return o, lse if "lse" in call.outputs else None, *(None,) * (len(OUTPUTS) - 1)


def long_backward(run, saved, grad_o, grad_lse, found):
    """A backward that is not a direct call. If its gradients are to have a graph of their own, it is the operator."""
    prepared, call, has_sink = run
    names = [name for name, *_ in prepared.captured]
    if grad_o is None and grad_lse is None:
        return (None,) * (5 + len(names))
    q, k, v, o, lse, *rest = saved
    captured = rest[: len(names)]
    sink = rest[len(names)] if has_sink else None
    if torch.is_grad_enabled():  # by create_graph=True
        grad_o = zeros_like(o) if grad_o is None else grad_o
        at = (q, k, v, sink, captured, o.detach(), lse.detach(), grad_o, grad_lse)
        return (None, *ops.by_argument(call, ops.attention_backward(*at, *call.tensors(), *ops.texts_of(call))))
    grads = runtime.backward(BoundCall(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse), found)
    return (None, *(grads.get(name) for name in ("q", "k", "v", "sink", *names)))


def runs_directly(tensors) -> bool:
    """May the call go straight into the library? Not if a mode or torch.jit.trace must see an operator, and not for tensors
    without memory (meta) or of other classes."""
    if is_watched() or tensors[0].is_meta:
        return False
    for x in tensors:
        if type(x) not in PLAIN:
            return False
    return True


def wanted(q, k, v, sink, names, captured) -> str:
    """The gradients that a backward will be asked for, by name."""
    if not torch.is_grad_enabled():
        return ""
    if not (captured or sink is not None or q.requires_grad or k.requires_grad or v.requires_grad):
        return ""
    out = [name for name, x in (("q", q), ("k", k), ("v", v)) if x.requires_grad]
    if sink is not None and sink.requires_grad:
        out.append("sink")
    out += [name for name, x in zip(names, captured) if x.requires_grad]
    return ",".join(out)


def attend_run(found, scale):
    """The outputs of a call that look_up has run."""
    tensors, prepared, outputs, steps = found
    call = prepared.call
    if not call.wants:
        return outputs
    call = call.with_numbers(scale, () if steps is None else steps.shifts)
    captured = runtime.captured_by(prepared, tensors) if prepared.slots else ()
    return differentiable((prepared, call, outputs), (*tensors[:3], None, *captured))


def attend_found(found, call=None):
    """The outputs of a call that was looked up and has a plan. `call` is given if it binds values of its own."""
    prepared, tensors = found.prepared, found.tensors
    if call is None:
        call = prepared.call.with_numbers(found.scale, found.values)
    else:
        call.formulas, call.wants, call.values = prepared.call.formulas, prepared.call.wants, found.values
    q, k, v = tensors[:3]
    sink = tensors[3] if "sink" in prepared.roles else None
    captured = runtime.captured_by(prepared, tensors) if prepared.slots else ()
    outputs = runtime.run_forward(prepared, BoundCall(call, q, k, v, sink, captured), found.where)
    return differentiable((prepared, call, outputs), (q, k, v, sink, *captured)) if call.wants else outputs


def differentiable(run, tensors):
    """The outputs of a call that has run, as autograd sees them."""
    out = Attention.apply(run, *tensors)
    return out if isinstance(out, tuple) else (out, *NONE)


def attend(call, q, k, v, sink, captured):
    """(o, *OUTPUTS); what the call did not ask for is None."""
    if torch.compiler.is_compiling():
        return asked_for(call, ops.dispatch(call, q, k, v, sink, captured))
    if transforms():
        return asked_for(call, vmap.transformed(call, q, k, v, sink, captured))
    if not runs_directly((q, k, v, *captured)):
        return asked_for(call, ops.dispatch(call, q, k, v, sink, captured))
    q, k, v, sink, *captured = [resolved(x) for x in (q, k, v, sink, *captured)]
    if is_forward_mode() and not call.wants:
        call = dataclasses.replace(call, wants="q,k,v")  # for lse
    at, where = settled(BoundCall(call, q, k, v, sink, captured)), place(q)
    prepared = runtime.forward_plan(at, where)
    outputs = runtime.run_forward(prepared, at, where)
    return differentiable((prepared, at.call, outputs), (*at[1:5], *at.captured)) if call.wants else outputs


def asked_for(call, outputs):
    return outputs[0], *(x if name in call.outputs else None for name, x in zip(OUTPUTS, outputs[1:]))
