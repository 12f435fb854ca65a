"""Attention as operators of torch.library, for what looks at a program instead of running it: torch.compile, export, fake
tensors, vmap, dispatch modes. Plain eager calls take the shorter way of eager.py; both end in runtime.py."""

import dataclasses

import torch
from torch import Tensor

from .._core import OUTPUTS
from . import runtime, tangents
from .block_tables import settled
from .call import BOUND, Call, dense_like, heads_of, rows_dtype, rows_shape


def pack_options(call: Call) -> str:
    words = (call.layout, ",".join(call.outputs), ",".join(call.flags), call.engine, call.wants)
    return " ".join(word or "-" for word in words)


def unpack(formulas, options, values, numbers, lengths, tensors) -> Call:
    layout, outputs, flags, engine, wants = unpack_options(options)
    outputs, flags = (tuple(x.split(",")) if x else () for x in (outputs, flags))
    return Call(formulas, tuple(values), layout, engine, wants, outputs, flags, *numbers, *lengths, *tensors)


def unpack_options(options: str):
    return ["" if word == "-" else word for word in options.split(" ")]


def nothing(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=rows_dtype(x), device=x.device)


# Arguments of every operator: its tensors, then those of Call.tensors() and texts_of(call).
TENSORS = "Tensor q, Tensor k, Tensor v, Tensor? sink, Tensor[] captured"
OUTPUT_TENSORS = "Tensor o, Tensor lse"
CALL = ", ".join(f"Tensor? {name}" for name in BOUND)
CALL += ", str formulas, str options, float[] values, float[] numbers, SymInt[] lengths"


def operator(name, *arguments, returns="Tensor[]"):
    schema = f"({', '.join([TENSORS, *arguments, CALL])}) -> {returns}"
    return torch.library.custom_op(f"fovea::{name}", mutates_args=(), schema=schema)


def call_of(rest):
    """The Call of an operator's last arguments."""
    return unpack(*rest[7:], rest[:7])


@operator("attention", returns=f"({', '.join(['Tensor'] * (1 + len(OUTPUTS)))})")
def attention(q, k, v, sink, captured, *rest):
    call, captured = settled(call_of(rest), captured, q, k)
    return tuple(nothing(q) if x is None else x for x in runtime.forward(call, q, k, v, sink, captured))


@attention.register_fake
def _(q, k, v, sink, captured, *rest):
    call = call_of(rest)
    shapes, written = {"rows": rows_shape(call.layout, q), "heads": (heads_of(call.layout, q),)}, call.written()
    return dense_like(q, v.shape[-1]), *(
        q.new_empty(shapes[extent], dtype=rows_dtype(q)) if name in written else nothing(q)
        for name, extent in OUTPUTS.items()
    )


@operator("attention_backward", OUTPUT_TENSORS, "Tensor grad_o, Tensor? grad_lse")
def attention_backward(q, k, v, sink, captured, o, lse, grad_o, grad_lse, *rest):
    call, captured = settled(call_of(rest), captured, q, k)
    grads = runtime.backward(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse)
    return [grads[name] for name in call.wants.split(",")]


@attention_backward.register_fake
def _(q, k, v, sink, captured, o, lse, grad_o, grad_lse, *rest):
    return fresh_gradients(call_of(rest), q, k, v, sink, captured)


def named(call, q, k, v, sink, captured):
    return {"q": q, "k": k, "v": v, "sink": sink, **dict(zip(tangents.captured_names(call), captured))}


@operator("attention_tangent", OUTPUT_TENSORS, "Tensor? grad_o, Tensor? grad_lse, Tensor[] moving, str names")
def attention_tangent(q, k, v, sink, captured, o, lse, grad_o, grad_lse, moving, names, *rest):
    """The changes of o, of lse and of the gradients that are wanted, if the tensors that `names` lists change by `moving`."""
    call, captured = settled(call_of(rest), captured, q, k)
    at = tangents.Point(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse)
    o, lse, grads = tangents.tangent(at, dict(zip(names.split(","), moving)), call.wants)
    return [o.contiguous(), lse, *(grads[name] for name in call.wants.split(",") if name)]


@attention_tangent.register_fake
def _(q, k, v, sink, captured, o, lse, grad_o, grad_lse, moving, names, *rest):
    call = call_of(rest)
    return [o.new_empty(o.shape), lse.new_empty(lse.shape), *fresh_gradients(call, q, k, v, sink, captured)]


def fresh_gradients(call, *inputs):
    sources = named(call, *inputs)
    fresh = lambda name, x: dense_like(x) if name in ("q", "k", "v") else x.new_empty(x.shape)
    return [fresh(name, sources[name]) for name in call.wants.split(",") if name]


def along(texts, bound, at, changes, wants):
    """attention_tangent of the changes by name that are not None, or None if there are none. `at` are the tensors up to
    grad_lse."""
    changes = {name: x for name, x in changes.items() if x is not None}
    if not changes:
        return None
    call = dataclasses.replace(unpack(*texts, bound), wants=wants)
    return attention_tangent(*at, list(changes.values()), ",".join(changes), *bound, *texts_of(call))


def save(ctx, inputs, output):
    q, k, v, sink, captured, *rest = inputs
    o, lse, *others = output
    ctx.mark_non_differentiable(*others)
    ctx.texts, optional = rest[7:], (sink, *rest[:7])
    ctx.count, ctx.present = len(captured), [x is not None for x in optional]
    ctx.save_for_backward(q, k, v, o, lse, *captured, *(x for x in optional if x is not None))


def differentiate(ctx, grad_o, grad_lse, *_):
    q, k, v, o, lse, *rest = ctx.saved_tensors
    captured, saved = rest[: ctx.count], iter(rest[ctx.count :])
    sink, *bound = [next(saved) if there else None for there in ctx.present]
    call = unpack(*ctx.texts, bound)
    if grad_o is None:
        grad_o = torch.zeros_like(o)
    grads = attention_backward(
        q, k, v, sink, captured, o, lse, grad_o, grad_lse if "lse" in call.outputs else None, *bound, *ctx.texts
    )
    found = dict(zip(call.wants.split(","), grads))
    names = list(named(call, q, k, v, sink, captured))[4:]
    return *(found.get(name) for name in ("q", "k", "v", "sink")), [found.get(name) for name in names], *no_gradients(ctx)


def no_gradients(ctx):
    """Of the last arguments of an operator. torch takes an empty list for one of tensors, and wants a list of gradients for it."""
    return *[None] * len(BOUND), *([] if isinstance(x, list) and not x else None for x in ctx.texts)


attention.register_autograd(differentiate, setup_context=save)


def save_backward(ctx, inputs, output):
    q, k, v, sink, captured, o, lse, grad_o, grad_lse, *rest = inputs
    ctx.texts, ctx.count = rest[7:], len(captured)
    ctx.save_for_backward(q, k, v, sink, o, lse, grad_o, grad_lse, *captured, *rest[:7])


def differentiate_backward(ctx, changes):
    q, k, v, sink, o, lse, grad_o, grad_lse, *rest = ctx.saved_tensors
    captured, bound = rest[: ctx.count], rest[ctx.count :]
    call = unpack(*ctx.texts, bound)
    at = (q, k, v, sink, captured, o, lse, grad_o, grad_lse)
    wants = call.wants.split(",")
    o_change, lse_change, *grads = along(ctx.texts, bound, at, dict(zip(wants, changes)), call.wants)
    grads = dict(zip(wants, grads))
    by_name = [grads.get(name) for name in named(call, q, k, v, sink, captured)]
    lse_change = None if grad_lse is None else lse_change
    return *by_name[:4], by_name[4:], None, None, o_change, lse_change, *no_gradients(ctx)


attention_backward.register_autograd(differentiate_backward, setup_context=save_backward)


def texts_of(call: Call):
    """The call without its tensors, as arguments of an operator."""
    return (
        call.formulas,
        pack_options(call),
        list(call.values),
        [call.scale, call.dropout],
        [call.max_q, call.max_k, call.q_offset, call.k_offset, call.b_offset, call.h_offset, call.h_global],
    )


def dispatch(call: Call, q, k, v, sink, captured):
    return attention(q, k, v, sink, list(captured), *call.tensors(), *texts_of(call))
