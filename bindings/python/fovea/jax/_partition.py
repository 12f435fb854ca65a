"""How a call is sharded over a mesh: by batch and heads, without communication.

Each device runs attention on its part of the batch and of the heads, and sees global coordinates. A captured tensor that is
indexed by one coordinate alone is sharded along with it; any other is whole on every device, and the device's offset is
bound. Gradients of whole tensors are summed over the mesh.

The arrays of a mesh with explicit axes (as jax.make_mesh makes it) have types that say how they are sharded. These axes are
left to XLA while attention is traced, and the results get the types that follow from that of q: its batch and its heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import SdyShardingRule, custom_partitioning
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from .._core import OUTPUTS, Unsupported
from .._request import Sizes, substitute
from ._rewrite import tokens, uses_apart_from_loads
from ._spec import Dimensions, Spec, dimensions_of, gradient_source, moves, result_roles, sizes_of


def partitioned(direction: str, spec: Spec, operands: Sequence[jax.Array], call: Callable):
    """call(spec, *operands), as something that XLA can cut."""
    sizes = sizes_of(spec, operands)
    plan = _Partition(direction, spec, sizes)

    def whole(*arrays):
        return call(spec, *arrays)

    def shardings(mesh, axes, dimensions):
        return tuple(NamedSharding(mesh, plan.spec_of(d, axes)) for d in dimensions)

    def partition(mesh, arguments, results):
        axes = plan.axes_on(mesh, arguments)
        outputs, inputs = (shardings(mesh, axes, d) for d in (plan.results, plan.operands))
        return mesh, lambda *arrays: plan.run(call, mesh, axes, arrays), outputs, inputs

    def infer(mesh, arguments, results):
        return shardings(mesh, plan.axes_on(mesh, arguments), plan.results)

    cut = custom_partitioning(whole)
    # `infer` is for GSPMD (jax_use_shardy_partitioner=False), which knows no rules.
    cut.def_partition(partition, infer_sharding_from_operands=infer, sharding_rule=plan.rule())
    return cut(*operands)


class _Partition:
    """One call on a mesh: along which axis each dimension of its operands and results is cut."""

    def __init__(self, direction: str, spec: Spec, sizes: Sizes):
        self._direction, self._spec, self._sizes = direction, spec, sizes
        self._goes_along = {axis: self._can_go_along(axis) for axis in ("b", "h")}
        self.operands = [self._dimensions(role) for role in spec.operands]
        self._result_roles = roles = result_roles(spec, direction)
        self.results = [self._dimensions(gradient_source(role) if role.startswith("grad_") else role) for role in roles]

    @property
    def _by_place(self) -> bool:
        """Does dropout use global coordinates?"""
        return bool(self._spec.dropout) and self._spec.rng == "portable"

    # --- what each dimension is ---

    def _texts(self) -> list[str]:
        return [text for text in (self._spec.mod, self._spec.mask, self._spec.bprop) if text is not None]

    def _can_go_along(self, axis: str) -> bool:
        """Is this coordinate used only to index dimensions that are cut just as it is?"""
        size = self._sizes.b if axis == "b" else self._sizes.h
        tagged = {(t.name, d) for t in self._spec.tensors for d, a in enumerate(t.axes) if a == axis}
        if self._by_place or not size:
            return False
        return not any(uses_apart_from_loads(text, axis, lambda name, d: (name, d) in tagged) for text in self._texts())

    def _dimensions(self, role: str) -> Dimensions:
        """Those along which an operand or result may be cut."""
        found = dimensions_of(self._spec, role)
        if not moves(role).startswith("tensor:"):
            return found
        return tuple(d if d in ("b", "h") and self._goes_along[d] else None for d in found)

    # --- for Shardy ---

    def rule(self) -> SdyShardingRule:
        sizes, fixed = self._sizes, []

        def factor(dimension: str | None) -> str:
            if dimension == "g":
                # Key/value heads are fewer than query heads: axes_on() cuts them likewise if that divides evenly.
                return "h" if sizes.hkv == sizes.h else "g"
            if dimension is not None:
                return dimension
            fixed.append(f"x{len(fixed)}")
            return fixed[-1]

        operands = tuple(tuple(factor(d) for d in dims) for dims in self.operands)
        results = tuple(tuple(factor(d) for d in dims) for dims in self.results)
        return SdyShardingRule(operands, results, need_replication_factors=tuple(fixed))

    # --- on a mesh ---

    def axes_on(self, mesh, arguments) -> dict[str, tuple[str, ...]]:
        """The mesh axes that cut the batch and the heads, from the sharding of the queries."""
        first = arguments[0]
        given = first.sharding.spec if isinstance(first.sharding, NamedSharding) else ()
        axes: dict[str, tuple[str, ...]] = {"b": (), "h": (), "g": ()}
        for dimension, entry in zip(self.operands[0], given):
            if dimension in ("b", "h") and entry is not None:
                names = entry if isinstance(entry, tuple) else (entry,)
                # XLA would pad uneven parts, and the padding would be summed, too.
                size = self._sizes.b if dimension == "b" else self._sizes.h
                axes[dimension] = names if size % _count(mesh, names) == 0 else ()
        if self._spec.dropout and not self._by_place and _count(mesh, (*axes["b"], *axes["h"])) > 1:
            raise Unsupported(
                "dropout_rng='engine' under jit over several devices: forward and backward might be cut "
                "differently, and an engine's generator would then drop other scores. Call attention inside "
                "jax.shard_map, with jax.lax.axis_index in the seed, or use dropout_rng='portable'"
            )
        parts = _count(mesh, axes["h"])
        if self._sizes.hkv % parts == 0:
            axes["g"] = axes["h"]
        elif self._sizes.hkv != 1:
            axes["h"] = ()  # a group of heads would be cut: heads are not partitioned
        return axes

    def spec_of(self, dimensions: Dimensions, axes) -> PartitionSpec:
        return PartitionSpec(*(axes[d] if d and axes[d] else None for d in dimensions))

    def run(self, call: Callable, mesh, axes, arrays):
        """One device's part."""
        spec, arrays = self._localized(mesh, axes, list(arrays))
        results = call(spec, *arrays)
        return tuple(
            self._combined(role, dims, axes, result) for role, dims, result in zip(self._result_roles, self.results, results)
        )

    def _localized(self, mesh, axes, arrays):
        spec, sizes = self._spec, self._sizes
        used = {word for text in self._texts() for word in tokens(text)}
        words = {}
        if "B" in used and axes["b"]:
            words["B"] = str(sizes.b)
        if "Hkv" in used and axes["g"]:
            words["Hkv"] = str(sizes.hkv)
        if words:
            spec = spec.replace(
                **{k: substitute(t, words) for k in ("mod", "mask", "bprop") if (t := getattr(spec, k)) is not None}
            )
        if axes["h"] and ("H" in used or self._by_place) and not spec.h_global:
            spec = spec.replace(h_global=sizes.h)
        for axis, size in (("b", sizes.b), ("h", sizes.h)):
            if not axes[axis] or self._goes_along[axis]:
                continue
            first = _position(mesh, axes[axis]) * (size // _count(mesh, axes[axis]))
            role = f"{axis}_offset"
            if role in spec.operands:
                i = spec.operands.index(role)
                arrays[i] = arrays[i] + first
            else:
                spec = spec.replace(operands=(*spec.operands, role))
                arrays.append(first)
        return spec, arrays

    def _combined(self, role: str, dims: Dimensions, axes, result):
        """Combines a result with the parts of other devices."""
        own = {name for d in dims if d for name in axes[d]}
        others = tuple(name for name in (*axes["b"], *axes["h"]) if name not in own)
        if not others or moves(role) == "o" or OUTPUTS.get(moves(role)) == "rows":
            return result
        if role in OUTPUTS:  # of heads: a maximum
            return jax.lax.pmax(result, others)
        wide = jnp.promote_types(result.dtype, jnp.float32)
        return jax.lax.psum(result.astype(wide), others).astype(result.dtype)


def _count(mesh, names: tuple[str, ...]) -> int:
    return math.prod(mesh.shape[name] for name in names)


def _position(mesh, names: tuple[str, ...]):
    position = jnp.int32(0)
    for name in names:
        position = position * mesh.shape[name] + jax.lax.axis_index(name)
    return position.astype(jnp.int32)


def with_types(spec: Spec, attend: Callable, arrays: Sequence[jax.Array]) -> Callable:
    """`attend`, whose results have sharding types if the queries have one."""
    own = jax.typeof(arrays[0]).sharding
    explicit = [axis for axis, kind in zip(own.mesh.axis_names, own.mesh.axis_types) if kind == AxisType.Explicit]
    if not explicit:
        return attend
    outputs = tuple(NamedSharding(own.mesh, cut) for cut in _cuts(spec, own.spec))
    return jax.sharding.auto_axes(attend, axes=tuple(explicit), out_sharding=outputs)


def _cuts(spec: Spec, queries: PartitionSpec) -> list[PartitionSpec]:
    """The partitioning of each of spec.outputs."""
    first = dimensions_of(spec, spec.operands[0])
    axes = {d: names for d, names in zip(first, (*queries, *[None] * len(first))) if d}
    return [PartitionSpec(*(axes.get(d) for d in dimensions_of(spec, name))) for name in spec.outputs]
