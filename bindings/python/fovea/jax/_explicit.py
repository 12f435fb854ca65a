"""Meshes of explicit axes, whose arrays say in their types how they are cut (jax.make_mesh makes such).

Attention itself is cut by XLA (`_partition`), so those axes are left to it while attention is traced, and the
results get the types that follow from that of q: its batch and its heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from .._core import OUTPUTS
from ._spec import LAYOUTS, Spec


def with_types(spec: Spec, attend: Callable, arrays: Sequence[jax.Array]) -> Callable:
    """`attend`, whose results have types where the queries have one."""
    own = jax.typeof(arrays[0]).sharding
    explicit = [
        axis for axis, kind in zip(own.mesh.axis_names, own.mesh.axis_types) if kind == AxisType.Explicit
    ]
    if not explicit:
        return attend
    outputs = tuple(NamedSharding(own.mesh, cut) for cut in _cuts(spec, own.spec))
    return jax.sharding.auto_axes(attend, axes=tuple(explicit), out_sharding=outputs)


def _cuts(spec: Spec, queries: PartitionSpec) -> list[PartitionSpec]:
    """Of each of spec.outputs."""
    batch, head, _ = LAYOUTS[spec.layout]
    packed = spec.operands[0] == "qkv"
    names = (*queries, *(None for _ in range(5 - len(queries))))
    b = None if batch is None else names[batch]
    h = names[head + packed]
    rows = PartitionSpec(h, None) if batch is None else PartitionSpec(b, h, None)
    tensor: list = [None] * (3 if batch is None else 4)
    tensor[head] = h
    if batch is not None:
        tensor[batch] = b
    heads = PartitionSpec(h)
    every = {"o": PartitionSpec(*tensor)}
    every |= {name: heads if extent == "heads" else rows for name, extent in OUTPUTS.items()}
    return [every[name] for name in spec.outputs]
