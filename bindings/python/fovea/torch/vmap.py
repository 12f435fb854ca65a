"""torch.func over attention. Under vmap the mapped dimension joins the batch, and b in formulas is the index inside one example;
if anything but q, k and v is mapped, examples are computed one by one. Under grad the operators are wrapped by an
autograd.Function with setup_context."""

import dataclasses

import torch

from .._core import OUTPUTS
from .._request import AXES, substitute
from . import ops
from .modifiers import Formulas, names_of
from .ops import COUNT
from .state import is_forward_mode


def rule(operator, *more):
    """torch's rule for vmap of an operator that takes q, k, v, sink, captured, `more` and then a call."""
    names = ("q", "k", "v", "sink", "captured", *more)
    count = len(names)

    def mapped(info, in_dims, *arguments):
        given, dims, rest = dict(zip(names, arguments)), dict(zip(names, in_dims)), arguments[count:]
        options = layout, *_, wants = ops.unpack_options(rest[COUNT + 1])
        gradients = (*wants.split(","), *given.get("names", "").split(",")) if more else ()
        if not is_joined((*in_dims[3:5], *in_dims[count : count + COUNT]), rest[:COUNT], options, gradients):
            return one_by_one(operator, info, in_dims, arguments)
        axis, n = AXES[layout][0], info.batch_size
        for name in names:
            if name in ("q", "k", "v"):
                given[name] = into_batch(given[name], dims[name], axis, n)
            elif name in ("o", "grad_o", "lse", "grad_lse") and given[name] is not None:
                # One that all examples share (jacrev) is expanded; the library needs o and lse in memory of their own.
                given[name] = into_batch(given[name], dims[name], axis if name[-1] == "o" else 0, n).contiguous()
            elif name == "moving":
                given[name] = [into_batch(x, d, axis, n).contiguous() for x, d in zip(given[name], dims[name])]
        formulas = inner_batch(rest[COUNT], given["q"].shape[axis] // n)
        out = operator(*given.values(), *rest[:COUNT], formulas, *rest[COUNT + 1 :])
        return type(out)(apart(x, axis, n) for x in out), type(out)([0] * len(out))

    return mapped


def is_joined(dims, bound, options, gradients=()) -> bool:
    """Can the mapped dimension join the batch? Only q, k, v and what goes with them may be mapped; each example has gradients of
    its own of what all share."""
    flat = [d for dim in dims for d in (dim if isinstance(dim, (list, tuple)) else [dim])]
    layout, outputs, *_ = options
    of_heads = any(OUTPUTS.get(name) == "heads" for name in outputs.split(","))
    shared = any(name not in ("q", "k", "v", "") for name in gradients)
    others = any(x is not None for x in (*flat, *bound))
    return not (shared or of_heads or layout == "thd" or others)


def one_by_one(operator, info, in_dims, arguments):
    """The operator of each example."""
    found = [operator(*[example(x, d, i) for x, d in zip(arguments, in_dims)]) for i in range(info.batch_size)]
    kind = type(found[0])
    return kind(torch.stack(parts) for parts in zip(*found)), kind([0] * len(found[0]))


def example(x, dims, i):
    if isinstance(x, (list, tuple)):
        return [example(y, d, i) for y, d in zip(x, dims or [None] * len(x))]
    return x if x is None or dims is None else x.select(dims, i)


def into_batch(x, dim, axis, n):
    """The mapped dimension as the outer part of the batch."""
    x = x.unsqueeze(0).expand(n, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.movedim(0, axis).flatten(axis, axis + 1)


def apart(x, axis, n):
    """The inverse, for a tensor, its rows, or an output that was not asked for."""
    if x.dim() == 1:
        return x.expand(n, *x.shape)
    at = axis if x.dim() == 4 else 0
    return x.unflatten(at, (n, x.shape[at] // n)).movedim(at, 0)


def inner_batch(text, batch):
    """The formulas, with b as the index inside one example."""
    formulas = Formulas.parse(text)
    for name in ("mod", "mask", "bprop", "block"):
        setattr(formulas, name, substitute(getattr(formulas, name), {"b": f"(b % {batch})", "B": str(batch)}))
    formulas.uses = [use.replace("b", "-").replace("?", "-") for use in formulas.uses]
    return formulas.text()


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
        ops.keep(ctx, inputs[0], (*inputs[1:], o, lse))

    @staticmethod
    def backward(ctx, grad_o, grad_lse, *_):
        call, bound, (q, k, v, sink, *captured, o, lse) = ops.kept(ctx)
        grad_lse = grad_lse if "lse" in call.outputs else None
        grads = TransformedBackward.apply(ctx.texts, *bound, q, k, v, sink, o, lse, grad_o, grad_lse, *captured)
        return *(None,) * (1 + COUNT), *ops.by_argument(call, grads)

    @staticmethod
    def jvp(ctx, *moving):
        call, bound, (q, k, v, sink, *captured, o, lse) = ops.kept(ctx)
        changes = dict(zip(names_of(call), moving[1 + COUNT :]))
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
        ops.keep(ctx, inputs[0], inputs[1:])

    @staticmethod
    def backward(ctx, *changes):
        by_name, o_change, lse_change = ops.along_gradients(ctx, changes)
        return *(None,) * (1 + COUNT), *by_name[:4], None, None, o_change, lse_change, *by_name[4:]

    @staticmethod
    def jvp(ctx, *moving):
        call, bound, (q, k, v, sink, o, lse, grad_o, grad_lse, *captured) = ops.kept(ctx)
        at = (q, k, v, sink, captured, o, lse)
        *first, _, _, o_change, lse_change = moving[1 + COUNT : 9 + COUNT]
        changes = dict(zip(names_of(call), (*first, *moving[9 + COUNT :])))
        found = ops.along(ctx.texts, bound, (*at, grad_o, grad_lse), changes, call.wants)
        parts = [] if found is None else [found[2:]]
        if o_change is not None or lse_change is not None:  # a backward is linear in what comes in
            o_change = torch.zeros_like(grad_o) if o_change is None else o_change
            parts.append(ops.attention_backward(*at, o_change, lse_change, *bound, *ctx.texts))
        return tuple(sum(change) for change in zip(*parts))


def transformed(call, q, k, v, sink, captured):
    """Attention inside torch.func's transforms."""
    if not call.wants and is_forward_mode():
        call = dataclasses.replace(call, wants="q,k,v")  # for lse
    return Transformed.apply(ops.Texts(ops.texts_of(call)), *call.tensors(), q, k, v, sink, *captured)


OUTPUTS_AND_GRADIENTS = ("o", "lse", "grad_o", "grad_lse")
ops.attention.register_vmap(rule(ops.attention))
ops.attention_backward.register_vmap(rule(ops.attention_backward, *OUTPUTS_AND_GRADIENTS))
ops.attention_tangent.register_vmap(rule(ops.attention_tangent, *OUTPUTS_AND_GRADIENTS, "moving", "names"))
