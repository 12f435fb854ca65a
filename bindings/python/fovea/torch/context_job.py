"""One call of context parallelism on one rank: its tensors by heads and pieces, and what it sends to others. Used by the ring
(context_ring.py) and the gathering of keys (context_gather.py)."""

import dataclasses

import torch

from .._request import AXES


@dataclasses.dataclass
class Job:
    """One call on one rank. Tensors of a job have the rows of the plan's pieces, one piece after the other, and a rank's
    part of the heads."""

    call: object  # of the whole attention
    plan: object
    ranks: object
    gathers: bool  # all keys first; otherwise a ring

    def __post_init__(self):
        self.axis = AXES[self.call.layout][2]
        self.head_axis = AXES[self.call.layout][1]
        self.one_place = self.plan.head_ranks == self.plan.ranks

    # ---- heads ----

    def deal_heads(self, x, side):
        """[own rows, all heads] to [rows of the group, own heads]."""
        group = self.plan.head_ranks
        if group > 1:
            first = self.plan.rank - self.plan.member
            parts = x.chunk(group, self.head_axis)
            shape = lambda rank: resized(parts[0].shape, self.axis, side.rank_rows(rank))
            others = [rank for rank in range(first, first + group) if rank != self.plan.rank]
            received = self.ranks.exchange(
                {rank: [parts[rank - first]] for rank in others}, {rank: [shape(rank)] for rank in others}, x
            ).wait()
            received[self.plan.rank] = [parts[self.plan.member]]
            x = torch.cat([received[rank][0] for rank in range(first, first + group)], self.axis)
        return x if side.order is None else x.index_select(self.axis, side.order)

    def collect_heads(self, x, side):
        """The inverse: [rows of the group, own heads] to [own rows, all heads]."""
        if side.order is not None:
            x = torch.empty_like(x).index_copy_(self.axis, side.order, x)
        group = self.plan.head_ranks
        if group == 1:
            return x
        first = self.plan.rank - self.plan.member
        parts = x.split([side.rank_rows(first + i) for i in range(group)], self.axis)
        others = [i for i in range(group) if i != self.plan.member]
        own = parts[self.plan.member]
        received = self.ranks.exchange(
            {first + i: [parts[i]] for i in others}, {first + i: [own.shape] for i in others}, x
        ).wait()
        received[self.plan.rank] = [own]
        return torch.cat([received[first + i][0] for i in range(group)], self.head_axis)

    def rows_as_tensor(self, rows):
        """lse as a tensor of the layout with one feature, and back."""
        if self.call.layout == "thd":
            return rows.t().unsqueeze(-1)
        return rows.unsqueeze(-1).permute(["bhsd".index(axis) for axis in self.call.layout])

    def tensor_as_rows(self, x):
        if self.call.layout == "thd":
            return x.squeeze(-1).t().contiguous()
        return x.permute(AXES[self.call.layout]).squeeze(-1).contiguous()

    def own_heads(self, x):
        """This rank's part of a tensor with one entry per head."""
        return None if x is None else x.chunk(self.plan.head_ranks)[self.plan.member].contiguous()

    def all_heads(self, own):
        """The inverse, with zeros for the heads of other ranks."""
        out = own.new_zeros(own.shape[0] * self.plan.head_ranks)
        out.chunk(self.plan.head_ranks)[self.plan.member].copy_(own)
        return out

    # ---- pieces ----

    def piece(self, x, side, piece):
        return x.narrow(self.axis, side.start(piece), side.piece_rows[piece])

    def shape(self, x, side, piece):
        """Of a tensor like x that has the rows of the piece."""
        return resized(x.shape, self.axis, side.piece_rows[piece])

    def held_or_zeros(self, side, found, like):
        """What was found for the pieces of this rank, one behind the other; zeros for those that nothing was found for."""
        held = [(piece, found[piece]) for piece in self.plan.held]
        parts = [like.new_zeros(self.shape(like, side, piece)) if x is None else x for piece, x in held]
        return torch.cat(parts, self.axis)

    def rows_piece(self, rows, piece):
        """The rows of a piece in lse, [B, H, S] or [H, T]."""
        return rows.narrow(-1, self.plan.q.start(piece), self.plan.q.piece_rows[piece])

    def query_groups(self):
        """Pieces of queries that make one call: all of them if this rank has the whole sequence."""
        return [self.plan.held] if self.one_place else [[piece] for piece in self.plan.held]

    def sent_keys(self, step, tensors):
        """The exchange of a step, or None if it has none."""
        if not step["sent"] and not step["received"]:
            return None
        side = self.plan.k
        sends = [self.piece(x, side, piece) for piece in step["sent"] for x in tensors]
        shapes = [self.shape(x, side, piece) for piece in step["received"] for x in tensors]
        return self.ranks.exchange({step["to"]: sends}, {step["from"]: shapes}, tensors[0])

    def returned_gradients(self, step, found, names, like):
        """Sends the gradients of keys that came from elsewhere back, and takes those of own keys."""
        if not step["sent"] and not step["received"] or not names:
            return None
        sends = [found[piece][name] for piece in step["received"] for name in names]
        shapes = [self.shape(like[name], self.plan.k, piece) for piece in step["sent"] for name in names]
        return self.ranks.exchange({step["from"]: sends}, {step["to"]: shapes}, like[names[0]])


def resized(shape, axis, rows):
    return (*shape[:axis], rows, *shape[axis + 1 :])


def with_lse(call):
    """What a part must keep for merging and for the backward."""
    return dataclasses.replace(call, outputs=("lse", *(name for name in call.outputs if name != "lse")))


def by_piece(tensors, pieces, count):
    """{piece: tensors} of a message."""
    return {piece: tensors[i * count : (i + 1) * count] for i, piece in enumerate(pieces)}


class Sums(dict):
    """Gradients by name, added up in f32."""

    def add(self, name, x):
        if name in self:
            self[name] = self[name].add_(x)
        else:
            self[name] = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
