"""q, k, v and the starts of packed sequences, checked: which arrays a layout takes, and what fits what."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from .._core import InvalidArgument
from .._request import check_rank, check_starts, check_types, one_of
from ._spec import DTYPES, LAYOUTS
from ._values import vector

# layout argument -> (layout of a tensor, roles of q, k, v)
_LAYOUTS = {
    **{name: (name, ("q", "k", "v")) for name in LAYOUTS},
    **{name: (inner, ("qkv",)) for name, inner in (("bs3hd", "bshd"), ("sb3hd", "sbhd"), ("t3hd", "thd"))},
    **{
        name: (inner, ("q", "kv"))
        for name, inner in (("bshd_bs2hd", "bshd"), ("sbhd_sb2hd", "sbhd"), ("thd_t2hd", "thd"))
    },
}


def tensors_of(layout: str, q, k, v) -> tuple[str, dict[str, jax.Array]]:
    """The layout of one tensor, and the arrays by role."""
    tensor_layout, roles = _LAYOUTS[one_of("layout", layout, _LAYOUTS)]
    given = {"q": q, "k": k, "v": v}
    wanted = [name for name, _ in zip(given, roles)]
    for name, value in given.items():
        if (value is not None) != (name in wanted):
            rule = f"layout {layout} takes {', '.join(wanted)}"
            raise InvalidArgument(f"{name} is {'missing' if value is None else 'given'}: {rule}")
    operands = {role: jnp.asarray(given[name]) for role, name in zip(roles, wanted)}
    _check_types(operands)
    for role, x in operands.items():
        _check_shape(tensor_layout, role, x)
    return tensor_layout, operands


def _check_types(operands: Mapping[str, jax.Array]) -> None:
    dtypes = [np.dtype(x.dtype).name for x in operands.values()]
    check_types(dtypes, list(operands))
    one_of(f"{next(iter(operands))}.dtype", dtypes[0], DTYPES)


def _check_shape(layout: str, role: str, x: jax.Array) -> None:
    if not all(isinstance(n, int) for n in x.shape):
        raise InvalidArgument(f"{role} has shape {x.shape}: sizes must be numbers, none may be symbolic")
    if role in ("qkv", "kv"):
        if x.ndim < 3 or x.shape[-3] != len(role):
            raise InvalidArgument(f"{role}: shape {list(x.shape)}; its third extent from the end must be {len(role)}")
        check_rank(role, layout, (*x.shape[:-3], *x.shape[-2:]))
    else:
        check_rank(role, layout, x.shape)


def packed_sequences(layout: str, cu_q, cu_k, max_q, max_k) -> tuple[dict[str, jax.Array], tuple[int, int]]:
    """The starts by role, and the longest lengths; nothing where the layout is not thd."""
    arguments = {
        "cu_seqlens_q": cu_q,
        "cu_seqlens_kv": cu_k,
        "max_seqlen_q": max_q,
        "max_seqlen_kv": max_k,
    }
    given = [name for name, value in arguments.items() if value is not None]
    if layout != "thd":
        if given:
            raise InvalidArgument(f"{', '.join(given)} given: only layout thd has packed sequences")
        return {}, (0, 0)
    if cu_q is None or max_q is None:
        raise InvalidArgument("layout thd needs cu_seqlens_q and max_seqlen_q")
    q_starts = vector("cu_seqlens_q", cu_q)
    k_starts = vector("cu_seqlens_kv", cu_q if cu_k is None else cu_k)
    check_starts("cu_seqlens_q", q_starts.shape)
    check_starts("cu_seqlens_kv", k_starts.shape, q_starts.shape[0])
    longest = (
        _length("max_seqlen_q", max_q),
        _length("max_seqlen_kv", max_q if max_k is None else max_k),
    )
    return {"q_starts": q_starts, "k_starts": k_starts}, longest


def _length(name: str, value) -> int:
    if isinstance(value, jax.core.Tracer):
        raise InvalidArgument(f"{name} is traced; it must be a number, the bound that a plan is made for")
    return operator.index(value)
