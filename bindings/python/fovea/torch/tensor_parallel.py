"""What a group of tensor parallelism does at the borders of its region: projections to heads have a part of their outputs on
each rank (column), those from heads a part of their inputs (row). With sequence_parallel, outside of the region each rank
has a part of the tokens, along the first dimension."""

import torch
import torch.distributed as dist

from .._core import InvalidArgument


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
