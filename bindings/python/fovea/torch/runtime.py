"""Runs plans on real tensors: looks up the prepared plan, allocates what is written, binds pointers. Every path into
the library (eager, the operators that torch.compile sees, backward) ends here. Its own time is part of every call."""

from os import environ

import torch

from .._core import Unsupported
from .plans import RECENT, prepare_backward, prepare_forward
from .shapes import heads_of, rows_dtype
from .views import VIEWER, resolved

# What os.environ looks into; its own get() takes longer than the rest of a lookup.
ENVIRONMENT = getattr(environ, "_data", {})
_empty, _threads = torch.empty_strided, torch.get_num_threads  # at hand: a lookup in torch is long after an attention
# What code of torch.compile allocates by: past the dispatcher, in a third of the time.
empty_cpu = getattr(getattr(torch._C._dynamo, "guards", None), "_empty_strided_cpu", None)
if empty_cpu is None:
    empty_cpu = lambda shape, strides, dtype: _empty(shape, strides, dtype=dtype, device="cpu")


def fresh(shape, strides, dtype, prepared, device):
    if prepared.on_cpu:
        return empty_cpu(shape, strides, dtype)
    return _empty(shape, strides, dtype=dtype, device=device)


def signature(tensors):
    seen = VIEWER.signature(tensors, False)
    return seen if seen is not None else tuple((x.shape, x.stride(), x.dtype, x.device) for x in tensors)


def place(q):
    """(stream, threads, capturing) of a call on q's device. While a CUDA graph is captured, plans are made only from what
    is built already: the library refuses the rest before anything is enqueued."""
    if q.is_cuda:
        stream = torch._C._cuda_getCurrentRawStream(q.device.index)
        return stream, 0, torch._C._cuda_isCurrentStreamCapturing()
    return 0, _threads(), False


def forward(call, q, k, v, sink, captured):
    """(o, lse, row_max, max_logit); what was not asked for is None. lse is there for a backward too."""
    where = place(q)
    prepared = forward_plan(call, q, k, v, sink, captured, where)
    return run_forward(prepared, call, q, k, v, sink, captured, where)


def forward_plan(call, q, k, v, sink, captured, where):
    key = (
        call.key(),
        sink is None,
        where[2],
        ENVIRONMENT.get(b"FOVEA_ENGINE"),
        signature([q, k, v, *captured]),
    )
    prepared = RECENT.get(key)
    if prepared is None:
        prepared = RECENT.put(key, prepare_forward(call, q, k, v, sink, captured, where))
    return prepared


def run_forward(prepared, call, q, k, v, sink, captured, where):
    o = fresh(*prepared.o, q.dtype, prepared, q.device)
    lse = row_max = max_logit = None
    pointers = [q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr()]
    if call.lse or call.wants:
        lse = fresh(*prepared.rows, rows_dtype(q), prepared, q.device)
        pointers.append(lse.data_ptr())
    if call.row_max:
        row_max = fresh(*prepared.rows, rows_dtype(q), prepared, q.device)
        pointers.append(row_max.data_ptr())
    if call.max_logit:
        max_logit = torch.empty(heads_of(call.layout, q), dtype=rows_dtype(q), device=q.device)
        pointers.append(max_logit.data_ptr())
    launch(prepared, call, pointers, sink, captured, (), where, q.device)
    return o, lse, row_max, max_logit


def launch(prepared, call, pointers, sink, captured, grads, where, device):
    """Runs the plan. `pointers` are those of prepared.roles but for what a call may bring beside its big tensors."""
    if not prepared.plain:
        if sink is not None:
            pointers.append(sink.data_ptr())
        for _, tensor in call.lengths():
            pointers.append(tensor.data_ptr())
        if prepared.seed_at:
            pointers.append(call.seed.data_ptr())
    for x in captured:
        pointers.append(x.data_ptr())
    for x in grads:
        pointers.append(x.data_ptr())
    space, workspace = None, ()
    if prepared.workspace:  # its memory may be used again by what is enqueued behind
        space = torch.empty(prepared.workspace, dtype=torch.uint8, device=device)
        workspace = (space.data_ptr(), prepared.workspace)
    if prepared.by_value:
        run_with_numbers(prepared, call, pointers, where, workspace)
    else:
        prepared.run(tuple(pointers), where[0], where[1], workspace, call.scale)


def run_with_numbers(prepared, call, pointers, where, workspace):
    """For a call with numbers of its own: by their names."""
    bound = dict(zip(prepared.roles, pointers))
    given = iter(pointers[len(prepared.roles) :])
    entries = [(name, next(given), code, extents, strides) for name, code, extents, strides in prepared.captured]
    bound["tensors"] = [
        entry if gradient is None else (*entry, next(given), entry[2], gradient)
        for entry, gradient in zip(entries, prepared.gradients)
    ]
    if workspace:
        bound["workspace"], bound["workspace_bytes"] = workspace
    if call.scale:
        bound["scale"] = call.scale
    if prepared.scalars:
        bound["scalars"] = list(zip(prepared.scalars, call.values))
    if call.q_offset:
        bound["q_offset"] = call.q_offset
    if call.k_offset:
        bound["k_offset"] = call.k_offset
    if call.dropout and not prepared.seed_at:
        bound["seed"] = int(call.seed) & 0xFFFFFFFFFFFFFFFF
    prepared.plan.run(**bound, stream=where[0], threads=where[1])


def backward(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse):
    """Gradients by name of call.wants: {"q": dq, ..., "_c0": ...}. What is not wanted is not computed."""
    where = place(q)
    if grad_o is None:
        grad_o = torch.zeros((), dtype=o.dtype, device=o.device).expand(o.shape)
    grad_o = readable(resolved(grad_o), q)
    key = (
        call.key(),
        sink is None,
        grad_lse is None,
        where[2],
        ENVIRONMENT.get(b"FOVEA_ENGINE"),
        signature([q, k, v, o, grad_o, *captured]),
    )
    prepared = RECENT.get(key)
    if prepared is None:
        has_grad_lse = grad_lse is not None
        prepared = prepare_backward(call, q, k, v, sink, captured, o, grad_o, has_grad_lse, where)
        RECENT.put(key, prepared)
    pointers = [q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), grad_o.data_ptr(), lse.data_ptr()]
    grads = {}
    for name, shape, strides in prepared.inputs:
        grads[name] = made = fresh(shape, strides, q.dtype, prepared, q.device)
        pointers.append(made.data_ptr())
    if grad_lse is not None:
        grad_lse = resolved(grad_lse).to(lse.dtype).contiguous()
        pointers.append(grad_lse.data_ptr())
    if "sink" in prepared.wanted:
        grads["sink"] = torch.empty_like(sink)
        pointers.append(grads["sink"].data_ptr())
    of_captured = []
    for (name, *_), gradient, x in zip(prepared.captured, prepared.gradients, captured):
        if gradient is not None:
            grads[name] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            of_captured.append(grads[name])
    launch(prepared, call, pointers, sink, captured, of_captured, where, q.device)
    return grads


def readable(grad_o, q):
    """dO comes with any strides. The CPU reads them as they are; cuDNN wants rows that lie together."""
    if not q.is_cuda:
        return grad_o
    strides = [s for s, n in zip(grad_o.stride(), grad_o.shape) if n > 1]
    return grad_o if grad_o.stride(-1) == 1 and 0 not in strides else grad_o.contiguous()


def second_derivative():
    return Unsupported(
        "fovea.torch has no second derivative of attention (create_graph=True reached its backward). What works: take it "
        "through torch.nn.attention.flex_attention.flex_attention in eager mode, which is made of differentiable "
        "operations, for the part of the model whose second derivative is needed"
    )


def forward_mode():
    return Unsupported(
        "fovea.torch has no forward-mode derivative of attention (jvp, jacfwd, hessian, forward_ad). What works: reverse mode "
        "(backward, torch.func.grad, vjp, jacrev), or torch.nn.attention.flex_attention.flex_attention in eager mode for the "
        "part of the model that is differentiated forward"
    )
