"""Which attention a call is, without its sizes: the one static argument of the primitives.

A Spec with the shapes of the operands gives the problem line. Everything that may differ from call to call is an operand
with a role; a Spec holds only strings and numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from .. import _request
from .._arrays import NAMES_IN_NUMPY
from .._core import OUTPUTS
from .._request import Sizes
from ._captures import TENSOR_TYPES

DTYPES = {NAMES_IN_NUMPY[name]: name for name in _request.FLOATS}
# layout of one tensor -> which dimension is batch, head, position (features are last)
LAYOUTS = {layout: axes[:3] for layout, axes in _request.AXES.items()}

_GPU_VALUES = ("scale", "h_offset", "q_offset", "k_offset")


@dataclasses.dataclass(frozen=True)
class CapturedArray:
    """A captured tensor: its name, and for each dimension the coordinate that alone indexes it, or None."""

    name: str
    axes: tuple[str | None, ...]


@dataclasses.dataclass(frozen=True)
class Spec:
    layout: str = "bshd"
    operands: tuple[str, ...] = ("q", "k", "v")  # roles, in order; see jax_ffi/bind.h
    outputs: tuple[str, ...] = ("o",)  # o, and names of fovea._core.OUTPUTS
    mod: str | None = None
    mask: str | None = None
    bprop: str | None = None
    tensors: tuple[CapturedArray, ...] = ()
    scalars: tuple[tuple[str, str], ...] = ()  # name, kind
    dropout: float = 0.0
    rng: str = "portable"  # of dropout: portable, or engine (the engine's own generator)
    flags: tuple[str, ...] = ()  # names of fovea._options.FLAGS that are set
    strict: bool = False
    engine: str | None = None
    o_dtype: str | None = None
    grad_dtype: str | None = None
    max_q: int = 0  # packed: the longest sequences
    max_k: int = 0
    h_global: int = 0
    training: bool = False
    wanted: tuple[str, ...] = ()  # of a backward or a tangent: q, k, v, sink, tensor:NAME, scalar:NAME
    saved_as: str | None = None  # what jax.checkpoint policies call o and lse
    whole: bool = False  # of a backward: o and lse are those of a forward of the same operands

    def replace(self, **changes) -> "Spec":
        return dataclasses.replace(self, **changes)

    @property
    def packing(self) -> str:
        """qkv: one array has all three; kv: one has keys and values; "": each has its own."""
        return next((role for role in ("qkv", "kv") if role in self.operands), "")


def sizes_of(spec: Spec, avals: Sequence) -> Sizes:
    """From the shapes of the operands, which must fit."""
    shape = {role: tuple(a.shape) for role, a in zip(spec.operands, avals)}
    if spec.packing == "qkv":
        whole = shape["qkv"]  # [..., 3, H, D]
        q = k = v = whole[:-3] + whole[-2:]
    elif spec.packing == "kv":
        q, whole = shape["q"], shape["kv"]
        k = v = whole[:-3] + whole[-2:]
    else:
        q, k, v = shape["q"], shape["k"], shape["v"]
    packed = (shape["q_starts"][0] - 1, spec.max_q, spec.max_k) if spec.layout == "thd" else None
    return _request.sizes_of(spec.layout, (q, k, v), packed)


_INTEGERS = ("b_offset", "h_offset", "q_offset", "k_offset", "q_offsets", "k_offsets")
_ROLE_TYPES = {
    **dict.fromkeys((*_INTEGERS, "q_lengths", "k_lengths", "q_starts", "k_starts"), "int32"),
    **dict.fromkeys(("seed", "offset"), "uint32"),
}


def check_types(spec: Spec, avals: Sequence) -> None:
    """Handlers read buffers by their roles: one of another type would be misread. It is a bug of Fovea if this raises."""
    rows = "float64" if avals[0].dtype == jnp.float64 else "float32"
    types = {**_ROLE_TYPES, **dict.fromkeys(("lse", "grad_lse", "sink", "scale"), rows)}
    types.update({f"scalar:{name}": {"i32": "int32"}.get(kind, rows) for name, kind in spec.scalars})
    for role, aval in zip(spec.operands, avals, strict=True):
        expected = types.get(role)
        if expected is not None and np.dtype(aval.dtype).name != expected:
            raise AssertionError(f"operand {role} has the type {aval.dtype}, not {expected}: a bug in fovea.jax")


Dimensions = tuple[str | None, ...]


def dimensions_of(spec: Spec, role: str) -> Dimensions:
    """What each dimension of an operand or result is: "b", "h" (heads of q), "g" (heads of k and v) or None; of a captured tensor
    the coordinate that alone indexes it."""
    role = moves(role)
    packed = spec.layout == "thd"
    if role.startswith("tensor:"):
        return next(t.axes for t in spec.tensors if t.name == role.partition(":")[2])
    if role in ("q", "k", "v", "o", "grad_o", "qkv", "kv"):
        of_one = {axis: word for axis, word in zip(LAYOUTS[spec.layout], "bh") if axis is not None}
        dims = [of_one.get(d) for d in range(3 if packed else 4)]
        if role in ("k", "v", "kv"):
            dims[dims.index("h")] = "g"
        return tuple(dims[:-2] + [None] + dims[-2:] if role in ("qkv", "kv") else dims)
    if role == "sink" or OUTPUTS.get(role) == "heads":
        return ("h",)
    if role == "grad_lse" or role in OUTPUTS:
        return ("h", None) if packed else ("b", "h", None)
    if role in ("q_lengths", "k_lengths", "q_offsets", "k_offsets"):
        return (None,) if packed else ("b",)
    return (None,) if role in ("q_starts", "k_starts", "seed", "offset") else ()


def gradient_roles(spec: Spec) -> tuple[str, ...]:
    """Results of a backward, in order. Packed q, k, v share one gradient."""
    roles = []
    for name in spec.wanted:
        if name in ("q", "k", "v"):
            role = "grad_qkv" if spec.packing == "qkv" else "grad_kv" if spec.packing and name != "q" else f"grad_{name}"
            if role not in roles:
                roles.append(role)
        else:
            roles.append(f"grad_{name}")
    return tuple(roles)


def gradient_source(role: str) -> str:
    """The operand whose gradient a result is."""
    return role.removeprefix("grad_")


def moves(role: str) -> str:
    """The operand or result whose tangent a role is, or the role itself."""
    return role.removeprefix("tangent_")


def result_roles(spec: Spec, direction: str) -> tuple[str, ...]:
    """Of a call, in order."""
    if direction == "forward":
        return spec.outputs
    return (("tangent_o", "tangent_lse") if direction == "tangent" else ()) + gradient_roles(spec)


def result_shapes(spec: Spec, direction: str, avals: Sequence) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of each of result_roles."""
    by_role, sizes, dtype = dict(zip(spec.operands, avals)), sizes_of(spec, avals), avals[0].dtype
    rows = jnp.float64 if dtype == jnp.float64 else jnp.float32
    extents = {"b": sizes.b, "h": sizes.h}

    def shape(name: str) -> tuple[int, ...]:
        others = iter((sizes.t_q if spec.layout == "thd" else sizes.sq, sizes.dv))
        return tuple(extents[d] if d else next(others) for d in dimensions_of(spec, name))

    out = []
    for role in result_roles(spec, direction):
        if moves(role) == "o" or moves(role) in OUTPUTS:
            out.append((shape(role), np.dtype((spec.o_dtype or dtype) if moves(role) == "o" else rows)))
        else:
            source = gradient_source(role)
            own = source in ("q", "k", "v", "qkv", "kv") and spec.grad_dtype
            out.append((tuple(by_role[source].shape), np.dtype(own or by_role[source].dtype)))
    return out


def problem_line(spec: Spec, avals: Sequence, direction: str, gpu: bool = False, capture: bool = False) -> str:
    """The line of this call; `direction` is forward or backward, spec.training makes it that of the pair."""
    s = sizes_of(spec, avals)
    pair = spec.training and direction != "tangent"
    fields = {"direction": "both" if pair else direction, "layout": spec.layout}
    fields |= {name: getattr(s, name) for name in ("b", "h", "hkv", "sq", "skv", "d", "dv")}
    fields["dtype"] = DTYPES[np.dtype(avals[0].dtype).name]
    if spec.layout == "thd":
        fields |= {"tq": s.t_q, "tk": s.t_k, "cu_q": "bound", "cu_k": "bound"}
    keys = {"q_lengths": "qlens", "k_lengths": "klens", "q_offsets": "q_offset", "k_offsets": "k_offset"}
    fields |= {key: "bound" for role, key in keys.items() if role in spec.operands}
    fields |= _strides(spec, s, direction) | {key: getattr(spec, key) for key in ("mod", "mask", "bprop")}
    fields |= _options(spec, direction) | (_values_on_device(spec, s) if gpu else {})
    tensors = _declared(spec, s, dict(zip(spec.operands, avals)))
    return _request.problem_line(**fields, capture=capture, tensors=tensors, scalars=spec.scalars)


def _values_on_device(spec: Spec, s: Sizes) -> dict[str, object]:
    """On a GPU scalars and offsets are operands in device memory. The line says that there is an offset (1 stands for any); the
    value that counts is the bound one."""
    values = [role for role in spec.operands if role in _GPU_VALUES or role.startswith("scalar:")]
    offsets = [role for role in values if role.endswith("_offset")]
    if 0 < spec.h_global <= s.h and "h_offset" in offsets:
        offsets.remove("h_offset")  # only 0 can be given in the line
    return {**dict.fromkeys(offsets, 1), "values": "device" if values else None}


def _strides(spec: Spec, s: Sizes, direction: str) -> dict[str, tuple[int, ...]]:
    """Of q, k, v that lie side by side in [..., parts, H, D]."""
    if not spec.packing:
        return {}
    parts = len(spec.packing)
    heads, length = (s.h, s.sq) if spec.packing == "qkv" else (s.hkv, s.skv)
    row = parts * heads * s.d
    by_batch = 0 if spec.layout == "thd" else length * row
    if spec.layout == "sbhd":
        by_batch, row = row, s.b * row
    names = list(spec.packing)
    if spec.training or direction != "forward":
        names += [f"d{name}" for name in spec.packing]
    return {f"{name}_strides": (by_batch, s.d, row, 1) for name in names}


def _declared(spec: Spec, s: Sizes, by_role: dict) -> list[tuple]:
    """The captured tensors. An extent that is declared by the name of a size does not depend on its value, so that other sizes
    share the plan."""
    sizes = {"b": ("B", s.b), "h": ("H", spec.h_global or s.h), "q": ("Sq", s.sq), "k": ("Skv", s.skv)}
    declared = []
    for captured in spec.tensors:
        aval = by_role[f"tensor:{captured.name}"]
        extents = [
            sizes[axis][0] if axis and sizes[axis][1] == extent else extent
            for axis, extent in zip(captured.axes, aval.shape)
        ]
        declared.append((captured.name, TENSOR_TYPES[np.dtype(aval.dtype).name][0], extents))
    return declared


def _options(spec: Spec, direction: str) -> dict[str, object]:
    fields: dict[str, object] = {"sink": "sink" in spec.operands, "h_global": spec.h_global or None}
    if spec.dropout:
        fields |= {"dropout": spec.dropout, "rng": spec.rng}
    fields |= dict.fromkeys(spec.flags, True)
    fields |= {"precision": "strict" if spec.strict else None, "o_dtype": DTYPES.get(spec.o_dtype)}
    if direction == "forward" or (direction == "backward" and spec.training):
        fields |= {name: True for name in spec.outputs if name != "o" and not (name == "lse" and spec.training)}
    if direction != "forward" or spec.training:
        grads = ",".join(name.split(":")[-1] for name in spec.wanted)
        fields |= {"do_dtype": DTYPES.get(spec.o_dtype), "grads": grads if grads or direction == "tangent" else None}
        fields |= {"dlse": "grad_lse" in spec.operands, "grad_dtype": DTYPES.get(spec.grad_dtype)}
    return fields
