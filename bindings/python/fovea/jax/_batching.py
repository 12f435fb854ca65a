"""vmap: the mapped axis joins the batch.

Formulas see `b` of one example as `b % B`, and a captured tensor that is mapped too has one more index, `b // B`; if it has
a dimension for the batch, the mapped axis joins that and `b` stays its index, which every engine can load. If a mapped
operand cannot have one value per sequence (a seed, a sink, packed sequences), the examples run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from .._core import OUTPUTS
from .._request import substitute
from ._rewrite import rewrite_loads
from ._spec import CapturedArray, Spec, dimensions_of, gradient_source, moves, result_roles, sizes_of


def batch(direction: str, bind: Callable, operands: Sequence, dims: Sequence, *, spec: Spec):
    size = next(x.shape[d] for x, d in zip(operands, dims) if d is not None)
    arrays = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(operands, dims)]
    mapped = [d is not None for d in dims]
    if _can_fold(spec, mapped):
        results = _Fold(direction, spec, size, arrays, mapped).run(bind)
    else:
        results = _one_by_one(direction, bind, spec, arrays, mapped)
    return results, [0] * len(results)


def _can_fold(spec: Spec, mapped: Sequence[bool]) -> bool:
    of_heads = any(OUTPUTS.get(name) == "heads" for name in spec.outputs)
    if spec.layout == "thd" or spec.dropout or "b_offset" in spec.operands or of_heads or "sink" in spec.wanted:
        return False
    single = ("scale", "seed", "offset", "h_offset", "sink", "tangent_sink")
    return not any(m and role in single for role, m in zip(spec.operands, mapped))


def _one_by_one(direction, bind, spec, arrays, mapped):
    moving = [x for x, m in zip(arrays, mapped) if m]

    def one(parts):
        rest = iter(parts)
        return bind(direction, spec, [next(rest) if m else x for x, m in zip(arrays, mapped)])

    return list(jax.lax.map(one, moving))


class _Fold:
    """N examples of B sequences as one call of N * B."""

    def __init__(self, direction: str, spec: Spec, size: int, arrays: Sequence, mapped: Sequence[bool]):
        self._direction, self._spec, self._n = direction, spec, size
        self._roles, self._arrays, self._mapped = spec.operands, arrays, mapped
        shapes = [jax.ShapeDtypeStruct(x.shape[1:] if m else x.shape, x.dtype) for x, m in zip(arrays, mapped)]
        self._b = sizes_of(spec, shapes).b
        # An unmapped tensor whose gradient is wanted also gets one gradient per example.
        self._indexed = {
            role.partition(":")[2]
            for role, m in zip(self._roles, mapped)
            if moves(role).startswith(("tensor:", "scalar:")) and (m or moves(role) in spec.wanted)
        }
        # The names of those with a dimension for the batch.
        shape_of = dict(zip(self._roles, shapes))
        self._joined = {
            t.name: t.axes.index("b")
            for t in spec.tensors
            if t.name in self._indexed
            and t.axes.count("b") == 1
            and shape_of[f"tensor:{t.name}"].shape[t.axes.index("b")] == self._b
        }

    def run(self, bind: Callable) -> list:
        spec = self._folded_spec()
        operands = [self._folded(role, x, m) for role, x, m in zip(self._roles, self._arrays, self._mapped)]
        results = bind(self._direction, spec, operands)
        roles = result_roles(spec, self._direction)
        return [self._unfolded(role, r) for role, r in zip(roles, results)]

    def _merge(self, array, axis: int):
        """[N, ...] with the batch at `axis` of the rest -> the rest with N * B there."""
        array = jnp.moveaxis(array, 0, axis)
        return array.reshape(array.shape[:axis] + (self._n * self._b,) + array.shape[axis + 2 :])

    def _batch_axis(self, role: str) -> int | None:
        if moves(role).startswith("tensor:"):
            return self._joined.get(role.partition(":")[2])
        found = dimensions_of(self._spec, role)
        return found.index("b") if "b" in found else None

    def _folded(self, role: str, array, mapped: bool):
        name = role.partition(":")[2]
        axis = self._batch_axis(role)
        if role in ("q_offset", "k_offset") and mapped:
            return jnp.repeat(array, self._b)
        if axis is None and name not in self._indexed:
            return array
        if not mapped:
            array = jnp.broadcast_to(array[None], (self._n, *array.shape))
        return array if axis is None else self._merge(array, axis)

    def _unfolded(self, role: str, array):
        axis = self._batch_axis(gradient_source(role))
        if axis is None:
            return array
        array = array.reshape(array.shape[:axis] + (self._n, self._b) + array.shape[axis + 1 :])
        return jnp.moveaxis(array, axis, 0)

    def _folded_spec(self) -> Spec:
        spec = self._spec
        roles = []
        for role, mapped in zip(self._roles, self._mapped):
            kind, _, name = role.partition(":")
            if moves(kind) == "scalar" and name in self._indexed:
                role = f"{kind.removesuffix('scalar')}tensor:{name}"
            elif role in ("q_offset", "k_offset") and mapped:
                role = f"{role}s"
            roles.append(role)
        became = [name for name, _ in spec.scalars if name in self._indexed]
        tensors = tuple(CapturedArray(t.name, self._axes(t)) for t in spec.tensors) + tuple(
            CapturedArray(name, (self._example_axis,)) for name in became
        )
        return spec.replace(
            operands=tuple(roles),
            tensors=tensors,
            scalars=tuple(s for s in spec.scalars if s[0] not in became),
            wanted=tuple(f"tensor:{w[7:]}" if w.startswith("scalar:") and w[7:] in became else w for w in spec.wanted),
            **{key: self._rewritten(getattr(spec, key)) for key in ("mod", "mask", "bprop")},
        )

    @property
    def _example_axis(self) -> str | None:
        """The index of the example in a captured tensor: b itself, if an example has one sequence."""
        return "b" if self._b == 1 else None

    def _axes(self, captured: CapturedArray) -> tuple[str | None, ...]:
        if captured.name in self._joined:
            return captured.axes
        own = tuple(None if a == "b" else a for a in captured.axes)
        return (self._example_axis, *own) if captured.name in self._indexed else own

    def _rewritten(self, text: str | None) -> str | None:
        if text is None:
            return None
        example, own = f"(b // {self._b})", f"(b % {self._b})"
        if self._b <= 1:
            example, own = ("b", "0") if self._b else ("0", "0")
        marks = {"EXAMPLE": example, "SEQUENCE": "b"}  # cannot be names in the language

        def load(name: str, indices: list[str]) -> str:
            if name in self._joined:
                indices[self._joined[name]] = "SEQUENCE"
            elif name in self._indexed:
                indices = ["EXAMPLE", *indices]
            return f"{name}[{', '.join(indices)}]"

        text = substitute(rewrite_loads(text, load), {"b": own, "B": str(self._b)})
        scalars = {name: f"{name}[EXAMPLE]" for name, _ in self._spec.scalars if name in self._indexed}
        return substitute(substitute(text, scalars), marks)
