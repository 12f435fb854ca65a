"""The plan of context parallelism as fovea.torch follows it: the library says which rank computes which tiles in which step
(fovea_parallel_plan); here these become rows of tensors and calls of attention."""

import dataclasses
import functools
import json

import torch

from .. import _core
from .._plans import LruCache
from .._request import problem_line
from .call import LENGTHS, BoundCall
from .plans import _CODES, fields_of

# A multiple of the keys in every engine's tile. Engines round what is linear in k (ALiBi) relative to the tile, so the same bits
# need the same tiles.
TILE = 128


class Side:
    """Queries or keys, dealt out. A piece is what steps compute with; a rank holds one or two, or, if heads are dealt
    out among ranks, these hold them together."""

    def __init__(self, found, plan, starts):
        self.rows, self.pieces, self.piece_rows = found["rows"], found["pieces"], found["piece_rows"]
        self.plan, self.starts = plan, starts  # of packed sequences, or None

    def rank_rows(self, rank) -> int:
        return sum(sum(self.rows[i]) for i in self.held_by(rank))

    def held_by(self, rank):
        """Parts of the sequence that a rank has before heads are dealt out."""
        return [rank] if len(self.rows) == self.plan.ranks else [rank, len(self.rows) - 1 - rank]

    def blocks(self, parts):
        """(part, sequence) in the order in which rows lie: sequence by sequence."""
        return [(part, s) for s in range(len(self.rows[0])) for part in parts]

    def parts_of(self, piece):
        return range(piece * self.plan.head_ranks, (piece + 1) * self.plan.head_ranks)

    @functools.cached_property
    def order(self):
        """The index that brings the rows of a group's ranks, rank after rank, into the order of its pieces, piece after piece;
        None if they are in that order."""
        first = self.plan.rank // self.plan.head_ranks * self.plan.head_ranks
        members = range(first, first + self.plan.head_ranks)
        given = [block for rank in members for block in self.blocks(self.held_by(rank))]
        wanted = [block for piece in self.plan.held for block in self.blocks(self.parts_of(piece))]
        return self.moved(given, wanted)

    def gathered_order(self, pieces):
        """The index that makes one piece of gathered ones; None if their rows are in that order."""
        given = [block for piece in pieces for block in self.blocks(self.parts_of(piece))]
        wanted = self.blocks([part for piece in pieces for part in self.parts_of(piece)])
        return self.moved(given, wanted)

    def moved(self, given, wanted):
        if given == wanted:
            return None
        at, starts = 0, {}
        for block in given:
            starts[block] = at
            at += self.rows[block[0]][block[1]]
        index = [starts[block] + i for block in wanted for i in range(self.rows[block[0]][block[1]])]
        return torch.tensor(index, dtype=torch.int64, device=self.plan.device)

    def start(self, piece) -> int:
        """The first row of a piece among those that the rank holds."""
        before = self.plan.held[: self.plan.held.index(piece)]
        return sum(self.piece_rows[i] for i in before)

    def joined(self, pieces):
        """[first position, length, row] of each sequence in neighbouring pieces, as of one."""
        out = []
        for s in range(len(self.pieces[0])):
            runs = [self.pieces[i][s] for i in pieces]
            live = [run[0] for run in runs if run[1] > 0] or [runs[0][0]]
            out.append([live[0], sum(run[1] for run in runs), self.row(pieces, s)])
        return out

    def row(self, pieces, s) -> int:
        if self.starts is None:
            return 0
        if len(self.rows[0]) > 1:  # sequences are cut one by one: a piece has rows of all those before
            return sum(self.pieces[i][s][2] for i in pieces)
        first = sum(self.piece_rows[: pieces[0]])
        return min(max(self.starts[s] - first, 0), sum(self.piece_rows[i] for i in pieces))

    def with_tile(self, call, piece):
        """A piece among all keys in the order of their positions: (first row, last row, what a call on them binds). The rows
        begin with a tile of the whole attention, up to TILE rows before the piece."""
        numbers = functools.partial(torch.tensor, dtype=torch.int32, device=self.plan.device)
        runs = [(first - first % TILE, first + length) for first, length, _ in self.pieces[piece]]
        if self.starts is None:
            begin, end = runs[0][0], sum(self.piece_rows[: piece + 1])
            lengths = None if call.k_lens is None else numbers([last - first for first, last in runs])
            return begin, end, {"k_offset": call.k_offset + begin, "k_lens": lengths}
        rows = [at + first for at, (first, _) in zip(self.starts, runs)]
        begin, end = rows[0] if rows else 0, self.starts[-1]
        starts, lengths = [row - begin for row in (*rows, end)], [last - first for first, last in runs]
        fields = packed_fields("k", self.plan.device, starts, lengths, [call.k_offset + first for first, _ in runs])
        return begin, end, {**fields, "k_lens": numbers(lengths)}

    def rows_among_all(self, piece):
        """The index of a piece's rows among all rows in the order of their positions."""
        return self.moved(self.blocks(range(len(self.rows))), self.blocks(self.parts_of(piece)))

    def fields(self, word, call, pieces):
        """What a call on these pieces binds for its queries ("q") or keys ("k")."""
        runs = self.joined(pieces)
        lengths = [length for _, length, _ in runs]
        if self.starts is None:
            out = {f"{word}_offset": getattr(call, f"{word}_offset") + self.pieces[pieces[0]][0][0]}
            if getattr(call, f"{word}_lens") is not None:
                out[f"{word}_lens"] = torch.tensor(lengths, dtype=torch.int32, device=self.plan.device)
            return out
        starts = [row for _, _, row in runs] + [sum(self.piece_rows[i] for i in pieces)]
        offsets = [getattr(call, f"{word}_offset") + first for first, _, _ in runs]
        return packed_fields(word, self.plan.device, starts, lengths, offsets)


def packed_fields(word, device, starts, lengths, offsets):
    """What a call binds for packed queries ("q") or keys ("k"). Sequences that fill their rows need no lengths."""
    numbers = functools.partial(torch.tensor, dtype=torch.int32, device=device)
    filled = lengths == [after - before for before, after in zip(starts, starts[1:])]
    return {
        f"{word}_starts": numbers(starts),
        f"{word}_lens": None if filled else numbers(lengths),
        f"{word}_offsets": numbers(offsets),
        f"{word}_offset": 0,
        f"max_{word}": max(lengths, default=0),
    }


class RankPlan:
    """The plan of one rank."""

    def __init__(self, text, starts, device):
        found = json.loads(text)
        self.device, self.bound = device, {}
        self.ranks, self.rank, self.head_ranks = found["ranks"], found["rank"], found["head_ranks"]
        self.held, self.steps, self.bytes = found["held"], found["steps"], found["bytes"]
        self.q, self.k = (Side(found[word], self, at) for word, at in zip("qk", starts))

    @property
    def member(self):
        """The number of this rank's part of the heads."""
        return self.rank % self.head_ranks

    def tile(self, call, q_pieces, k_pieces):
        """The call for some pieces of queries and some of keys."""
        key = (tuple(q_pieces), tuple(k_pieces), call.q_offset, call.k_offset)
        if key not in self.bound:
            self.bound[key] = {**self.q.fields("q", call, q_pieces), **self.k.fields("k", call, k_pieces)}
        return dataclasses.replace(call, **self.bound[key])


_PLANS = LruCache(256)


def plan_of(call, whole, captured, how, rank, device) -> RankPlan:
    """`whole` are q, k, v of the whole attention, without memory; `how` is (ranks, strategy, order, head_ranks). Kept
    by what it depends on; a mask that reads tensors is looked at in every call."""
    inputs = PlanInputs(call, whole, captured)
    key = None if inputs.used else (inputs.line, how, rank, device, call.values, *map(values_of, inputs.host.values()))
    plan = None if key is None else _PLANS.get(key)
    if plan is not None:
        return plan
    plan = RankPlan(inputs.plan(how, rank), [values_of(inputs.host[name]) for name in ("q_starts", "k_starts")], device)
    return plan if key is None else _PLANS.put(key, plan)


class PlanInputs:
    """What of a call a plan depends on: its problem, lengths, and tensors that its mask reads, on the host."""

    def __init__(self, call, whole, captured):
        fields, self.formulas = fields_of(BoundCall(call, *whole, None, captured), False)
        fields.update(q_offset=call.q_offset or None, k_offset=call.k_offset or None)  # the plan depends on their values
        self.line = problem_line(direction="forward", **fields)
        mask = self.formulas.mask.replace(" ", "")
        self.used = [i for i, name in enumerate(self.formulas.names) if f"{name}[" in mask]
        self.host = {name: None if x is None else x.cpu() for name, x in zip(LENGTHS[:4], call.tensors()[1:5])}
        self.captured, self.values = captured, call.values

    def plan(self, how, rank) -> str:
        """Of one rank as JSON, or a table of all of them if `rank` is None."""
        read = [(self.formulas.names[i], self.captured[i].detach().cpu()) for i in self.used]
        tensors = [(name, x.data_ptr(), _CODES[x.dtype], tuple(x.shape), tuple(x.stride())) for name, x in read]
        return _core.parallel_plan(
            _core.Problem(self.line),
            how,
            rank,
            tensors=tensors,
            scalars=[(name, value) for (name, _), value in zip(self.formulas.scalars, self.values)],
            **{name: None if x is None else x.data_ptr() for name, x in self.host.items()},
        )


def values_of(tensor):
    return None if tensor is None else tuple(tensor.tolist())
