"""Values that a call binds, as its operands take them: scalars, vectors, seeds, and their types."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .._core import InvalidArgument
from .._request import check_per_sequence


def made_alike(arrays: list[jax.Array]) -> list[jax.Array]:
    """Inside shard_map all operands must vary over the same axes of the mesh."""
    varying = [jax.typeof(x).manual_axis_type.varying for x in arrays]
    every = frozenset().union(*varying)
    if not every:
        return arrays
    return [
        x if own == every else jax.lax.pcast(x, tuple(sorted(every - own)), to="varying")
        for x, own in zip(arrays, varying)
    ]


def in_shard_map(x: jax.Array) -> bool:
    return bool(jax.typeof(x).sharding.mesh.manual_axes)


def with_own_type(x: jax.Array) -> jax.Array:
    """An array whose type gives way to others is another operand to JAX, which would compile anew for it."""
    return jax.lax.convert_element_type(x, x.dtype) if jax.typeof(x).weak_type else x


def is_zero(value) -> bool:
    return isinstance(value, (int, np.integer)) and value == 0


def scalar(name: str, value, dtype) -> jax.Array:
    array = jnp.asarray(value)
    if array.ndim:
        raise InvalidArgument(f"{name} has shape {array.shape}; it must be a scalar")
    if dtype == jnp.int32 and not jnp.issubdtype(array.dtype, jnp.integer):
        raise InvalidArgument(f"{name} has the type {array.dtype}; it must be an integer")
    return array.astype(dtype)


def vector(name: str, value, count: int | None = None) -> jax.Array:
    """int32: one number for each of `count` sequences, if that is given."""
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise InvalidArgument(f"{name} has the type {array.dtype}; it must be int32")
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
    raise InvalidArgument(
        f"dropout_seed has type {array.dtype} and shape {array.shape}; give a number, a PRNG key or uint32[2]"
    )
