"""Runs plans on real tensors: finds the prepared plan, allocates outputs, binds pointers. Every path into the library (eager,
the operators that torch.compile sees, backward) ends here."""

import dataclasses
import functools

import torch

from .._arrays import dense_strides
from .._core import OUTPUTS, DirectCall, environment_engine
from .._request import AXES
from .call import DEFAULT_SCALE, VIEWER, BoundCall, is_like_its_output, part_dtype, resolved, rows_dtype, zeros_like
from .call_cache import TABLE
from .modifiers import bindable
from .plans import prepare_backward, prepare_forward, prepare_tangent
from .state import place

_empty = torch.empty_strided  # kept here: after an attention, torch's modules are out of the processor's caches


def signature(tensors):
    seen = VIEWER.signature(tensors, False)
    return seen if seen is not None else tuple((x.shape, x.stride(), x.dtype, x.device) for x in tensors)


def forward(at):
    """(o, *OUTPUTS) of a BoundCall; None for what was not asked for. lse is also there if a backward will follow."""
    where = place(at.q)
    return run_forward(forward_plan(at, where), at, where)


def forward_plan(at, where):
    """The plan of a call that has its formulas as texts."""
    seen = signature([at.q, at.k, at.v, *at.captured])
    key = (at.call.key(), at.sink is None, where[2], environment_engine(), seen)
    prepared = TABLE.get(key)
    if prepared is None:
        prepared = TABLE.put(key, prepare_forward(at, where))
    return prepared


def keep_plan(found, call, sink, formulas):
    """Makes the plan of a call that was looked up and not found, and keeps it for the next such call."""
    q, k, v = found.tensors[:3]
    prepared = prepare_forward(BoundCall(call, q, k, v, sink, formulas.tensors), found.where)
    prepared.call = call.without_tensors()
    prepared.slots = [len(found.tensors) - found.count + i for i in formulas.slots]
    pairs = list(zip(formulas.tensors, prepared.slots))
    prepared.as_they_are = all(x is found.tensors[i] for x, i in pairs)
    if all(x.data_ptr() == found.tensors[i].data_ptr() for x, i in pairs):
        made = [0 if is_like_its_output(q, v.shape[-1]) else output(*prepared.o, q.dtype, q.device)]
        returned = [0] + [-1] * len(OUTPUTS)
        for i, lies in enumerate(prepared.outputs, 1):
            if lies is not None:
                returned[i] = len(made)
                made.append(output(*lies, rows_dtype(q), q.device))
        inputs = [*range(3), *(~i for i in range(len(made))), *prepared.slots]
        prepared.direct = direct_call(prepared, made, inputs, returned, q.device)
    found.prepared = TABLE.put(found.key, prepared)


def output(shape, strides, dtype, device):
    """A function that allocates an output. It names the device, since there may be a default one."""
    if device.type == "cpu" and strides == dense_strides(shape):  # torch parses empty_like's one argument faster than four
        return functools.partial(torch.empty_like, torch.empty((), dtype=dtype, device=device).expand(shape))
    return functools.partial(_empty, shape, strides, dtype=dtype, device=device)


def direct_call(prepared, outputs, pointers, returned, device):
    """For fovea._core.CallCache to run by itself, or None if a call brings more than tensors. Outputs are allocated like a
    tensor of the call, by its number, or by a function."""
    if not prepared.plain or prepared.by_value:
        return None
    workspace = None
    if prepared.workspace:
        workspace = functools.partial(torch.empty, prepared.workspace, dtype=torch.uint8, device=device), prepared.workspace
    return DirectCall(prepared.caller, torch.empty_like, tuple(outputs), pointers, returned, workspace)


def captured_by(ready, tensors):
    """The captured tensors of a call that was looked up, converted as they are bound."""
    if ready.as_they_are:
        return [tensors[i] for i in ready.slots]
    out = []
    for i, (_, _, extents, _) in zip(ready.slots, ready.captured):
        x = tensors[i]
        out.append(bindable(x if x.dim() == len(extents) else x.reshape(extents), tensors[0]))
    return out


def run_forward(prepared, at, where):
    call, q, k, v = at[:4]
    device = q.device
    o = _empty(*prepared.o, dtype=part_dtype(call, q), device=device)
    outputs, pointers = [o], [q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr()]
    for lies in prepared.outputs:
        made = None
        if lies is not None:
            made = _empty(*lies, dtype=rows_dtype(q), device=device)
            pointers.append(made.data_ptr())
        outputs.append(made)
    launch(prepared, at, pointers, (), where)
    return tuple(outputs)


def launch(prepared, at, pointers, grads, where):
    """Runs the plan. `pointers` are the first ones of prepared.roles; those of sinks, lengths and the seed are added here."""
    call = at.call
    if not prepared.plain:
        if at.sink is not None:
            pointers.append(at.sink.data_ptr())
        for _, tensor in call.lengths():
            pointers.append(tensor.data_ptr())
        if prepared.seed_at:
            pointers.append(call.seed.data_ptr())
    for x in at.captured:
        pointers.append(x.data_ptr())
    for x in grads:
        pointers.append(x.data_ptr())
    space, workspace = None, ()
    if prepared.workspace:  # torch reuses its memory in the order of the stream
        space = torch.empty(prepared.workspace, dtype=torch.uint8, device=at.q.device)
        workspace = (space.data_ptr(), prepared.workspace)
    if prepared.by_value:
        run_with_numbers(prepared, call, pointers, where, workspace)
    else:
        prepared.caller.run(tuple(pointers), where[0], where[1], workspace, call.scale, call.values)


def run_with_numbers(prepared, call, pointers, where, workspace=(), **bound):
    """Runs a plan whose call has offsets or a seed by value: these are given to Plan.run by name."""
    bound.update(zip(prepared.roles, pointers))
    if prepared.captured:
        given = iter(pointers[len(prepared.roles) :])
        entries = [(name, next(given), code, extents, strides) for name, code, extents, strides in prepared.captured]
        bound["tensors"] = [
            entry if gradient is None else (*entry, next(given), entry[2], gradient)
            for entry, gradient in zip(entries, prepared.gradients)
        ]
    if workspace:
        bound["workspace"], bound["workspace_bytes"] = workspace
    if call.scale != DEFAULT_SCALE:
        bound["scale"] = call.scale
    if prepared.scalars:
        bound["scalars"] = list(zip(prepared.scalars, call.values))
    for name in ("q_offset", "k_offset", "b_offset", "h_offset"):
        if number := getattr(call, name):
            bound[name] = number
    if call.dropout and not prepared.seed_at:
        bound["seed"] = int(call.seed) & 0xFFFFFFFFFFFFFFFF
    prepared.plan.run(**bound, stream=where[0], threads=where[1])


def backward(at, found=None):
    """The gradients that at.call.wants names: {"q": dq, ..., "_c0": ...}. `found` is the result of looking this backward up,
    or None."""
    call, q, k, v, sink, captured, o, lse, given, grad_lse = at
    where = place(q)
    grad_o = readable(zeros_like(o) if given is None else resolved(given), q)
    if found is not None:
        key, _, prepared, _ = found
    else:
        seen = signature([q, k, v, o, grad_o, *captured])
        key = (call.key(), sink is None, grad_lse is None, where[2], environment_engine(), seen)
        prepared = TABLE.get(key)
    if prepared is None:
        prepared = prepare_backward(at._replace(grad_o=grad_o), where)
        if found is not None and grad_o is given:
            prepared.direct = direct_backward(prepared, captured, q.device)
        TABLE.put(key, prepared)
    pointers = [q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), grad_o.data_ptr(), lse.data_ptr()]
    grads, dtype, device = {}, part_dtype(call, q), q.device
    for name, shape, strides in prepared.inputs:
        grads[name] = made = _empty(shape, strides, dtype=dtype, device=device)
        pointers.append(made.data_ptr())
    if grad_lse is not None:
        grad_lse = resolved(grad_lse).to(lse.dtype).contiguous()
        pointers.append(grad_lse.data_ptr())
    if sink is not None and "sink" in prepared.wanted:
        grads["sink"] = torch.empty_like(sink)
        pointers.append(grads["sink"].data_ptr())
    of_captured = []
    for (name, *_), gradient, x in zip(prepared.captured, prepared.gradients, captured):
        if gradient is not None:
            grads[name] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            of_captured.append(grads[name])
    launch(prepared, at, pointers, of_captured, where)
    return grads


def direct_backward(prepared, captured, device):
    """The direct call of a backward. Its tensors are grad_o, q, k, v, o, lse and the captured ones, as eager.py looks it up."""
    made, returned = [], [-1] * 5
    for name, *_ in prepared.inputs:
        returned[1 + "qkv".index(name)] = len(made)
        made.append(1 + "qkv".index(name))
    inputs = [1, 2, 3, 4, 0, 5, *(~i for i in range(len(made))), *range(6, 6 + len(captured))]
    for strides, x in zip(prepared.gradients, captured):
        returned.append(-1 if strides is None else len(made))
        if strides is not None:
            inputs.append(~len(made))
            made.append(output(tuple(x.shape), strides, x.dtype, device))
    return direct_call(prepared, made, inputs, returned, device)


def readable(grad_o, q):
    """grad_o, whose strides may be any. The CPU engine reads it in place; cuDNN needs dense rows."""
    if not q.is_cuda:
        return grad_o
    strides = [s for s, n in zip(grad_o.stride(), grad_o.shape) if n > 1]
    return grad_o if grad_o.stride(-1) == 1 and 0 not in strides else grad_o.contiguous()


# Second derivatives and forward mode: how a forward and its backward change along a direction, which the library computes as
# direction=tangent. Second derivatives are symmetric, so the same numbers are the backward of a backward.


def tangent(at, tangents: dict, wants: str):
    """(change of o, of lse, of each gradient that `wants` names, by name) along the tangents, by name. `at` is where the
    derivatives are taken."""
    call = dataclasses.replace(at.call, wants=wants, engine="reference" if at.q.device.type == "cpu" else "")
    grad_o = grad_lse = None
    if wants:
        grad_o = zeros_like(at.o) if at.grad_o is None else resolved(at.grad_o)
        grad_lse = None if at.grad_lse is None else resolved(at.grad_lse).to(at.lse.dtype).contiguous()
    at = at._replace(call=call, grad_o=grad_o, grad_lse=grad_lse)
    q, k, v, where = at.q, at.k, at.v, place(at.q)
    found = tangent_plan(at, where)

    tangents = {name: resolved(x.detach()) for name, x in tangents.items() if x is not None}
    inputs = {name: dense(tangents.get(name), x, call.layout) for name, x in zip("qkv", (q, k, v))}
    o = torch.empty_like(dense(None, at.o, call.layout), memory_format=torch.contiguous_format)
    lse = torch.empty_like(at.lse)
    grads = {name: torch.empty_strided(shape, strides, dtype=q.dtype) for name, shape, strides in found.inputs}
    bound = {"q": q, "k": k, "v": v, "lse": at.lse, "grad_o": grad_o, "grad_lse": grad_lse}
    bound.update({f"tangent_{name}": x for name, x in inputs.items()}, tangent_o=o, tangent_lse=lse)
    bound.update({f"grad_{name}": x for name, x in grads.items()})
    if at.sink is not None:
        bound.update(sink=at.sink, tangent_sink=like(tangents.get("sink"), at.sink))
        if "sink" in found.wanted:
            bound["grad_sink"] = grads["sink"] = torch.empty_like(at.sink)
    for name, tensor in call.lengths():
        bound[name] = tensor

    pointers, moving = [x.data_ptr() for x in at.captured], []
    for (name, code, extents, _), gradient, x in zip(found.captured, found.gradients, at.captured):
        if gradient is not None:
            grads[name] = torch.empty(x.shape, dtype=x.dtype)
            pointers.append(grads[name].data_ptr())
        if name in tangents:
            tangents[name] = like(tangents[name], x)
            moving.append((name, tangents[name].data_ptr(), code, extents, None))
    addresses = {name: x.data_ptr() for name, x in bound.items() if x is not None}
    run_with_numbers(found, call, pointers, where, **addresses, tensor_tangents=moving)
    return back(o, call.layout), lse, grads


def tangent_plan(at, where):
    incoming = at.o if at.grad_o is None else at.grad_o
    seen = signature([at.q, at.k, at.v, at.o, incoming, *at.captured])
    key = ("tangent", at.call.key(), at.sink is None, at.grad_lse is None, where[2], seen)
    return TABLE.get(key) or TABLE.put(key, prepare_tangent(at, where))


def like(x, other):
    """The tangent, dense and of the type of its tensor; zeros if it is None."""
    return torch.zeros_like(other, memory_format=torch.contiguous_format) if x is None else x.to(other.dtype).contiguous()


def dense(x, other, layout):
    """The same for q, k, v or o: as [B, H, S, D], or packed."""
    x = zeros_like(other) if x is None else x
    return like(x if layout == "thd" else x.permute(AXES[layout]), other)


def back(x, layout):
    """[B, H, S, D] in the order of the layout."""
    return x if layout == "thd" else x.permute([AXES[layout].index(i) for i in range(4)])
