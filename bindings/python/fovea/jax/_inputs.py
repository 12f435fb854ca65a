"""Arguments of a call as its operands take them: q, k, v and the starts of packed sequences, which are checked; scalars,
vectors and seeds; which tokens belong together."""

from __future__ import annotations

import dataclasses
import operator

import jax
import jax.numpy as jnp
import numpy as np

from .._core import InvalidArgument
from .._request import check_integers, check_per_sequence, check_rank, check_starts, check_types, is_packed, one_of
from ._spec import DTYPES, LAYOUTS

# layout argument -> (layout of a tensor, roles of q, k, v)
_LAYOUTS = {
    **{name: (name, ("q", "k", "v")) for name in LAYOUTS},
    **{name: (inner, ("qkv",)) for name, inner in (("bs3hd", "bshd"), ("sb3hd", "sbhd"), ("t3hd", "thd"))},
    **{name: (inner, ("q", "kv")) for name, inner in (("bshd_bs2hd", "bshd"), ("sbhd_sb2hd", "sbhd"), ("thd_t2hd", "thd"))},
}


def tensors_of(layout: str, q, k, v) -> tuple[str, dict[str, jax.Array]]:
    """The layout of one tensor, and the arrays by role."""
    tensor_layout, roles = _LAYOUTS[one_of("layout", layout, _LAYOUTS)]
    given = {"q": q, "k": k, "v": v}
    wanted = [name for name, _ in zip(given, roles)]
    for name, value in given.items():
        if (value is not None) != (name in wanted):
            rule = f"layout {layout} takes {', '.join(wanted)}"
            raise InvalidArgument(f"{name}: {'missing' if value is None else 'given'}, but {rule}")
    operands = {role: jnp.asarray(given[name]) for role, name in zip(roles, wanted)}
    check_types([np.dtype(x.dtype).name for x in operands.values()], DTYPES, list(operands))
    for role, x in operands.items():
        _check_shape(tensor_layout, role, x)
    return tensor_layout, operands


def _check_shape(layout: str, role: str, x: jax.Array) -> None:
    if not all(isinstance(n, int) for n in x.shape):
        raise InvalidArgument(f"{role}: shape {list(x.shape)}; sizes must be numbers, none may be symbolic")
    if role in ("qkv", "kv"):
        if x.ndim < 3 or x.shape[-3] != len(role):
            raise InvalidArgument(f"{role}: shape {list(x.shape)}; the third extent from the end must be {len(role)}")
        check_rank(role, layout, (*x.shape[:-3], *x.shape[-2:]))
    else:
        check_rank(role, layout, x.shape)


def packed_sequences(layout: str, cu_q, cu_k, max_q, max_k) -> tuple[dict[str, jax.Array], tuple[int, int]]:
    """The starts by role, and the longest lengths; empty if the layout is not thd."""
    arguments = (("cu_seqlens_q", cu_q), ("cu_seqlens_kv", cu_k), ("max_seqlen_q", max_q), ("max_seqlen_kv", max_k))
    if not is_packed(layout, arguments, ("cu_seqlens_q", "max_seqlen_q")):
        return {}, (0, 0)
    q_starts = vector("cu_seqlens_q", cu_q)
    k_starts = vector("cu_seqlens_kv", cu_q if cu_k is None else cu_k)
    check_starts("cu_seqlens_q", q_starts.shape, k_starts.shape, "cu_seqlens_kv")
    longest = (_length("max_seqlen_q", max_q), _length("max_seqlen_kv", max_q if max_k is None else max_k))
    return {"q_starts": q_starts, "k_starts": k_starts}, longest


def _length(name: str, value) -> int:
    if isinstance(value, jax.core.Tracer):
        raise InvalidArgument(f"{name}: traced; must be a number, the bound that a plan is made for")
    return operator.index(value)


def made_alike(arrays: list[jax.Array]) -> list[jax.Array]:
    """Inside shard_map all operands must vary over the same axes of the mesh."""
    varying = [jax.typeof(x).manual_axis_type.varying for x in arrays]
    every = frozenset().union(*varying)
    if not every:
        return arrays
    return [
        x if own == every else jax.lax.pcast(x, tuple(sorted(every - own)), to="varying") for x, own in zip(arrays, varying)
    ]


def in_shard_map(x: jax.Array) -> bool:
    return bool(jax.typeof(x).sharding.mesh.manual_axes)


def with_own_type(x: jax.Array) -> jax.Array:
    """The array without a weak type: to JAX a weak type is another type, for which it would compile again."""
    return jax.lax.convert_element_type(x, x.dtype) if jax.typeof(x).weak_type else x


def is_zero(value) -> bool:
    return isinstance(value, (int, np.integer)) and value == 0


def scalar(name: str, value, dtype) -> jax.Array:
    try:
        array = jnp.asarray(value)
    except TypeError:
        raise InvalidArgument(f"{name}={value!r}: must be a number") from None
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise InvalidArgument(f"{name}: {array.dtype}; must be a real number")
    if array.ndim:
        raise InvalidArgument(f"{name}: shape {list(array.shape)}; must be a scalar")
    if dtype == jnp.int32 and not jnp.issubdtype(array.dtype, jnp.integer):
        raise InvalidArgument(f"{name}: {array.dtype}; must be an integer")
    return array.astype(dtype)


def vector(name: str, value, count: int | None = None) -> jax.Array:
    """int32: one number for each of `count` sequences, if that is given."""
    array = jnp.asarray(value)
    check_integers(name, jnp.issubdtype(array.dtype, jnp.integer), array.dtype, array.shape)
    if count is not None:
        check_per_sequence(name, array.shape, count)
    return array.astype(jnp.int32)


def seed_words(seed) -> jax.Array:
    """The 64 bits of a seed as uint32[2], the lower half first."""
    if isinstance(seed, (int, np.integer)):
        number = int(seed) % 2**64
        return jnp.asarray(np.array([number % 2**32, number >> 32], np.uint32))
    array = seed if isinstance(seed, jax.Array) else np.asarray(seed)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    words = array.reshape(-1)
    if words.dtype == jnp.uint32 and words.shape[0] >= 2:
        return jnp.asarray(words[-2:])
    if words.shape == (1,) and jnp.issubdtype(words.dtype, jnp.integer):
        high = words >> 32 if words.dtype.itemsize == 8 else jnp.where(words < 0, -1, 0)
        return jnp.concatenate([words, high]).astype(jnp.uint32)
    raise InvalidArgument(f"dropout_seed: {array.dtype} {list(array.shape)}; must be a number, a PRNG key or uint32[2]")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SequenceDescriptor:
    """Made by one of the from_ functions.

    A segment id of 0 is padding. Tokens attend to tokens of the same id only. If there are positions, the q and k that
    modifiers see are positions inside the segment."""

    seqlens: tuple | None = None  # (queries, keys): [B] each
    segment_ids: tuple | None = None  # (queries, keys): [B, S] each
    segment_pos: tuple | None = None

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
        """Lengths [B, segments] and starts [B, segments (+ 1)] of packed segments, or pairs; max_seqlens is S, or a pair."""
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
