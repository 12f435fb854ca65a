"""Runs plans on real tensors: looks up the prepared plan, allocates what is written, binds pointers. Every path into
the library (eager, the operators that torch.compile sees, backward) ends here."""
from os import environ

import torch

from .._core import Unsupported
from .plans import RECENT, prepare_backward, prepare_forward
from .shapes import dense_like, heads_of, rows_dtype, rows_shape


def signature(tensors):
    return tuple([(x.shape, x.stride(), x.dtype) for x in tensors])


def place(q):
    """(stream, threads, capturing) of a call on q's device."""
    if q.is_cuda:
        index = q.device.index
        return torch._C._cuda_getCurrentRawStream(index), 0, torch.cuda.is_current_stream_capturing()
    return 0, torch.get_num_threads(), False


def forward(call, q, k, v, sink, captured):
    """(o, lse, row_max, max_logit); what was not asked for is None. lse is there for a backward too."""
    stream, threads, capturing = place(q)
    key = ("forward", call.key(), environ.get("FOVEA_ENGINE"), q.device, q.dtype, q.shape, q.stride(), k.device, k.dtype, k.shape, k.stride(), v.device,
           v.dtype, v.shape, v.stride(), sink is None, signature(captured), capturing)
    prepared = RECENT.get(key)
    if prepared is None:
        prepared = prepare_forward(call, q, k, v, sink, captured, capturing)
        RECENT.put(key, prepared)
    o = dense_like(q, v.shape[-1])
    lse = row_max = max_logit = None
    if call.lse or call.wants:
        lse = torch.empty(rows_shape(call.layout, q), dtype=rows_dtype(q), device=q.device)
    if call.row_max:
        row_max = torch.empty(rows_shape(call.layout, q), dtype=rows_dtype(q), device=q.device)
    if call.max_logit:
        max_logit = torch.empty(heads_of(call.layout, q), dtype=rows_dtype(q), device=q.device)
    space = torch.empty(prepared.workspace, dtype=torch.uint8, device=q.device) if prepared.workspace else None
    prepared.run(
        q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(),
        lse=pointer(lse), row_max=pointer(row_max), max_logit=pointer(max_logit), sink=pointer(sink),
        tensors=[(name, x.data_ptr(), code, extents, strides)
                 for (name, code, extents, strides), x in zip(prepared.captured, captured)],
        **per_call(call, q, prepared), workspace=pointer(space), workspace_bytes=prepared.workspace,
        stream=stream, threads=threads)
    return o, lse, row_max, max_logit


def per_call(call, q, prepared):
    """Values of this call as keywords: only those that are not the problem's own."""
    values = {"scale": call.scale} if call.scale else {}
    if prepared.scalars:
        values["scalars"] = list(zip(prepared.scalars, call.values))
    if call.q_offset:
        values["q_offset"] = call.q_offset
    if call.k_offset:
        values["k_offset"] = call.k_offset
    if call.dropout:
        if call.seed.is_cuda:
            values["seed_at"] = call.seed.data_ptr()
        else:
            values["seed"] = int(call.seed) & 0xFFFFFFFFFFFFFFFF
    for name, tensor in (("q_lengths", call.q_lens), ("k_lengths", call.k_lens), ("q_starts", call.q_starts),
                         ("k_starts", call.k_starts), ("q_offsets", call.q_offsets), ("k_offsets", call.k_offsets)):
        if tensor is not None:
            values[name] = tensor.data_ptr()
    return values


def pointer(x):
    return 0 if x is None else x.data_ptr()


def backward(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse):
    """Gradients by name of call.wants: {"q": dq, ..., "_c0": ...}. What is not wanted is not computed."""
    stream, threads, capturing = place(q)
    if grad_o is None:
        grad_o = torch.zeros((), dtype=o.dtype, device=o.device).expand(o.shape)
    grad_o = readable(grad_o, q)
    if grad_lse is not None:
        grad_lse = grad_lse.to(lse.dtype).contiguous()
    key = ("backward", call.key(), environ.get("FOVEA_ENGINE"), q.device, q.dtype, q.shape, q.stride(), k.stride(), k.shape, v.stride(), v.shape,
           o.stride(), grad_o.stride(), grad_o.dtype, sink is None, grad_lse is None, signature(captured), capturing)
    prepared = RECENT.get(key)
    if prepared is None:
        prepared = prepare_backward(call, q, k, v, sink, captured, o, grad_o, grad_lse is not None, capturing)
        RECENT.put(key, prepared)
    grads = empty_gradients(call, prepared, {"q": q, "k": k, "v": v}, sink, captured)
    space = torch.empty(prepared.workspace, dtype=torch.uint8, device=q.device) if prepared.workspace else None
    bound = []
    for (name, code, extents, strides), x in zip(prepared.captured, captured):
        entry = (name, x.data_ptr(), code, extents, strides)
        if name in grads:
            entry += (grads[name].data_ptr(), code, tuple(grads[name].stride()))
        bound.append(entry)
    prepared.run(
        q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), grad_o.data_ptr(),
        pointer(grads.get("q")), pointer(grads.get("k")), pointer(grads.get("v")),
        lse=lse.data_ptr(), grad_lse=pointer(grad_lse), sink=pointer(sink), grad_sink=pointer(grads.get("sink")),
        tensors=bound, **per_call(call, q, prepared), workspace=pointer(space), workspace_bytes=prepared.workspace,
        stream=stream, threads=threads)
    return grads


def readable(grad_o, q):
    """dO comes with any strides. The CPU reads them as they are; cuDNN wants rows that lie together."""
    if not q.is_cuda:
        return grad_o
    strides = [s for s, n in zip(grad_o.stride(), grad_o.shape) if n > 1]
    return grad_o if grad_o.stride(-1) == 1 and 0 not in strides else grad_o.contiguous()


def empty_gradients(call, prepared, inputs, sink, captured):
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
        "operations, for the part of the model whose second derivative is needed")
