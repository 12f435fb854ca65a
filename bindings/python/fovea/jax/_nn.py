"""jax.nn.dot_product_attention's function, with modifiers."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._core import InvalidArgument
from .._options import Handed
from ._call import Call
from ._modifiers import Given, Modifier


def dot_product_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
    *,
    scale: float | jax.Array | None = None,
    is_causal: bool = False,
    query_seq_lengths: jax.Array | None = None,
    key_value_seq_lengths: jax.Array | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
    score_mod: Modifier | None = None,
    mask_mod: Modifier | None = None,
    score_mod_bprop: Modifier | None = None,
    score_mod_tensors: Mapping[str, Any] | None = None,
    score_mod_bprop_tensors: Mapping[str, Any] | None = None,
    mask_mod_tensors: Mapping[str, Any] | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """jax.nn.dot_product_attention, argument for argument, and the modifiers of `fovea.jax.attention`.

    query is [B, T, N, H] or [T, N, H]. The order is scale, bias, score_mod, masks. `implementation` is None (Fovea's
    choice), the name of one of Fovea's engines, or "xla", which is jax.nn's own and takes no modifiers. The residual is the
    natural logarithm of the sum, [B, T, N] in the type of `key`, without a gradient. A row with nothing kept gives zeros,
    and -inf as its residual."""
    given = Given.of(locals())
    if implementation == "xla":
        _refuse_modifiers(given)
        return jax.nn.dot_product_attention(
            query,
            key,
            value,
            bias,
            mask,
            scale=scale,
            is_causal=is_causal,
            query_seq_lengths=query_seq_lengths,
            key_value_seq_lengths=key_value_seq_lengths,
            local_window_size=local_window_size,
            implementation="xla",
            return_residual=return_residual,
        )
    shape = jnp.shape(query)
    query, key, value = (_with_rank_four(x) for x in (query, key, value))
    call = Call("bshd", query, key, value)
    call.keep_names(given)
    if mask is not None:
        call.mask_array("mask", _with_rank_four(mask))
    window = _window(is_causal, local_window_size)
    bias = None if bias is None else _with_rank_four(bias)
    call.modify(given, bias=bias, masks=[window] if window else [])
    names = ("query_seq_lengths", "key_value_seq_lengths")
    lengths = zip((query_seq_lengths, key_value_seq_lengths), (query.shape[1], key.shape[1]))
    # A length greater than the array's means all of it.
    call.lengths(*(x if x is None else jnp.clip(jnp.asarray(x), 0, n) for x, n in lengths), names=names)
    call.values(scale=scale)
    call.options(Handed(engine=implementation, return_lse=return_residual))
    results = call.run()
    o = results[0].reshape((*shape[:-1], value.shape[-1]))
    if not return_residual:
        return o
    residual = jnp.swapaxes(results[1], -1, -2).astype(key.dtype).reshape(shape[:-1])
    return o, jax.lax.stop_gradient(residual)


def _refuse_modifiers(given: Given) -> None:
    if given != Given():
        raise InvalidArgument('implementation="xla" is jax.nn\'s own attention, which takes no modifiers')


def _window(is_causal: bool, size: int | Sequence[int] | None) -> str | None:
    """Keys from q - left to q + right. Unlike elsewhere, -1 is an ordinary number of positions here."""
    bounds = ["q >= k"] if is_causal else []
    if size is not None:
        try:
            left, right = map(operator.index, size if isinstance(size, Sequence) else (size, size))
        except (TypeError, ValueError):
            raise InvalidArgument(
                f"local_window_size={size!r}: must be (left, right), each a number of positions, or one for both"
            ) from None
        if right == 0 and not is_causal:
            bounds.append("q >= k")
        elif right < 0 or not is_causal:
            bounds.append(f"k - q <= {right}")
        bounds.append(f"q - k <= {left}")
    return " && ".join(bounds) or None


def _with_rank_four(array):
    array = jnp.asarray(array)
    return array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim < 4 else array
