"""Masks and biases as Transformer Engine's modules take them: tensors whose sizes are checked, since a load beyond the end
of one would be clamped into something else."""

import torch
from torch import Tensor

from .._core import InvalidArgument


def sizes_of_call(layout, q, k, starts, longest):
    """(B, H, Sq, Skv) of tensors [S, B, H, D] or [B, S, H, D]; of packed ones the lengths that are given, or None."""
    if layout == "thd":
        return (None if starts is None else starts.shape[0] - 1, q.shape[-2], *longest)
    batch, length = (0, 1) if layout == "bshd" else (1, 0)
    return (q.shape[batch], q.shape[-2], q.shape[length], k.shape[length])


def check_extents(name, x, sizes):
    """Each extent of [B, H, Sq, Skv] is 1, or the call's own."""
    meaning = ("B", "H", "Sq", "Skv")
    if x.dim() != 4:
        raise InvalidArgument(f"{name}: {x.dim()} dimensions {list(x.shape)}; must be [B, H, Sq, Skv], each of them or 1")
    for extent, size, letter in zip(x.shape, sizes, meaning):
        if size is None and extent != 1:
            raise InvalidArgument(f"{name}: packed sequences need max_seqlen_q and max_seqlen_kv, which say its sizes")
        if extent not in (1, size):
            raise InvalidArgument(f"{name}: {list(x.shape)}; {letter} must be {size} or 1, got {extent}")
    return x


def element(x, b, h, q, k):
    """Of a tensor as check_extents lets it through."""
    return x[tuple(i if extent > 1 else 0 for extent, i in zip(x.shape, (b, h, q, k)))]


def check_bool(name, mask):
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InvalidArgument(f"{name}: must be a bool tensor, True for what is masked; got {got}")
    return mask


def outside(attention_mask, sizes):
    """A mask function of a tensor [B or 1, H or 1, Sq or 1, Skv or 1] that is True for what is not seen."""
    if not isinstance(attention_mask, Tensor):
        raise InvalidArgument("attention_mask: attn_mask_type 'arbitrary' needs one bool tensor [B, H, Sq, Skv]")
    check_extents("attention_mask", check_bool("attention_mask", attention_mask), sizes)
    return lambda b, h, q, k: ~element(attention_mask, b, h, q, k)


def padding(attention_mask, sizes, needs_lengths):
    """Options of attention() for a padding mask, or a pair for queries and keys: lengths if all that is masked lies at the
    end of its sequence, else a mask. A mask on a GPU is looked at only if lengths are needed: that waits for it."""
    masks = attention_mask if isinstance(attention_mask, tuple) else (attention_mask, attention_mask)
    rows = []
    for mask, length in zip(masks, sizes[2:]):
        check_bool("attention_mask", mask)
        if mask.dim() == 4 and mask.shape[1] == 1 and mask.shape[2] > 1 and not isinstance(attention_mask, tuple):
            return {"mask_mod": outside(mask, sizes)}
        row = mask.reshape(mask.shape[0], -1)
        if row.shape[0] not in (1, sizes[0]) or row.shape[1] != length:
            raise InvalidArgument(
                f"attention_mask: {list(mask.shape)}; must be [{sizes[0]}, 1, 1, {length}], or [B, 1, Sq, Skv]"
            )
        rows.append(row.expand(sizes[0], length))
    queries, keys = rows
    if (needs_lengths or queries.device.type == "cpu") and all(is_at_the_end(x) for x in rows):
        return {"seq_lens": tuple(x.logical_not().sum(-1) for x in rows)}
    if needs_lengths:
        raise InvalidArgument(
            "attention_mask: a mask from the bottom right needs padding at the end of sequences, or cu_seqlens_q and "
            "cu_seqlens_kv"
        )
    return {"mask_mod": lambda b, h, q, k: ~(queries[b, q] | keys[b, k])}


def is_at_the_end(masked) -> bool:
    return not bool((masked[:, :-1] & ~masked[:, 1:]).any())
