"""Attention without a single score, as constants: engines for GPUs take no tensors without elements."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ._spec import Spec, gradient_roles, gradient_shapes, output_shapes, sizes_of


def is_nothing(spec: Spec, avals: Sequence) -> bool:
    s = sizes_of(spec, avals)
    rows = (s.t_q, s.t_k) if spec.layout == "thd" else (s.sq, s.skv)
    return 0 in (s.b, s.h, *rows)


def results_of_nothing(direction: str, spec: Spec, operands: Sequence[jax.Array]) -> list[jax.Array]:
    """Rows are empty: o is 0, lse the sink's or -inf. Only the sink can have a gradient, by that of lse."""
    given = dict(zip(spec.operands, operands))
    if direction == "backward":
        zeros = [jnp.zeros(shape, dtype) for shape, dtype in gradient_shapes(spec, operands)]
        roles = gradient_roles(spec)
        if "grad_sink" in roles and "grad_lse" in given:
            at = roles.index("grad_sink")
            head = 0 if spec.layout == "thd" else 1
            rest = tuple(d for d in range(given["grad_lse"].ndim) if d != head)
            zeros[at] = jnp.sum(given["grad_lse"], axis=rest).astype(zeros[at].dtype)
        return zeros
    results = []
    for role, (shape, dtype) in zip(spec.outputs, output_shapes(spec, operands)):
        value = jnp.full(shape, 0 if role == "o" else -jnp.inf, dtype)
        if role == "lse" and "sink" in given:
            value = jnp.broadcast_to(given["sink"][:, None].astype(dtype), shape)
        results.append(value)
    return results
