"""q, k, v and the starts of packed sequences, checked: which arrays a layout takes, and what fits what."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from ._spec import DTYPES, LAYOUTS, Sizes
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
    if layout not in _LAYOUTS:
        raise ValueError(f"layout={layout!r} must be one of {', '.join(_LAYOUTS)}")
    tensor_layout, roles = _LAYOUTS[layout]
    given = {"q": q, "k": k, "v": v}
    wanted = [name for name, _ in zip(given, roles)]
    for name, value in given.items():
        if (value is not None) != (name in wanted):
            rule = f"layout {layout} takes {', '.join(wanted)}"
            raise ValueError(f"{name} is {'missing' if value is None else 'given'}: {rule}")
    operands = {role: jnp.asarray(given[name]) for role, name in zip(roles, wanted)}
    _check_types(operands)
    for role, x in operands.items():
        _check_shape(tensor_layout, role, x)
    return tensor_layout, operands


def _check_types(operands: Mapping[str, jax.Array]) -> None:
    dtypes = {np.dtype(x.dtype).name for x in operands.values()}
    if len(dtypes) > 1:
        raise TypeError(f"q, k and v must have one type, got {', '.join(sorted(dtypes))}")
    if dtypes.isdisjoint(DTYPES):
        raise TypeError(f"q, k and v have the type {dtypes.pop()}; it must be one of {', '.join(DTYPES)}")


def _check_shape(layout: str, role: str, x: jax.Array) -> None:
    if not all(isinstance(n, int) for n in x.shape):
        raise TypeError(f"{role} has shape {x.shape}: sizes must be numbers, none may be symbolic")
    together = role in ("qkv", "kv")
    rank = (3 if layout == "thd" else 4) + together
    if x.ndim != rank:
        raise ValueError(f"{role} has shape {x.shape}: layout {layout} has {rank} dimensions there")
    if together and x.shape[-3] != len(role):
        raise ValueError(f"{role} has shape {x.shape}: dimension {rank - 3} must be {len(role)}")


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
            raise ValueError(f"{', '.join(given)} given: only layout thd has packed sequences")
        return {}, (0, 0)
    if cu_q is None or max_q is None:
        raise ValueError("layout thd needs cu_seqlens_q and max_seqlen_q")
    q_starts = vector("cu_seqlens_q", cu_q, None)
    k_starts = vector("cu_seqlens_kv", cu_q if cu_k is None else cu_k, q_starts.shape[0])
    longest = (
        _length("max_seqlen_q", max_q),
        _length("max_seqlen_kv", max_q if max_k is None else max_k),
    )
    return {"q_starts": q_starts, "k_starts": k_starts}, longest


def _length(name: str, value) -> int:
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} is traced; it must be a number, the bound that a plan is made for")
    return operator.index(value)


def check_sizes(layout: str, sizes: Sizes, operands: Mapping[str, jax.Array]) -> None:
    if sizes.h != sizes.hkv and (sizes.hkv == 0 or sizes.h % sizes.hkv):
        raise ValueError(
            f"q has {sizes.h} heads, k has {sizes.hkv}: the first must be a multiple of the second"
        )
    if "qkv" in operands:
        return
    q, k, v = (tuple(operands[role].shape) if role in operands else None for role in ("q", "k", "v"))
    if k is None:  # together with v: [..., 2, H, D]
        whole = operands["kv"].shape
        k = v = (*whole[:-3], *whole[-2:])
    batch = LAYOUTS[layout][0]
    if k[:-1] != v[:-1]:
        raise ValueError(f"k {k} and v {v} must have the same shape but for the last dimension")
    if q[-1] != k[-1]:
        raise ValueError(f"q {q} and k {k} must have the same last dimension")
    if batch is not None and q[batch] != k[batch]:
        raise ValueError(f"q {q} and k {k} must have the same batch, dimension {batch}")
