"""The two sides of a row on the same tensors, and what both should have computed."""
import dataclasses
import os

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from . import rows, timing

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# docs/semantics.md: ||x - ref|| / ||ref|| of outputs; three times that of gradients.
LIMITS = {"f32": 2e-6, "bf16": 6e-3, "f16": 8e-4}


class Data:
    """The tensors of a row, drawn from one seed."""

    def __init__(self, row):
        torch.manual_seed(1)
        dtype = DTYPES[row.dtype]
        draw = lambda heads, length: torch.randn(1, heads, length, row.d).to(dtype)
        self.row = row
        self.q, self.grad_o = draw(row.heads, row.queries), draw(row.heads, row.queries)
        self.k, self.v = draw(row.kv_heads, row.keys), draw(row.kv_heads, row.keys)
        make = row.formula.captured
        self.captured = make(torch, row.heads, row.keys) if make else {}
        self.seen = {**self.captured, "heads": row.heads}  # by the formulas in Python

    def mod(self):
        return self.row.formula.mod and self.row.formula.mod(torch, self.seen)

    def mask(self):
        return self.row.formula.mask and self.row.formula.mask(torch, self.seen)


class Fovea:
    """Fovea's side: outputs in self.out by name."""

    def __init__(self, library, data, engine):
        row, address = data.row, torch.Tensor.data_ptr
        plans = library.plans(row.line, engine)
        named = {name: address(tensor) for name, tensor in data.captured.items()}
        inputs = {name: address(getattr(data, name)) for name in ("q", "k", "v")}
        self.data, self.out = data, {"o": torch.empty_like(data.q)}
        self.lse = torch.empty(1, row.heads, row.queries)
        wants = {"lse": address(self.lse)} if "backward" in plans else {}
        forward = plans["forward"].bind(named, **inputs, o=address(self.out["o"]), **wants)
        self.plan = forward
        if row.direction == "backward":
            forward.run()
            self.out.update({f"d{name}": torch.empty_like(getattr(data, name)) for name in "qkv"})
            gradients = {f"grad_{name}": address(self.out[f"d{name}"]) for name in "qkv"}
            self.plan = plans["backward"].bind(named, **inputs, **wants, o=address(self.out["o"]),
                                               grad_o=address(data.grad_o), **gradients)
        self.engine = self.plan.engine

    def run(self):  # a method of this object, which keeps the memory that the plan writes to
        self.plan.run()


def torch_side(data):
    """The peer as a function to time."""
    row = data.row
    if row.peer == "flex":
        torch._dynamo.reset()
        compiled = torch.compile(flex_attention, dynamic=False)
        mask = data.mask()
        blocks = create_block_mask(mask, None, None, row.queries, row.keys, device="cpu") if mask else None
        mod = data.mod()

        def flex():
            with torch.no_grad():
                return compiled(data.q, data.k, data.v, score_mod=mod, block_mask=blocks)
        return flex
    options = {"is_causal": row.formula is rows.CAUSAL, "enable_gqa": row.heads != row.kv_heads}
    if row.direction == "forward":
        return lambda: F.scaled_dot_product_attention(data.q, data.k, data.v, **options)
    inputs = [x.detach().requires_grad_() for x in (data.q, data.k, data.v)]
    out = F.scaled_dot_product_attention(*inputs, **options)
    return lambda: torch.autograd.grad(out, inputs, data.grad_o, retain_graph=True)


def start_threads(library, processors, engine=None):
    """Starts both sides' threads, then binds Fovea's; gives how many of its own were found."""
    # As many heads as threads and more work than a caller would do alone.
    data = Data(dataclasses.replace(rows.table()[0], queries=512, keys=512))
    torch_side(data)()
    os.sched_setaffinity(0, processors)  # what OpenMP may have narrowed: threads inherit it
    Fovea(library, data, engine).run()
    return timing.bind_threads(processors)


def exact(data):
    """The same attention in float64, with every score in memory: {"o": ..., "dq": ...}."""
    row = data.row
    q, k, v = (x.double().requires_grad_(row.direction == "backward") for x in (data.q, data.k, data.v))
    group = row.heads // row.kv_heads
    scores = rows.scale_of(row) * q @ k.repeat_interleave(group, 1).transpose(-1, -2)
    b, h = torch.zeros(1, 1, 1, 1, dtype=torch.long), torch.arange(row.heads).view(1, -1, 1, 1)
    at_q, at_k = torch.arange(row.queries).view(1, 1, -1, 1), torch.arange(row.keys).view(1, 1, 1, -1)
    if data.mod():
        scores = data.mod()(scores, b, h, at_q, at_k)
    if data.mask():
        scores = scores.masked_fill(~data.mask()(b, h, at_q, at_k), float("-inf"))
    o = scores.softmax(-1) @ v.repeat_interleave(group, 1)
    out = {"o": o.detach()}
    if row.direction == "backward":
        for name, gradient in zip(("dq", "dk", "dv"), torch.autograd.grad(o, (q, k, v), data.grad_o.double())):
            out[name] = gradient
    return out


def worst_error(data, out):
    """The largest relative error of Fovea's outputs as a share of its limit: 1 or less is right."""
    worst = 0.0
    for name, reference in exact(data).items():
        limit = LIMITS[data.row.dtype] * (3 if name != "o" else 1)
        error = (out[name].double() - reference).norm() / reference.norm()
        worst = max(worst, float(error) / limit) if error == error else float("inf")
    return worst
