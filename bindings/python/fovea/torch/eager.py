"""The eager way of one call: straight into the library, with torch.autograd.Function where a gradient is wanted. The
host's time counts here. Whatever is not plain eager goes through the operators of ops.py."""

import torch
import torch.autograd.forward_ad as forward_ad

from . import ops, runtime, vmap
from .views import resolved

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Attention(torch.autograd.Function):
    """Saved tensors carry torch's version check: one that was changed in place before the backward is an error."""

    @staticmethod
    def forward(ctx, call, known, q, k, v, sink, *captured):
        if known is None:
            where = runtime.place(q)
            prepared = runtime.forward_plan(call, q, k, v, sink, captured, where)
        else:
            prepared, where = known
        o, lse, row_max, max_logit = runtime.run_forward(prepared, call, q, k, v, sink, captured, where)
        ctx.call, ctx.count, ctx.has_sink = call, len(captured), sink is not None
        ctx.names = [name for name, *_ in prepared.captured]
        extra = [x for x in (sink, *call.tensors()) if x is not None]
        ctx.save_for_backward(q, k, v, o, lse, *captured, *extra)
        if row_max is not None or max_logit is not None:
            ctx.mark_non_differentiable(*[x for x in (row_max, max_logit) if x is not None])
        ctx.set_materialize_grads(False)
        return o, lse, row_max, max_logit

    @staticmethod
    def backward(ctx, grad_o, grad_lse, *_):
        call = ctx.call
        q, k, v, o, lse, *rest = ctx.saved_tensors
        captured = rest[: ctx.count]
        sink = rest[ctx.count] if ctx.has_sink else None
        if grad_o is None and grad_lse is None:
            return (None,) * (6 + ctx.count)
        if torch.is_grad_enabled():  # create_graph=True
            with torch.no_grad():
                grads = runtime.backward(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse)
            return (None, None, *once([grads.get(name) for name in ("q", "k", "v", "sink", *ctx.names)]))
        grads = runtime.backward(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse).get
        return (None, None, grads("q"), grads("k"), grads("v"), grads("sink"), *[grads(name) for name in ctx.names])

    @staticmethod
    def jvp(ctx, *tangents):
        raise runtime.forward_mode()


class Once(torch.autograd.Function):
    """Passes gradients on, and says why where someone differentiates them again."""

    @staticmethod
    def forward(ctx, anchor, *grads):
        return grads

    @staticmethod
    def backward(ctx, *grads):
        raise runtime.second_derivative()


def once(grads):
    present = [g for g in grads if g is not None]
    anchor = torch.zeros((), requires_grad=True)
    marked = iter(Once.apply(anchor, *present))
    return [None if g is None else next(marked) for g in grads]


def is_plain(tensors) -> bool:
    """Tensors of the meta device go through the operators, too, which know shapes and strides without running; so does what
    torch.jit.trace is to see."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() or tensors[0].is_meta:
        return False
    for x in tensors:
        if type(x) not in _PLAIN:
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


def attend(call, q, k, v, sink, captured):
    """(o, lse, row_max, max_logit); what the call did not ask for is None."""
    if torch.compiler.is_compiling():
        return asked_for(call, ops.dispatch(call, q, k, v, sink, captured))
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return asked_for(call, vmap.transformed(call, q, k, v, sink, captured))
    if not is_plain((q, k, v, *captured)):
        return asked_for(call, ops.dispatch(call, q, k, v, sink, captured))
    q, k, v, sink, *captured = [resolved(x) for x in (q, k, v, sink, *captured)]
    if call.wants or forward_ad._current_level >= 0:
        return asked_for(call, Attention.apply(call, None, q, k, v, sink, *captured))
    return runtime.forward(call, q, k, v, sink, captured)


def asked_for(call, outputs):
    o, lse, row_max, max_logit = outputs
    return (
        o,
        lse if call.lse else None,
        row_max if call.row_max else None,
        max_logit if call.max_logit else None,
    )
