"""Pieces of few queries. Engines compute few queries otherwise: they cut the keys, so that all of a device has work. If the
bits of one device are asked for, such a piece is computed among empty rows, as if its sequence were longer there."""

import torch

from .._request import AXES
from .context_job import resized

LEAST = 97  # rows that every engine computes as it computes more of them


def window_of(job, call, piece):
    """The rows around a piece that is shorter than its sequences, or None."""
    key = ("window", piece, call.q_offset)
    if key not in job.plan.bound:
        window = Window(job, call, piece)
        job.plan.bound[key] = window if window.is_longer else None
    return job.plan.bound[key]


class Window:
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
            filled = self.lengths == [end - start for start, end in zip(self.starts, self.starts[1:])]
            return {
                "q_starts": numbers(self.starts),
                "q_lens": None if filled else numbers(self.lengths),
                "q_offsets": numbers(offsets),
                "q_offset": 0,
                "max_q": self.longest,
            }
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
