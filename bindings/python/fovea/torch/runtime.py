"""Runs plans on real tensors: looks up the prepared plan, allocates what is written, binds pointers. Every path into
the library (eager, the operators that torch.compile sees, backward) ends here."""

from os import environ

import torch

from .._core import Unsupported
from .plans import RECENT, prepare_backward, prepare_forward
from .shapes import dense_like, heads_of, rows_dtype, rows_shape


# What os.environ looks into; its own get() takes longer than the rest of a lookup.
_ENVIRONMENT = getattr(environ, "_data", {})


def signature(tensors):
    return tuple([(x.shape, x.stride(), x.dtype, x.device) for x in tensors])


def place(q):
    """(stream, threads, capturing) of a call on q's device."""
    if q.is_cuda:
        stream = torch._C._cuda_getCurrentRawStream(q.device.index)
        return stream, 0, torch.cuda.is_current_stream_capturing()
    return 0, torch.get_num_threads(), False


def forward(call, q, k, v, sink, captured):
    """(o, lse, row_max, max_logit); what was not asked for is None. lse is there for a backward too."""
    stream, threads, capturing = place(q)
    chosen = _ENVIRONMENT.get(b"FOVEA_ENGINE")
    key = ("forward", call.key(), signature((q, k, v)), sink is None, signature(captured), capturing, chosen)
    prepared = RECENT.get(key)
    if prepared is None:
        prepared = prepare_forward(call, q, k, v, sink, captured, capturing)
        RECENT.put(key, prepared)
    o = dense_like(q, v.shape[-1])
    lse = row_max = max_logit = None
    bound = {"stream": stream, "threads": threads}
    if call.lse or call.wants:
        lse = torch.empty(rows_shape(call.layout, q), dtype=rows_dtype(q), device=q.device)
        bound["lse"] = lse.data_ptr()
    if call.row_max:
        row_max = torch.empty(rows_shape(call.layout, q), dtype=rows_dtype(q), device=q.device)
        bound["row_max"] = row_max.data_ptr()
    if call.max_logit:
        max_logit = torch.empty(heads_of(call.layout, q), dtype=rows_dtype(q), device=q.device)
        bound["max_logit"] = max_logit.data_ptr()
    if captured:
        bound["tensors"] = [
            (name, x.data_ptr(), code, extents, strides)
            for (name, code, extents, strides), x in zip(prepared.captured, captured)
        ]
    space = bind_call(bound, call, q, sink, prepared)
    prepared.run(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), **bound)
    del space  # its memory may be used again by what is enqueued behind
    return o, lse, row_max, max_logit


def bind_call(bound, call, q, sink, prepared):
    """Values of this call as keywords of run(), only those that are not the problem's own; and its workspace."""
    if sink is not None:
        bound["sink"] = sink.data_ptr()
    if call.scale:
        bound["scale"] = call.scale
    if prepared.scalars:
        bound["scalars"] = list(zip(prepared.scalars, call.values))
    if call.q_offset:
        bound["q_offset"] = call.q_offset
    if call.k_offset:
        bound["k_offset"] = call.k_offset
    if call.dropout:
        if call.seed.is_cuda:
            bound["seed_at"] = call.seed.data_ptr()
        else:
            bound["seed"] = int(call.seed) & 0xFFFFFFFFFFFFFFFF
    for name, tensor in call.lengths():
        bound[name] = tensor.data_ptr()
    if not prepared.workspace:
        return None
    space = torch.empty(prepared.workspace, dtype=torch.uint8, device=q.device)
    bound["workspace"], bound["workspace_bytes"] = space.data_ptr(), prepared.workspace
    return space


def pointer(x):
    return 0 if x is None else x.data_ptr()


def backward(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse):
    """Gradients by name of call.wants: {"q": dq, ..., "_c0": ...}. What is not wanted is not computed."""
    stream, threads, capturing = place(q)
    if grad_o is None:
        grad_o = torch.zeros((), dtype=o.dtype, device=o.device).expand(o.shape)
    grad_o = readable(grad_o, q)
    chosen = _ENVIRONMENT.get(b"FOVEA_ENGINE")
    given = signature((q, k, v, o, grad_o))
    key = (
        "backward",
        call.key(),
        given,
        sink is None,
        grad_lse is None,
        signature(captured),
        capturing,
        chosen,
    )
    prepared = RECENT.get(key)
    if prepared is None:
        prepared = prepare_backward(call, q, k, v, sink, captured, o, grad_o, grad_lse is not None, capturing)
        RECENT.put(key, prepared)
    grads = empty_gradients(prepared, {"q": q, "k": k, "v": v}, sink, captured)
    bound = {"stream": stream, "threads": threads, "lse": lse.data_ptr(), "tensors": []}
    for (name, code, extents, strides), x in zip(prepared.captured, captured):
        entry = (name, x.data_ptr(), code, extents, strides)
        if name in grads:
            entry += (grads[name].data_ptr(), code, tuple(grads[name].stride()))
        bound["tensors"].append(entry)
    if grad_lse is not None:
        grad_lse = grad_lse.to(lse.dtype).contiguous()
        bound["grad_lse"] = grad_lse.data_ptr()
    if "sink" in grads:
        bound["grad_sink"] = grads["sink"].data_ptr()
    space = bind_call(bound, call, q, sink, prepared)
    pointers = [x.data_ptr() for x in (q, k, v, o, grad_o)]
    prepared.run(*pointers, *(pointer(grads.get(name)) for name in ("q", "k", "v")), **bound)
    del space
    return grads


def readable(grad_o, q):
    """dO comes with any strides. The CPU reads them as they are; cuDNN wants rows that lie together."""
    if not q.is_cuda:
        return grad_o
    strides = [s for s, n in zip(grad_o.stride(), grad_o.shape) if n > 1]
    return grad_o if grad_o.stride(-1) == 1 and 0 not in strides else grad_o.contiguous()


def empty_gradients(prepared, inputs, sink, captured):
    grads = {name: dense_like(x) for name, x in inputs.items() if name in prepared.wanted}
    if "sink" in prepared.wanted:
        grads["sink"] = torch.empty_like(sink)
    for (name, *_), wanted, x in zip(prepared.captured, prepared.gradients, captured):
        if wanted:
            grads[name] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return grads


def second_derivative():
    return Unsupported(
        "fovea.torch has no second derivative of attention (create_graph=True reached its backward). What works: take it "
        "through torch.nn.attention.flex_attention.flex_attention in eager mode, which is made of differentiable "
        "operations, for the part of the model whose second derivative is needed"
    )
