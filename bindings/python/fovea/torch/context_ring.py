"""The ring of context parallelism: keys and values of one rank after the other, in the order of the plan, each straight
from the rank that has them; results are merged by lse. Backward, gradients of keys go straight back."""

import dataclasses

import torch

from .._request import AXES
from . import runtime
from .call import BoundCall, rows_dtype
from .context_job import Sums, by_piece, resized, with_lse


class IncomingKeys:
    """The keys of a step, which are sent while the step before is computed. They are received even if that fails: a message that
    stays in the queue would be taken for the next one."""

    def __init__(self, job, i, k, v):
        self.step = job.plan.steps[i] if i < len(job.plan.steps) else None
        self.exchange = None if self.step is None else job.sent_keys(self.step, [k, v])
        self.keys = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.exchange is not None:
            received = self.exchange.wait().get(self.step["from"], [])
            self.keys = by_piece(received, self.step["received"], 2)


class MergedOutputs:
    """Outputs of one piece of queries over several parts of the keys, weighted by their shares of the sum. A row that is
    empty in all of them stays empty."""

    def __init__(self, job, q, v, piece):
        rows = job.plan.q.piece_rows[piece]
        dtype = rows_dtype(q)
        shape = resized((*q.shape[:-1], v.shape[-1]), job.axis, rows)
        heads = q.shape[job.head_axis]
        lse_shape = (heads, rows) if job.call.layout == "thd" else (q.shape[AXES[job.call.layout][0]], heads, rows)
        self.job = job
        self.o = torch.zeros(shape, dtype=dtype, device=q.device)
        self.lse = torch.full(lse_shape, -torch.inf, dtype=dtype, device=q.device)
        self.row_max = self.lse

    def add(self, o, lse, row_max):
        both = torch.logaddexp(self.lse, lse)
        shift = finite(both)
        self.o.mul_(self.job.rows_as_tensor(torch.exp(self.lse - shift)))
        self.o.addcmul_(o, self.job.rows_as_tensor(torch.exp(lse - shift)))
        self.lse = both
        self.row_max = self.row_max if row_max is None else torch.maximum(self.row_max, row_max)

    def add_sink(self, sink):
        per_row = sink.to(self.lse.dtype).unsqueeze(-1).expand(self.lse.shape)
        both = torch.logaddexp(self.lse, per_row)
        self.o.mul_(self.job.rows_as_tensor(torch.exp(self.lse - finite(both))))
        self.lse = both


def finite(lse):
    """What may be subtracted: a row with nothing in it has -inf."""
    return torch.where(lse == -torch.inf, torch.zeros_like(lse), lse)


def ring_forward(job, at):
    call, q, k, v, sink, captured = at[:6]
    wants = ",".join(name for name in call.wants.split(",") if name != "sink")
    call = dataclasses.replace(with_lse(call), wants=wants, parts=True)
    merged = {piece: MergedOutputs(job, q, v, piece) for piece in job.plan.held}
    keys = {piece: [job.piece(x, job.plan.k, piece) for x in (k, v)] for piece in job.plan.held}
    most = None
    steps = job.plan.steps
    for i, step in enumerate(steps):
        with IncomingKeys(job, i + 1, k, v) as coming:
            for q_piece, k_piece, _ in step["tiles"]:
                tile = job.plan.tile(call, [q_piece], [k_piece])
                rows = job.piece(q, job.plan.q, q_piece)
                *out, max_logit = runtime.forward(BoundCall(tile, rows, *keys[k_piece], None, captured))
                merged[q_piece].add(*out)
                if max_logit is not None:
                    most = max_logit if most is None else torch.maximum(most, max_logit)
        keys = coming.keys
    if sink is not None:
        for one in merged.values():
            one.add_sink(sink)
    o = torch.cat([merged[piece].o for piece in job.plan.held], job.axis)
    lse, row_max = (torch.cat([getattr(merged[piece], name) for piece in job.plan.held], -1) for name in ("lse", "row_max"))
    return o, lse, row_max, most


def ring_backward(job, at):
    call, q, k, v, _, captured, o, lse, grad_o, grad_lse = at
    wants = [name for name in call.wants.split(",") if name != "sink"]
    grads = Sums()
    if not any(wants):
        return with_sink_gradient(job, at, grads)
    call = dataclasses.replace(call, wants=",".join(wants), parts=True)
    keys = {piece: [job.piece(x, job.plan.k, piece) for x in (k, v)] for piece in job.plan.held}
    names = [name for name in ("k", "v") if name in wants]
    # Of the shape and type of sums, without memory.
    like = {name: x.new_empty((), dtype=rows_dtype(q)).expand(x.shape) for name, x in zip("qkv", (q, k, v))}
    steps, returning = job.plan.steps, []
    for i, step in enumerate(steps):
        found = {piece: Sums() for piece in {*step["received"], *(job.plan.held if i == 0 else ())}}
        with IncomingKeys(job, i + 1, k, v) as coming:
            for q_piece, k_piece, _ in step["tiles"]:
                tile = job.plan.tile(call, [q_piece], [k_piece])
                own_q, own_o, own_grad_o = (job.piece(x, job.plan.q, q_piece) for x in (q, o, grad_o))
                rows = [None if x is None else job.rows_piece(x, q_piece).contiguous() for x in (lse, grad_lse)]
                outputs = own_o, rows[0], own_grad_o, rows[1]
                part = runtime.backward(BoundCall(tile, own_q, *keys[k_piece], None, captured, *outputs))
                for name, x in part.items():
                    where = found[k_piece] if name in names else grads
                    where.add(f"q{q_piece}" if name == "q" else name, x)
        if i == 0:
            own = found
        else:
            back = job.returned_gradients(step, found, names, like)
            if back is not None:
                returning.append((step, back))
        keys = coming.keys
    for step, back in returning:
        for piece, tensors in by_piece(back.wait().get(step["to"], []), step["sent"], len(names)).items():
            for name, x in zip(names, tensors):
                own[piece].add(name, x)
    for name in names:
        grads[name] = job.held_or_zeros(job.plan.k, {piece: own[piece].get(name) for piece in own}, like[name])
    if "q" in wants:
        found = {piece: grads.pop(f"q{piece}", None) for piece in job.plan.held}
        grads["q"] = job.held_or_zeros(job.plan.q, found, like["q"])
    return with_sink_gradient(job, at, grads)


def with_sink_gradient(job, at, grads):
    """The sink's logit joins the sum of every row."""
    sink, lse = at.sink, at.lse
    if sink is None or "sink" not in job.call.wants.split(","):
        return grads
    delta = job.tensor_as_rows((at.o.to(lse.dtype) * at.grad_o.to(lse.dtype)).sum(-1, keepdim=True))
    if at.grad_lse is not None:
        delta = delta - at.grad_lse
    share = torch.exp(sink.to(lse.dtype).unsqueeze(-1) - finite(lse))
    rows = share * delta
    grads["sink"] = -rows.sum([i for i in range(rows.dim()) if i != rows.dim() - 2]).to(sink.dtype)
    return grads
