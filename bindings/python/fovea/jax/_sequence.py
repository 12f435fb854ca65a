"""Which tokens belong together: lengths, segments and positions, as Transformer Engine describes them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class SequenceDescriptor:
    """Made by one of the from_ functions.

    A segment id of 0 is padding. Tokens attend to tokens of the same id only. If there are positions,
    the q and k that modifiers see are positions inside the segment.
    """

    seqlens: tuple | None = None  # (queries, keys): [B] each
    segment_ids: tuple | None = None  # (queries, keys): [B, S] each
    segment_pos: tuple | None = None

    def tree_flatten(self):
        return (self.seqlens, self.segment_ids, self.segment_pos), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)

    @classmethod
    def from_seqlens(cls, seqlens) -> "SequenceDescriptor":
        """Lengths of padded sequences: [B], or a pair for queries and keys."""
        return cls(seqlens=_arrays(seqlens))

    @classmethod
    def from_segment_ids_and_pos(cls, segment_ids, segment_pos=None) -> "SequenceDescriptor":
        """Ids of packed segments, [B, S] or a pair; positions count from a segment's start unless given."""
        ids = _arrays(segment_ids)
        positions = _arrays(segment_pos) if segment_pos is not None else tuple(_positions(x) for x in ids)
        return cls(segment_ids=ids, segment_pos=positions)

    @classmethod
    def from_seqlens_and_offsets(cls, seqlens, seq_offsets, max_seqlens) -> "SequenceDescriptor":
        """Lengths [B, segments] and starts [B, segments (+ 1)] of packed segments, or pairs; max_seqlens is
        S, or a pair.
        """
        parts = zip(_arrays(seqlens), _arrays(seq_offsets), _pair(max_seqlens), strict=True)
        ids, positions = zip(*(_segments(lengths, starts, size) for lengths, starts, size in parts))
        return cls(segment_ids=tuple(ids), segment_pos=tuple(positions))


def _pair(value) -> tuple:
    if isinstance(value, (tuple, list)):
        first, second = value
        return first, second
    return value, value


def _arrays(value) -> tuple:
    """An array for both, or a pair of them; a list of numbers is one array."""
    if isinstance(value, (tuple, list)) and not (len(value) == 2 and all(np.ndim(x) for x in value)):
        value = jnp.asarray(value)
    return _pair(value)


def _positions(ids):
    """The distance from where a run of equal ids began."""
    place = jnp.arange(ids.shape[-1], dtype=jnp.int32)
    starts = jnp.concatenate([jnp.ones_like(ids[..., :1], bool), ids[..., 1:] != ids[..., :-1]], axis=-1)
    return place - jax.lax.cummax(jnp.where(starts, place, 0), axis=ids.ndim - 1)


def _segments(lengths, starts, size: int):
    place = jnp.arange(size, dtype=jnp.int32)[None, None, :]
    first = starts[..., : lengths.shape[-1], None]
    inside = (place >= first) & (place < first + lengths[..., None])
    number = jnp.arange(1, lengths.shape[-1] + 1, dtype=jnp.int32)[None, :, None]
    ids = jnp.sum(jnp.where(inside, number, 0), axis=1)
    return ids, jnp.sum(jnp.where(inside, place - first, 0), axis=1)
