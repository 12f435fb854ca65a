"""torch.func over attention. Under vmap the mapped dimension joins the batch, and b in formulas is the index inside one example;
if anything but q, k and v is mapped, examples are computed one by one. Under grad the operators are wrapped by an
autograd.Function with setup_context."""

import dataclasses
import re

import torch

from .._core import OUTPUTS
from .._request import AXES
from . import ops
from .call import BOUND
from .state import is_forward_mode


def forward(info, in_dims, q, k, v, sink, captured, *rest):
    options = ops.unpack_options(rest[8])
    if not is_joined(in_dims[3:12], rest[:7], options):
        out, dims = one_by_one(ops.attention, info, in_dims, (q, k, v, sink, captured, *rest))
        return tuple(out), tuple(dims)
    layout = options[0]
    axis, n = AXES[layout][0], info.batch_size
    q, k, v = (into_batch(x, d, axis, n) for x, d in zip((q, k, v), in_dims))
    rest = (*rest[:7], inner_batch(rest[7], q.shape[axis] // n), *rest[8:])
    o, *others = ops.attention(q, k, v, sink, captured, *rest)
    out = apart(o, axis, n), *(apart(x, 0, n) if x.dim() > 1 else x.expand(n, *x.shape) for x in others)
    return out, (0,) * len(out)


def backward(info, in_dims, q, k, v, sink, captured, o, lse, grad_o, grad_lse, *rest):
    options = layout, *_, wants = ops.unpack_options(rest[8])
    if not is_joined((in_dims[3], in_dims[4], *in_dims[9:16]), rest[:7], options, wants.split(",")):
        arguments = (q, k, v, sink, captured, o, lse, grad_o, grad_lse, *rest)
        return one_by_one(ops.attention_backward, info, in_dims, arguments)
    axis, n = AXES[layout][0], info.batch_size
    q, k, v = (into_batch(x, d, axis, n) for x, d in zip((q, k, v), in_dims))
    # A tensor that all examples share (jacrev) is expanded; the library needs o and lse in memory of their own.
    o, grad_o = into_batch(o, in_dims[5], axis, n).contiguous(), into_batch(grad_o, in_dims[7], axis, n)
    lse = into_batch(lse, in_dims[6], 0, n).contiguous()
    grad_lse = None if grad_lse is None else into_batch(grad_lse, in_dims[8], 0, n)
    rest = (*rest[:7], inner_batch(rest[7], q.shape[axis] // n), *rest[8:])
    grads = ops.attention_backward(q, k, v, sink, captured, o, lse, grad_o, grad_lse, *rest)
    return [apart(x, axis, n) for x in grads], [0] * len(grads)


def tangent(info, in_dims, q, k, v, sink, captured, o, lse, grad_o, grad_lse, moving, names, *rest):
    options = layout, *_, wants = ops.unpack_options(rest[8])
    named = {*wants.split(","), *names.split(",")}
    if not is_joined((in_dims[3], in_dims[4], *in_dims[11:18]), rest[:7], options, named):
        arguments = (q, k, v, sink, captured, o, lse, grad_o, grad_lse, moving, names, *rest)
        return one_by_one(ops.attention_tangent, info, in_dims, arguments)
    axis, n = AXES[layout][0], info.batch_size
    fold = lambda x, d, at=axis: None if x is None else into_batch(x, d, at, n).contiguous()
    q, k, v, o, grad_o = (fold(x, in_dims[i]) for x, i in ((q, 0), (k, 1), (v, 2), (o, 5), (grad_o, 7)))
    lse, grad_lse = fold(lse, in_dims[6], 0), fold(grad_lse, in_dims[8], 0)
    moving = [fold(x, d) for x, d in zip(moving, in_dims[9])]
    rest = (*rest[:7], inner_batch(rest[7], q.shape[axis] // n), *rest[8:])
    out = ops.attention_tangent(q, k, v, sink, captured, o, lse, grad_o, grad_lse, moving, names, *rest)
    o, lse, *grads = out
    return [apart(o, axis, n), apart(lse, 0, n), *(apart(x, axis, n) for x in grads)], [0] * len(out)


def is_joined(dims, bound, options, gradients=()) -> bool:
    """Can the mapped dimension join the batch? Only q, k, v and what goes with them may be mapped; each example has gradients of
    its own of what all share."""
    flat = [d for dim in dims for d in (dim if isinstance(dim, (list, tuple)) else [dim])]
    layout, outputs, *_ = options
    of_heads = any(OUTPUTS.get(name) == "heads" for name in outputs.split(","))
    shared = any(name not in ("q", "k", "v", "") for name in gradients)
    return not (shared or of_heads or layout == "thd" or any(d is not None for d in flat) or any(x is not None for x in bound))


def one_by_one(operator, info, in_dims, arguments):
    """The operator of each example."""
    found = [operator(*[example(x, d, i) for x, d in zip(arguments, in_dims)]) for i in range(info.batch_size)]
    return [torch.stack(parts) for parts in zip(*found)], [0] * len(found[0])


def example(x, dims, i):
    if isinstance(x, (list, tuple)):
        return [example(y, d, i) for y, d in zip(x, dims or [None] * len(x))]
    return x if x is None or dims is None else x.select(dims, i)


def into_batch(x, dim, axis, n):
    """The mapped dimension as the outer part of the batch."""
    x = x.unsqueeze(0).expand(n, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.movedim(0, axis).flatten(axis, axis + 1)


def apart(x, axis, n):
    return x.unflatten(axis, (n, x.shape[axis] // n)).movedim(axis, 0)


def inner_batch(formulas, batch):
    """The formulas, with b as the index inside one example."""
    mod, mask, bprop, captured, scalars, block = formulas.split("\n")
    mod, mask, bprop, block = [
        re.sub(r"\bB\b", str(batch), re.sub(r"\bb\b", f"(b % {batch})", text)) for text in (mod, mask, bprop, block)
    ]
    uses = ";".join(
        f"{name} {use.replace('b', '-').replace('?', '-')}"
        for name, use in (item.split(" ") for item in captured.split(";") if item)
    )
    return "\n".join([mod, mask, bprop, uses, scalars, block])


class Texts(tuple):
    """ops.texts_of a call, as one argument: torch's rules for vmap take only flat ones."""


COUNT = len(BOUND)


class Transformed(torch.autograd.Function):
    """What torch.func differentiates; vmap maps over the operators inside."""

    generate_vmap_rule = True

    @staticmethod
    def forward(texts, *tensors):
        bound, (q, k, v, sink, *captured) = tensors[:COUNT], tensors[COUNT:]
        return ops.attention(q, k, v, sink, captured, *bound, *texts)

    @staticmethod
    def setup_context(ctx, inputs, output):
        o, lse, *others = output
        ctx.mark_non_differentiable(*others)
        keep(ctx, (*inputs, o, lse))

    @staticmethod
    def backward(ctx, grad_o, grad_lse, *_):
        call, bound, (q, k, v, sink, *captured, o, lse) = kept(ctx)
        grad_lse = grad_lse if "lse" in call.outputs else None
        grads = TransformedBackward.apply(ctx.texts, *bound, q, k, v, sink, o, lse, grad_o, grad_lse, *captured)
        found = dict(zip(call.wants.split(","), grads))
        return *(None,) * (1 + COUNT), *(found.get(name) for name in ops.named(call, q, k, v, sink, captured))

    @staticmethod
    def jvp(ctx, *moving):
        call, bound, (q, k, v, sink, *captured, o, lse) = kept(ctx)
        changes = dict(zip(ops.named(call, q, k, v, sink, captured), moving[1 + COUNT :]))
        found = ops.along(ctx.texts, bound, (q, k, v, sink, captured, o, lse, None, None), changes, "")
        return *found, *(None,) * (len(OUTPUTS) - 1)


class TransformedBackward(torch.autograd.Function):
    """torch.func always asks for a graph of the backward; only a second derivative walks it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(texts, *tensors):
        bound, (q, k, v, sink, o, lse, grad_o, grad_lse, *captured) = tensors[:COUNT], tensors[COUNT:]
        return tuple(ops.attention_backward(q, k, v, sink, captured, o, lse, grad_o, grad_lse, *bound, *texts))

    @staticmethod
    def setup_context(ctx, inputs, output):
        keep(ctx, inputs)

    @staticmethod
    def backward(ctx, *changes):
        call, bound, (q, k, v, sink, o, lse, grad_o, grad_lse, *captured) = kept(ctx)
        at = (q, k, v, sink, captured, o, lse, grad_o, grad_lse)
        wants = call.wants.split(",")
        o_change, lse_change, *grads = ops.along(ctx.texts, bound, at, dict(zip(wants, changes)), call.wants)
        by_name = [dict(zip(wants, grads)).get(name) for name in ops.named(call, *at[:5])]
        lse_change = None if grad_lse is None else lse_change
        return *(None,) * (1 + COUNT), *by_name[:4], None, None, o_change, lse_change, *by_name[4:]

    @staticmethod
    def jvp(ctx, *moving):
        call, bound, (q, k, v, sink, o, lse, grad_o, grad_lse, *captured) = kept(ctx)
        at = (q, k, v, sink, captured, o, lse)
        *first, _, _, o_change, lse_change = moving[1 + COUNT : 9 + COUNT]
        changes = dict(zip(ops.named(call, *at[:5]), (*first, *moving[9 + COUNT :])))
        found = ops.along(ctx.texts, bound, (*at, grad_o, grad_lse), changes, call.wants)
        parts = [] if found is None else [found[2:]]
        if o_change is not None or lse_change is not None:  # a backward is linear in what comes in
            o_change = torch.zeros_like(grad_o) if o_change is None else o_change
            parts.append(ops.attention_backward(*at, o_change, lse_change, *bound, *ctx.texts))
        return tuple(sum(change) for change in zip(*parts))


def keep(ctx, inputs):
    ctx.texts, *tensors = inputs
    ctx.present = [x is not None for x in tensors]
    saved = [x for x in tensors if x is not None]
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)


def kept(ctx):
    """The call, what is bound to it, and the other tensors."""
    saved = iter(ctx.saved_tensors)
    tensors = [next(saved) if there else None for there in ctx.present]
    return ops.unpack(*ctx.texts, tensors[:COUNT]), tensors[:COUNT], tensors[COUNT:]


def transformed(call, q, k, v, sink, captured):
    """Attention inside torch.func's transforms."""
    if not call.wants and is_forward_mode():
        call = dataclasses.replace(call, wants="q,k,v")  # for lse
    return Transformed.apply(Texts(ops.texts_of(call)), *call.tensors(), q, k, v, sink, *captured)


ops.attention.register_vmap(forward)
ops.attention_backward.register_vmap(backward)
ops.attention_tangent.register_vmap(tangent)
