"""Context parallelism that gathers keys first: all keys that a rank's queries look at, then one call per piece of queries. Also
used for a rank's part of the heads after an all-to-all, which has all keys already."""

import dataclasses

import torch

from .._request import AXES
from . import runtime
from .call import BoundCall, rows_dtype
from .context_job import Sums, by_piece, resized, with_lse
from .context_plan import packed_fields


def gathered(job, tensors, side, needed, sends, receives):
    """The tensors over the pieces `needed` (neighbours), in the order of their positions. What no rank sent is zero, since it is
    masked. sends and receives: {rank: pieces}."""
    messages = {rank: [job.piece(x, side, piece) for piece in pieces for x in tensors] for rank, pieces in sends.items()}
    shapes = {rank: [job.shape(x, side, piece) for piece in pieces for x in tensors] for rank, pieces in receives.items()}
    received = job.ranks.exchange(messages, shapes, tensors[0]).wait()
    found = {piece: [job.piece(x, side, piece) for x in tensors] for piece in job.plan.held}
    for rank, pieces in receives.items():
        found |= by_piece(received.get(rank, []), pieces, len(tensors))
    order = side.gathered_order(needed)
    out = []
    for i, x in enumerate(tensors):
        parts = [found[piece][i] if piece in found else x.new_zeros(job.shape(x, side, piece)) for piece in needed]
        whole = torch.cat(parts, job.axis)
        out.append(whole if order is None else whole.index_select(job.axis, order))
    return out


def gather_keys(job, k, v):
    """(k, v, pieces) over all pieces that own queries look at; with deterministic=True over all, so that sums are added in
    the order of the whole attention."""
    steps = job.plan.steps
    looked_at = [k_piece for step in steps for _, k_piece, _ in step["tiles"]] or job.plan.held[:1]
    last = len(job.plan.k.pieces) - 1
    ends = (0, last) if "deterministic" in job.call.flags or job.one_place else (min(looked_at), max(looked_at))
    needed = list(range(ends[0], ends[1] + 1))
    sends, receives = {}, {}
    for step in steps[1:]:
        sends.setdefault(step["to"], []).extend(step["sent"])
        receives.setdefault(step["from"], []).extend(step["received"])
    return (*gathered(job, [k, v], job.plan.k, needed, sends, receives), needed)


def joined_queries(job, x, pieces):
    """Some pieces of queries as one."""
    if len(pieces) == 1:
        return job.piece(x, job.plan.q, pieces[0])
    order = job.plan.q.gathered_order(pieces)
    return x if order is None else x.index_select(job.axis, order)


def parted_queries(job, x, pieces):
    """The inverse of joined_queries."""
    order = None if len(pieces) == 1 else job.plan.q.gathered_order(pieces)
    return x if order is None else torch.empty_like(x).index_copy_(job.axis, order, x)


def gather_forward(job, at):
    k, v, needed = gather_keys(job, at.k, at.v)
    at = at._replace(call=with_lse(at.call), k=k, v=v)
    outputs, rows, most = [], {"lse": [], "row_max": []}, None
    for pieces in job.query_groups():
        o, *of_rows, max_logit = forward_of(job, at._replace(call=job.plan.tile(at.call, pieces, needed)), pieces)
        outputs.append(parted_queries(job, o, pieces))
        for into, x in zip(rows.values(), of_rows):
            if x is not None:
                into.append(job.tensor_as_rows(parted_queries(job, job.rows_as_tensor(x), pieces)))
        if max_logit is not None:
            most = max_logit if most is None else torch.maximum(most, max_logit)
    return torch.cat(outputs, job.axis), *(torch.cat(x, -1) if x else None for x in rows.values()), most


def forward_of(job, at, pieces):
    """(o, *OUTPUTS) of some pieces; with deterministic=True as the whole attention computes them."""
    tile, q = at.call, joined_queries(job, at.q, pieces)
    padded = None if job.one_place or "deterministic" not in tile.flags else padded_piece(job, job.call, pieces[0])
    if padded is None:
        return runtime.forward(at._replace(q=q))
    asked = tile.outputs
    outputs = ("lse", "row_max") if "max_logit" in asked else asked  # the maximum over the rows of the piece alone
    tile = dataclasses.replace(tile, outputs=outputs, **padded.fields)
    o, *of_rows, _ = runtime.forward(at._replace(call=tile, q=padded.placed(q)))
    rows = [None if x is None else job.tensor_as_rows(padded.taken(job.rows_as_tensor(x))) for x in of_rows]
    most = rows[1].movedim(-2, 0).flatten(1).amax(1) if "max_logit" in asked else None
    return padded.taken(o), rows[0], rows[1] if "row_max" in asked else None, most


def gather_backward(job, at):
    call, q, wants = at.call, at.q, at.call.wants.split(",")
    of_keys = [name for name in ("k", "v") if name in wants]
    apart = "deterministic" in job.call.flags and not job.one_place and of_keys
    here = [name for name in wants if not (apart and name in of_keys)]
    grads = Sums()
    k, v, needed = gather_keys(job, at.k, at.v)
    at = at._replace(k=k, v=v)
    if any(here):
        sums = not job.one_place and any(name in of_keys for name in here)  # they will be added to others
        part_call = dataclasses.replace(call, wants=",".join(here))
        for pieces in job.query_groups():
            own = {name: joined_queries(job, getattr(at, name), pieces) for name in ("q", "o", "grad_o")}
            of_rows = lambda x: job.tensor_as_rows(joined_queries(job, job.rows_as_tensor(x), pieces))
            own |= {name: None if x is None else of_rows(x) for name, x in (("lse", at.lse), ("grad_lse", at.grad_lse))}
            found = runtime.backward(at._replace(call=job.plan.tile(part_call, pieces, needed), **own))
            if "q" in found:
                grads[f"q{pieces[0]}"] = parted_queries(job, found.pop("q"), pieces)
            for name, x in found.items():
                grads.add(name, x.to(rows_dtype(q)) if sums and name in of_keys else x)
    if "q" in wants:
        grads["q"] = torch.cat([grads.pop(f"q{pieces[0]}") for pieces in job.query_groups()], job.axis)
    if apart:
        grads.update(gradients_of_keys(job, at, of_keys))
    elif of_keys:
        grads.update(scattered(job, {name: grads[name] for name in of_keys}, needed))
    return grads


def scattered(job, of_keys, needed):
    """Gradients of gathered keys, summed on the ranks that hold these keys."""
    side, names = job.plan.k, list(of_keys)
    order = side.gathered_order(needed)
    parts = {piece: [] for piece in needed}
    for x in of_keys.values():
        x = x if order is None else torch.empty_like(x).index_copy_(job.axis, order, x)
        for piece, part in zip(needed, x.split([side.piece_rows[piece] for piece in needed], job.axis)):
            parts[piece].append(part)
    like = of_keys[names[0]]
    own = {piece: parts.get(piece) for piece in job.plan.held}
    sends, shapes = {}, {}
    for step in job.plan.steps[1:]:
        if step["received"]:
            sends[step["from"]] = [x for piece in step["received"] for x in parts[piece]]
        if step["sent"]:
            shapes[step["to"]] = [job.shape(of_keys[name], side, piece) for piece in step["sent"] for name in names]
    received = job.ranks.exchange(sends, shapes, like).wait()
    for step in job.plan.steps[1:]:
        for piece, tensors in by_piece(received.get(step["to"], []), step["sent"], len(names)).items():
            own[piece] = tensors if own[piece] is None else [x + y for x, y in zip(own[piece], tensors)]
    of = lambda i: {piece: None if tensors is None else tensors[i] for piece, tensors in own.items()}
    return {name: job.held_or_zeros(side, of(i), x) for i, (name, x) in enumerate(of_keys.items())}


def gradients_of_keys(job, at, names):
    """With all queries that looked at own keys: each sum is added up on one rank, in the order of the whole attention. Keys
    and values come gathered: engines round relative to tiles, and a piece may begin inside one."""
    dtype, side = at.q.dtype, job.plan.q
    sends, receives = {}, {}
    for step in job.plan.steps[1:]:
        looking = sorted({q_piece for q_piece, _, _ in step["tiles"]})
        sends.setdefault(step["from"], []).extend(looking)
        receives.setdefault(step["to"], []).extend(step["looking"])
    needed = list(range(len(side.pieces)))
    of_queries = [at.q, at.o.to(dtype), at.grad_o.to(dtype)]
    queries, outputs, grad_outputs = gathered(job, of_queries, side, needed, sends, receives)
    with_rows = [at.lse] if at.grad_lse is None else [at.lse, at.grad_lse]
    rows = gathered(job, [job.rows_as_tensor(x) for x in with_rows], side, needed, sends, receives)
    rows = [job.tensor_as_rows(x) for x in rows] + [None]
    # All gradients are asked for, but the sink's: engines have other kernels for some of them, and fuse a formula with its
    # derivatives.
    call = dataclasses.replace(at.call, wants=",".join(name for name in at.call.wants.split(",") if name != "sink"))
    parts = {name: [] for name in names}
    for piece in job.plan.held:
        first, last, fields = job.plan.k.with_tile(call, piece)
        tile = dataclasses.replace(job.plan.tile(call, needed, [piece]), **fields)
        keys = [x.narrow(job.axis, first, last - first) for x in (at.k, at.v)]
        of_all = outputs, rows[0], grad_outputs, rows[1]
        found = runtime.backward(BoundCall(tile, queries, *keys, None, at.captured, *of_all))
        own = job.plan.k.rows_among_all(piece)
        for name in names:
            parts[name].append(found[name].index_select(job.axis, own - first))
    return {name: torch.cat(parts[name], job.axis) for name in names}


# Pieces of few queries. Engines compute few queries in another way: they cut the keys, so that the whole device has work. If
# the bits of one device are asked for, such a piece is computed among empty rows, as if its sequence were longer there.


LEAST = 97  # with so many rows or more, every engine computes a row as in the longest sequence


def padded_piece(job, call, piece):
    """The rows around a piece that is shorter than its sequences, or None."""
    key = ("padded", piece, call.q_offset)
    if key not in job.plan.bound:
        padded = PaddedPiece(job, call, piece)
        job.plan.bound[key] = padded if padded.is_longer else None
    return job.plan.bound[key]


class PaddedPiece:
    """A sequence that the piece has a part of has all its rows here, or LEAST of them. They lie inside the whole sequence:
    captured tensors have values for them."""

    def __init__(self, job, call, piece):
        side, count = job.plan.q, job.plan.q.piece_rows[piece]
        self.axis, packed = job.axis, side.starts is not None
        runs = side.joined([piece])
        wholes = [sum(one[s][1] for one in side.pieces) for s in range(len(runs))]
        self.lengths = [max(n, min(rows, LEAST)) if n else 0 for (_, n, _), rows in zip(runs, wholes)]
        self.firsts = [min(at, rows - n) if n else at for (at, _, _), rows, n in zip(runs, wholes, self.lengths)]
        before = [at - first for (at, _, _), first in zip(runs, self.firsts)]
        # Own rows, with those between packed sequences.
        ends = [row for _, _, row in runs[1:]] + [count] if packed else [count] * len(runs)
        own = [end - row for (_, _, row), end in zip(runs, ends)]
        rows = [max(n, skipped + m) for n, skipped, m in zip(self.lengths, before, own)]
        places = [range(skipped, skipped + m) for skipped, m in zip(before, own)]
        self.starts, shape = None, [1] * (3 if packed else 4)
        if packed:
            self.starts = [sum(rows[:s]) for s in range(len(rows) + 1)]
            self.rows, self.longest = self.starts[-1], max([*self.lengths, min(call.max_q, LEAST)])
            places = [[start + i for start, one in zip(self.starts, places) for i in one]]
            self.is_longer = self.longest > max((n for _, n, _ in runs), default=0)
        else:
            self.rows = max([*rows, min(sum(side.piece_rows), LEAST)])
            shape[AXES[call.layout][0]] = len(places)
            self.is_longer = self.rows > count
        self.is_longer |= self.lengths != [n for _, n, _ in runs]
        shape[self.axis] = count
        index = torch.tensor([list(one) for one in places], dtype=torch.int64, device=job.plan.device)
        self.index = index.t().reshape(shape) if call.layout == "sbhd" else index.reshape(shape)
        self.fields = self.fields_of(call)

    def fields_of(self, call):
        """What a call on these rows binds for its queries; `call` is of the whole attention."""
        numbers = lambda values: torch.tensor(values, dtype=torch.int32, device=self.index.device)
        offsets = [call.q_offset + first for first in self.firsts]
        if self.starts is not None:
            return {**packed_fields("q", self.index.device, self.starts, self.lengths, offsets), "max_q": self.longest}
        out = {} if call.q_lens is None else {"q_lens": numbers(self.lengths)}
        if len(set(offsets)) == 1:
            return {**out, "q_offset": offsets[0]}
        return {**out, "q_offsets": numbers(offsets), "q_offset": 0}

    def placed(self, x):
        """The rows of the piece among zeros."""
        wide = x.new_zeros(resized(x.shape, self.axis, self.rows))
        return wide.scatter_(self.axis, self.index.expand(x.shape), x)

    def taken(self, x):
        """The inverse: the rows of the piece without the zeros."""
        return x.gather(self.axis, self.index.expand(resized(x.shape, self.axis, self.index.shape[self.axis])))
