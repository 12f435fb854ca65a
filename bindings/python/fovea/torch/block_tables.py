"""torch's BlockMask: the scores of a block are kept if the tables say that it is full, or if they list it and its function
keeps them. A call carries the tables together with the function's formula, also through a compiled or exported program.
Right before it runs, the tables are dropped if the formula provably keeps the same scores; otherwise they become part of the
mask, one element per block."""

import dataclasses
import itertools
import re

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from .. import _core
from .._core import InvalidArgument
from .._request import program_line
from .modifiers import Formulas

NAMES = ("_counts", "_indices", "_full_counts", "_full_indices")
MOST_PROOFS = 4096  # boxes of positions that are analysed for one mask, at some microseconds each


def add_tables(formulas, block_mask, query):
    """Adds the tables to the formulas of the mask's function."""
    tables = [block_mask.kv_num_blocks, block_mask.kv_indices]
    if block_mask.full_kv_num_blocks is not None:
        tables += [block_mask.full_kv_num_blocks, block_mask.full_kv_indices]
    counts = tables[0]
    rows, columns = int(block_mask.BLOCK_SIZE[0]), int(block_mask.BLOCK_SIZE[1])  # symbols under dynamic=True
    if counts.dim() != 3 or counts.shape[2] * rows < query.shape[2]:
        raise InvalidArgument(
            f"block_mask: its tables have {list(counts.shape)} rows of blocks of {rows} queries; must be [B, H, rows], with "
            f"a row for each of the {query.shape[2]} queries"
        )
    if query.device != counts.device:
        raise InvalidArgument(
            f"Expect q/k/v and block_mask to be on the same device but got {query.device} and {counts.device}."
        )
    b, h = (0 if extent == 1 else leaf for extent, leaf in zip(counts.shape, "bh"))
    formulas.block = f"{b}, {h}, q // {rows}, k // {columns}"
    formulas.names += NAMES[: len(tables)]
    formulas.tensors += tables
    formulas.uses += ["-" * x.dim() for x in tables]


def settled(at):
    """The call without tables, and with the tensors that its formulas capture then. Not for fake tensors: it reads values."""
    call, q, k = at.call, at.q, at.k
    if call.formulas.endswith("\n"):
        return at
    formulas = Formulas.parse(call.formulas)
    first = formulas.names.index(NAMES[0])
    tables, captured = at.captured[first:], list(at.captured[:first])
    listed, full = needed(tables, formulas.mask, formulas.block, (*q.shape[:2], k.shape[1], q.shape[2], k.shape[2]))
    del formulas.names[first:], formulas.uses[first:]
    for name, table, text in (("_listed", listed, "{} && ({})"), ("_full", full, "{} || ({})")):
        if table is not None:
            formulas.names.append(name)
            formulas.uses.append("----")
            captured.append(table)
            formulas.mask = text.format(f"{name}[{formulas.block}]", formulas.mask)
    formulas.block = ""
    return at._replace(call=dataclasses.replace(call, formulas=formulas.text()), captured=captured)


def needed(tables, mask, block, sizes):
    """(listed, full): the tables that the mask needs beside its formula, each None if it is not needed. Determined once for
    tables that do not change. While a CUDA graph is captured nothing may be read, so both are needed."""
    known, key = known_of(tables), (mask, block, sizes)
    if key in known:
        return known[key]
    columns = -(-sizes[4] // int(block.rsplit(" ", 1)[1]))
    listed = dense(*tables[:2], columns)
    full = dense(*tables[2:], columns) if len(tables) > 2 else None
    if tables[0].is_cuda and torch.cuda.is_current_stream_capturing():
        return listed, full
    known[key] = (None, None) if is_said(mask, block, sizes, listed, full) else (listed, full)
    return known[key]


_known = WeakTensorKeyDictionary()  # by the indices of listed blocks: (the other tables, all versions, what was found)


def known_of(tables):
    """What needed() found for these tables as they are now."""
    if any(x.is_inference() for x in tables):  # they have no versions
        return {}
    others, versions = (tables[0], *tables[2:]), [x._version for x in tables]
    kept = _known.get(tables[1])
    if kept is None or kept[1] != versions or not all(a is b for a, b in zip(kept[0], others)):
        kept = _known[tables[1]] = (others, versions, {})
    return kept[2]


def dense(counts, indices, columns):
    """bool [B, H, rows of blocks, columns of blocks]"""
    slots = torch.arange(indices.shape[-1], device=indices.device)
    is_used = (slots < counts.unsqueeze(-1)) & (indices >= 0) & (indices < columns)
    targets = torch.where(is_used, indices.long(), columns)  # blocks that are not listed go into an extra column
    table = torch.zeros((*counts.shape, columns + 1), dtype=torch.bool, device=indices.device)
    return table.scatter(-1, targets, True)[..., :columns].contiguous()


EMPTY, FULL, ANY = 0, 1, 2  # what tables say of a block; the first two are classes of the library


def is_said(mask, block, sizes, listed, full) -> bool:
    """Does the range analysis prove that the formula keeps nothing in blocks that are not listed, and all of full ones? Not
    for a formula of captured values: these may change while the tables stay."""
    if "[" in mask:
        return False
    says = torch.where(listed, ANY, EMPTY) if full is None else torch.where(full, FULL, torch.where(listed, ANY, EMPTY))
    says = says.tolist()
    proof = Proof(mask, block, sizes)
    by_batch, by_head = (re.search(rf"\b{leaf}\b", mask) is not None for leaf in "bh")
    seen = []
    for b, h in itertools.product(range(sizes[0]), range(sizes[1])):
        of_head = says[b % len(says)]
        one = (b if by_batch else 0, h if by_head else 0, of_head[h % len(of_head)])
        if one not in seen:
            seen.append(one)
            if not proof.holds(*one):
                return False
    return True


class Proof:
    def __init__(self, mask, block, sizes):
        self.program, self.sizes, self.left = _core.Program(program_line(mask=mask)), sizes, MOST_PROOFS
        self.extents = [int(index.split(" // ")[1]) for index in block.split(", ")[2:]]

    def holds(self, b, h, says) -> bool:
        """Does the formula agree with the tables of one head?"""
        rows = -(-self.sizes[3] // self.extents[0])
        for row, of_row in enumerate(says[:rows]):
            at = 0
            for state, group in itertools.groupby(of_row):
                count = len(list(group))
                if state != ANY and not self.is_class(state, (b, h), row, (at, at + count)):
                    return False
                at += count
        return True

    def is_class(self, state, head, row, columns) -> bool:
        """Are these neighbouring blocks of that class? Asked for all at once, then one by one."""
        if self.left == 0:
            return False
        self.left -= 1
        ends = [(row, row + 1), columns]
        box = [min(end * extent, size) for pair, extent, size in zip(ends, self.extents, self.sizes[3:]) for end in pair]
        if self.program.classify((*head, 0, 0), self.sizes, box) == state:
            return True
        first, last = columns
        return last - first > 1 and all(self.is_class(state, head, row, (i, i + 1)) for i in range(first, last))
