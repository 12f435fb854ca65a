"""The linear layers and norms round attention, as Transformer Engine names their parameters, and tensor parallelism: projections
to heads have a part of their outputs on each rank (column), those from heads a part of their inputs (row). With
sequence_parallel, outside of that region each rank has a part of the tokens, along the first dimension."""

from typing import Callable, Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from .._core import InvalidArgument
from .._request import one_of


class Region:
    """The tensor-parallel region of one module. Nothing is sent if it has one rank."""

    def __init__(self, group=None, size=1, sequence_parallel=False):
        self.size = size
        self.sequence_parallel = sequence_parallel and size > 1
        self.group = None
        if group is not None:
            self.set_group(group)

    def set_group(self, group):
        if dist.get_world_size(group) != self.size and self.size > 1:
            raise InvalidArgument(f"tp_group: has {dist.get_world_size(group)} ranks, tp_size is {self.size}")
        self.group, self.size = group, dist.get_world_size(group)

    def part(self, name, number) -> int:
        """This rank's share of a number of heads or features."""
        if number % self.size:
            raise InvalidArgument(f"{name}={number}: must be a multiple of tp_size={self.size}")
        return number // self.size

    def check(self):
        if self.size > 1 and self.group is None:
            raise InvalidArgument(f"tp_size={self.size}: set_tensor_parallel_group comes before the first forward")

    def enter(self, x):
        """The input of a column-parallel projection."""
        self.check()
        if self.size == 1:
            return x
        return Gather.apply(x, self.group) if self.sequence_parallel else Copy.apply(x, self.group)

    def leave(self, x):
        """The output of a row-parallel projection."""
        self.check()
        if self.size == 1:
            return x
        return Scatter.apply(x, self.group) if self.sequence_parallel else Reduce.apply(x, self.group)


def summed(x, group):
    out = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(out, group=group)
    return out


def gathered(x, group):
    out = x.new_empty((x.shape[0] * dist.get_world_size(group), *x.shape[1:]))
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def scattered(x, group):
    size = dist.get_world_size(group)
    if x.shape[0] % size:
        raise InvalidArgument(f"sequence_parallel: {x.shape[0]} tokens can't be cut into {size} equal parts")
    out = x.new_empty((x.shape[0] // size, *x.shape[1:]))
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


def border(name, forward, backward):
    """An autograd function of (x, group)."""

    def run(ctx, x, group):
        ctx.group = group
        return forward(x, group)

    made = {"forward": staticmethod(run), "backward": staticmethod(lambda ctx, g: (backward(g, ctx.group), None))}
    return type(name, (torch.autograd.Function,), made)


Copy = border("Copy", lambda x, group: x.view_as(x), summed)
Reduce = border("Reduce", summed, lambda g, group: g)
Gather = border("Gather", gathered, scattered)
Scatter = border("Scatter", scattered, gathered)


class Linear(torch.nn.Linear):
    """`region` is set for a layer of tensor parallelism, `row` if it is the one that leaves the region; widths are then this
    rank's."""

    def __init__(
        self,
        width_in,
        width_out,
        *,
        bias=True,
        device=None,
        dtype=None,
        init_method: Optional[Callable] = None,
        region=None,
        row=False,
    ):
        super().__init__(width_in, width_out, bias=bias, device=device, dtype=dtype)
        if init_method is None:
            torch.nn.init.normal_(self.weight, mean=0.0, std=0.023)  # Transformer Engine's
        else:
            init_method(self.weight)
        if bias:
            torch.nn.init.zeros_(self.bias)

        self.region, self.row = region, row

    def forward(self, x, with_bias=True):
        bias = self.bias if with_bias else None
        if self.region is None:
            return F.linear(x, self.weight, bias)
        if not self.row:
            return F.linear(self.region.enter(x), self.weight, bias)
        out = self.region.leave(F.linear(x, self.weight))  # the bias is added once
        return out if bias is None else out + bias


class LayerNormLinear(Linear):
    """A norm, then a projection; gives both."""

    def __init__(self, width_in, width_out, norm, **options):
        super().__init__(width_in, width_out, **options)
        one_of("normalization", norm["kind"], ("LayerNorm", "RMSNorm"))
        self.norm, made = norm, {"device": options.get("device"), "dtype": options.get("dtype")}
        start = torch.zeros if norm["zero_centered"] else torch.ones
        self.layer_norm_weight = torch.nn.Parameter(start(width_in, **made))
        self.layer_norm_bias = torch.nn.Parameter(torch.zeros(width_in, **made)) if norm["kind"] == "LayerNorm" else None

    def forward(self, x):
        weight = self.layer_norm_weight + 1 if self.norm["zero_centered"] else self.layer_norm_weight
        if self.norm["kind"] == "LayerNorm":
            normed = F.layer_norm(x, x.shape[-1:], weight, self.layer_norm_bias, self.norm["eps"])
        else:
            normed = F.rms_norm(x, x.shape[-1:], weight, self.norm["eps"])
        return super().forward(normed), normed


class L2Normalization(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + self.eps)


def head_norm(kind, channels, eps, made):
    """The norm of each head's queries or keys."""
    one_of("qk_norm_type", kind, (None, "L2Normalization", "RMSNorm", "LayerNorm"))
    if kind is None:
        return torch.nn.Identity()
    if kind == "L2Normalization":
        return L2Normalization(eps)
    norm = torch.nn.RMSNorm if kind == "RMSNorm" else torch.nn.LayerNorm
    return norm(channels, eps=eps, device=made["device"], dtype=made["dtype"])
