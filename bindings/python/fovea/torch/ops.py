"""Attention as operators of torch.library, for torch.compile, export, fake tensors, vmap and dispatch modes, which look at a
program instead of running it. Plain eager calls take the shorter path of eager.py; both end in runtime.py."""

import dataclasses

import torch
from torch import Tensor

from .._core import OUTPUTS, Unsupported
from . import runtime
from .block_tables import settled
from .call import BOUND, BoundCall, Call, dense_like, heads_of, rows_dtype, rows_shape
from .modifiers import names_of


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


COUNT = len(BOUND)
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
    return unpack(*rest[COUNT:], rest[:COUNT])


def bound_call(rest, *tensors) -> BoundCall:
    """The call of an operator, as it runs."""
    return settled(BoundCall(call_of(rest), *tensors))


def by_argument(call, found):
    """What was found for call.wants, in the order of a call's tensors."""
    found = dict(zip(call.wants.split(","), found))
    return [found.get(name) for name in names_of(call)]


@operator("attention", returns=f"({', '.join(['Tensor'] * (1 + len(OUTPUTS)))})")
def attention(q, k, v, sink, captured, *rest):
    out = runtime.forward(bound_call(rest, q, k, v, sink, captured))
    return tuple(nothing(q) if x is None else x for x in out)


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
    at = bound_call(rest, q, k, v, sink, captured, o, lse, grad_o, grad_lse)
    grads = runtime.backward(at)
    return [grads[name] for name in at.call.wants.split(",")]


@attention_backward.register_fake
def _(q, k, v, sink, captured, o, lse, grad_o, grad_lse, *rest):
    return fresh_gradients(call_of(rest), (q, k, v, sink, *captured))


@operator("attention_tangent", OUTPUT_TENSORS, "Tensor? grad_o, Tensor? grad_lse, Tensor[] moving, str names")
def attention_tangent(q, k, v, sink, captured, o, lse, grad_o, grad_lse, moving, names, *rest):
    """The changes of o, of lse and of the gradients that are wanted, if the tensors that `names` lists change by `moving`."""
    at = bound_call(rest, q, k, v, sink, captured, o, lse, grad_o, grad_lse)
    o, lse, grads = runtime.tangent(at, dict(zip(names.split(","), moving)), at.call.wants)
    return [o.contiguous(), lse, *(grads[name] for name in at.call.wants.split(",") if name)]


@attention_tangent.register_fake
def _(q, k, v, sink, captured, o, lse, grad_o, grad_lse, moving, names, *rest):
    fresh = fresh_gradients(call_of(rest), (q, k, v, sink, *captured))
    return [o.new_empty(o.shape), lse.new_empty(lse.shape), *fresh]


def fresh_gradients(call, tensors):
    sources = dict(zip(names_of(call), tensors))
    fresh = lambda name, x: dense_like(x) if name in ("q", "k", "v") else x.new_empty(x.shape)
    return [fresh(name, sources[name]) for name in call.wants.split(",") if name]


# Derivatives, here and in vmap.py. A node keeps the texts of its call, and all its tensors: those that are bound to the call first.


def keep(ctx, texts, tensors):
    ctx.texts = texts
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def kept(ctx):
    """The call, what is bound to it, and the other tensors."""
    saved = ctx.saved_tensors  # asked for once: checkpointing wants it so
    return unpack(*ctx.texts, saved[:COUNT]), saved[:COUNT], saved[COUNT:]


def along(texts, bound, at, changes, wants):
    """attention_tangent of the changes by name that are not None, or None if there are none. `at` are the tensors up to
    grad_lse."""
    changes = {name: x for name, x in changes.items() if x is not None}
    if not changes:
        return None
    q, k, v, sink, captured, *others = at
    texts = Texts(texts_of(dataclasses.replace(unpack(*texts, bound), wants=wants)))
    return Tangent.apply(texts, ",".join(changes), *bound, q, k, v, sink, *others, *changes.values(), *captured)


class Texts(tuple):
    """texts_of a call, as one argument of a Function: torch's rules for vmap take only flat ones."""


class Tangent(torch.autograd.Function):
    """attention_tangent with an error for its derivative. torch.func asks for a graph even where nothing walks it, and takes it
    from a Function with setup_context, not from an operator."""

    generate_vmap_rule = True

    @staticmethod
    def forward(texts, names, *tensors):
        bound, (q, k, v, sink, *others), rest = tensors[:COUNT], tensors[COUNT : COUNT + 8], tensors[COUNT + 8 :]
        count = len(names.split(","))
        moving, captured = list(rest[:count]), list(rest[count:])
        return tuple(attention_tangent(q, k, v, sink, captured, *others, moving, names, *bound, *texts))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.of_backward = unpack_options(inputs[0][1])[-1] != ""

    @staticmethod
    def backward(ctx, *_):
        if not ctx.of_backward:
            raise Unsupported(
                "fovea.torch has no derivative of a forward-mode derivative. What works: second derivatives in the other order, "
                "torch.func.jvp of torch.func.grad, or torch.func.hessian"
            )
        raise Unsupported(
            "fovea.torch has first and second derivatives of attention, and no third one. What works: take it through "
            "torch.nn.attention.flex_attention.flex_attention in eager mode, which is made of differentiable operations, for "
            "the part of the model whose third derivative is needed"
        )

    jvp = backward


def along_gradients(ctx, changes, needed=None):
    """The gradients of a backward's inputs, from those of what it gave: of q, k, v, sinks and captured tensors in this order,
    of grad_o and of grad_lse. `needed` says which of the first ones are: otherwise those that the backward gave."""
    call, bound, (q, k, v, sink, o, lse, grad_o, grad_lse, *captured) = kept(ctx)
    at = (q, k, v, sink, captured, o, lse, grad_o, grad_lse)
    changes = dict(zip(call.wants.split(","), changes))
    if needed is not None:
        call.wants = ",".join(name for name, need in zip(names_of(call), needed) if need)
    o_change, lse_change, *grads = along(ctx.texts, bound, at, changes, call.wants)
    return by_argument(call, grads), o_change, None if grad_lse is None else lse_change


def save(ctx, inputs, output):
    q, k, v, sink, captured, *rest = inputs
    o, lse, *others = output
    ctx.mark_non_differentiable(*others)
    keep(ctx, rest[COUNT:], (*rest[:COUNT], q, k, v, sink, *captured, o, lse))


def differentiate(ctx, grad_o, grad_lse, *_):
    call, bound, (q, k, v, sink, *captured, o, lse) = kept(ctx)
    grad_o = torch.zeros_like(o) if grad_o is None else grad_o
    grad_lse = grad_lse if "lse" in call.outputs else None
    grads = attention_backward(q, k, v, sink, captured, o, lse, grad_o, grad_lse, *bound, *ctx.texts)
    by_name = by_argument(call, grads)
    return *by_name[:4], by_name[4:], *no_gradients(ctx)


def no_gradients(ctx):
    """Of the last arguments of an operator. torch takes an empty list for one of tensors, and wants a list of gradients for it."""
    return *[None] * COUNT, *([] if isinstance(x, list) and not x else None for x in ctx.texts)


attention.register_autograd(differentiate, setup_context=save)


def save_backward(ctx, inputs, output):
    q, k, v, sink, captured, *others = inputs[:9]
    rest = inputs[9:]
    keep(ctx, rest[COUNT:], (*rest[:COUNT], q, k, v, sink, *others, *captured))


def differentiate_backward(ctx, changes):
    q, k, v, sink, captured = ctx.needs_input_grad[:5]
    by_name, o_change, lse_change = along_gradients(ctx, changes, (q, k, v, sink, *captured))
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
