"""torch.func over attention. Under vmap the mapped dimension joins the batch, and formulas see the batch index they mean;
under grad an autograd.Function of the newer kind stands round the operators."""

import re

import torch

from .._core import OUTPUTS, Unsupported
from . import ops, runtime

BATCH_AXIS = {"bhsd": 0, "bshd": 0, "sbhd": 1}


def forward(info, in_dims, q, k, v, sink, captured, *rest):
    (layout, outputs, *_), shared = ops.unpack_options(rest[8]), (sink, captured, rest[:7])
    refuse_mapped(in_dims[3:12], shared, layout, outputs)
    axis, n = BATCH_AXIS[layout], info.batch_size
    q, k, v = (joined(x, d, axis, n) for x, d in zip((q, k, v), in_dims))
    rest = (*rest[:7], inner_batch(rest[7], q.shape[axis] // n), *rest[8:])
    o, *others = ops.attention(q, k, v, sink, captured, *rest)
    out = apart(o, axis, n), *(rows_apart(x, n) for x in others)
    return out, (0,) * len(out)


def backward(info, in_dims, q, k, v, sink, captured, o, lse, grad_o, grad_lse, *rest):
    layout, outputs, *_, wants = ops.unpack_options(rest[8])
    refuse_mapped((in_dims[3], in_dims[4], *in_dims[9:16]), (sink, captured, rest[:7]), layout, outputs)
    if set(wants.split(",")) - {"q", "k", "v"}:
        raise Unsupported(
            f"vmap over the gradient of what a modifier captures ({wants}) is not supported: "
            f"loop over the examples, or sum their losses and take one gradient"
        )
    axis, n = BATCH_AXIS[layout], info.batch_size
    q, k, v = (joined(x, d, axis, n) for x, d in zip((q, k, v), in_dims))
    # What is shared by all examples (jacrev) has one memory for them; the library takes no such output.
    o, grad_o = joined(o, in_dims[5], axis, n).contiguous(), joined(grad_o, in_dims[7], axis, n)
    lse = joined(lse, in_dims[6], 0, n).contiguous()
    grad_lse = None if grad_lse is None else joined(grad_lse, in_dims[8], 0, n)
    rest = (*rest[:7], inner_batch(rest[7], q.shape[axis] // n), *rest[8:])
    grads = ops.attention_backward(q, k, v, sink, captured, o, lse, grad_o, grad_lse, *rest)
    return [apart(x, axis, n) for x in grads], [0] * len(grads)


def refuse_mapped(dims, shared, layout, outputs):
    sink, captured, bound = shared
    flat = [d for dim in dims for d in (dim if isinstance(dim, (list, tuple)) else [dim])]
    if any(d is not None for d in flat) or any(x is not None for x in bound):
        raise Unsupported(
            "vmap over captured tensors, sinks, lengths or seeds is not supported: only q, k and v may be "
            "mapped; give the mapped values a batch dimension and index it by b"
        )
    of_heads = [name for name in outputs.split(",") if OUTPUTS.get(name) == "heads"]
    if layout == "thd" or of_heads:
        what = of_heads[0] if of_heads else "packed sequences"
        raise Unsupported(f"vmap over {what} is not supported: use a batch dimension")


def joined(x, dim, axis, n):
    """The mapped dimension as the outer part of the batch."""
    x = x.unsqueeze(0).expand(n, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.movedim(0, axis).flatten(axis, axis + 1)


def apart(x, axis, n):
    return x.unflatten(axis, (n, x.shape[axis] // n)).movedim(axis, 0)


def rows_apart(x, n):
    return apart(x, 0, n) if x.dim() > 1 else x.expand(n, *x.shape)


def inner_batch(formulas, batch):
    """Formulas whose b counts inside one example."""
    mod, mask, bprop, captured, scalars, block = formulas.split("\n")
    mod, mask, bprop, block = [
        re.sub(r"\bB\b", str(batch), re.sub(r"\bb\b", f"(b % {batch})", text)) for text in (mod, mask, bprop, block)
    ]
    uses = ";".join(
        f"{name} {use.replace('b', '-').replace('?', '-')}"
        for name, use in (item.split(" ") for item in captured.split(";") if item)
    )
    return "\n".join([mod, mask, bprop, uses, scalars, block])


class Transformed(torch.autograd.Function):
    """What torch.func.grad and vjp differentiate; vmap maps over the operators inside."""

    generate_vmap_rule = True

    @staticmethod
    def forward(texts, bound, q, k, v, sink, *captured):
        return ops.attention(q, k, v, sink, list(captured), *bound, *texts)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.texts, ctx.bound, q, k, v, sink, *captured = inputs
        o, lse, *others = output
        ctx.mark_non_differentiable(*others)
        ctx.has_sink = sink is not None
        ctx.save_for_backward(q, k, v, o, lse, *([sink] if ctx.has_sink else []), *captured)

    @staticmethod
    def backward(ctx, grad_o, grad_lse, *_):
        q, k, v, o, lse, *rest = ctx.saved_tensors
        sink, captured = (rest[0], rest[1:]) if ctx.has_sink else (None, rest)
        call = ops.unpack(*ctx.texts, ctx.bound)
        grads = Backward.apply(
            ctx.texts, ctx.bound, q, k, v, o, lse, grad_o, grad_lse if "lse" in call.outputs else None, sink, *captured
        )
        found = dict(zip(call.wants.split(","), grads))
        return None, None, *(found.get(name) for name in ops.named(call, q, k, v, sink, captured))

    @staticmethod
    def jvp(ctx, *tangents):
        raise runtime.forward_mode()


class Backward(torch.autograd.Function):
    """torch.func always asks for a graph of the backward; only a second derivative walks it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(texts, bound, q, k, v, o, lse, grad_o, grad_lse, sink, *captured):
        return tuple(
            ops.attention_backward(q, k, v, sink, list(captured), o, lse, grad_o, grad_lse, *bound, *texts)
        )

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *grads):
        raise runtime.second_derivative()

    @staticmethod
    def jvp(ctx, *tangents):
        raise runtime.second_derivative()


def transformed(call, q, k, v, sink, captured):
    """Attention inside torch.func's transforms."""
    texts, bound = ops.texts_of(call), call.tensors()
    return Transformed.apply(texts, bound, q, k, v, sink, *captured)


ops.attention.register_vmap(forward)
ops.attention_backward.register_vmap(backward)
