"""One call, put together: arguments checked, operands in order with their roles, then run.

Used by attention(), dot_product_attention() and context_attention(). Every mistake that shapes, types or
options show is raised here, while JAX still traces.
"""

from __future__ import annotations

import functools
import math
import operator

import jax
import jax.numpy as jnp
import numpy as np

from .. import _core
from . import _derivative, _explicit
from ._captures import Captures, note_load
from ._explain import note
from ._modifiers import Given, all_of, formulas
from ._rewrite import substitute
from ._sequence import SequenceDescriptor
from ._spec import DTYPES, LAYOUTS, Captured, Sizes, Spec, problem_line, sizes_of

# layout argument -> (layout of a tensor, roles of q, k, v)
_LAYOUTS = {
    **{name: (name, ("q", "k", "v")) for name in LAYOUTS},
    **{name: (inner, ("qkv",)) for name, inner in (("bs3hd", "bshd"), ("sb3hd", "sbhd"), ("t3hd", "thd"))},
    **{
        name: (inner, ("q", "kv"))
        for name, inner in (("bshd_bs2hd", "bshd"), ("sbhd_sb2hd", "sbhd"), ("thd_t2hd", "thd"))
    },
}


class Call:
    def __init__(self, layout: str, q, k, v, packed: tuple = (None, None, None, None)):
        if layout not in _LAYOUTS:
            raise ValueError(f"layout={layout!r} must be one of {', '.join(_LAYOUTS)}")
        tensor_layout, roles = _LAYOUTS[layout]
        self._operands: dict[str, jax.Array] = {}
        self._captures = Captures()
        self._extra_masks: list[str] = []
        self._spec = Spec(layout=tensor_layout)
        given = {"q": q, "k": k, "v": v}
        wanted = [name for name, _ in zip(given, roles)]
        self._check_count(layout, given, wanted)
        for role, name in zip(roles, wanted):
            self._operands[role] = jnp.asarray(given[name])
        self._check_tensors()
        self._set_packed(*packed)
        self.sizes: Sizes = sizes_of(
            self._spec.replace(operands=tuple(self._operands)), list(self._operands.values())
        )
        self._check_sizes()

    # --- q, k, v ---

    @staticmethod
    def _check_count(layout: str, given, wanted) -> None:
        for name, value in given.items():
            if (value is not None) != (name in wanted):
                rule = f"layout {layout} takes {', '.join(wanted)}"
                raise ValueError(f"{name} is {'missing' if value is None else 'given'}: {rule}")

    def _check_tensors(self) -> None:
        dtypes = {np.dtype(x.dtype).name for x in self._operands.values()}
        if len(dtypes) > 1:
            raise TypeError(f"q, k and v must have one type, got {', '.join(sorted(dtypes))}")
        if dtypes.isdisjoint(DTYPES):
            raise TypeError(f"q, k and v have the type {dtypes.pop()}; it must be one of {', '.join(DTYPES)}")
        for role, x in self._operands.items():
            if not all(isinstance(n, int) for n in x.shape):
                raise TypeError(f"{role} has shape {x.shape}: sizes must be numbers, none may be symbolic")
            rank = (3 if self._spec.layout == "thd" else 4) + (role in ("qkv", "kv"))
            if x.ndim != rank:
                raise ValueError(
                    f"{role} has shape {x.shape}: layout {self._spec.layout} has {rank} dimensions there"
                )
            if role in ("qkv", "kv") and x.shape[-3] != len(role):
                raise ValueError(f"{role} has shape {x.shape}: dimension {rank - 3} must be {len(role)}")

    def _set_packed(self, cu_q, cu_k, max_q, max_k) -> None:
        arguments = {
            "cu_seqlens_q": cu_q,
            "cu_seqlens_kv": cu_k,
            "max_seqlen_q": max_q,
            "max_seqlen_kv": max_k,
        }
        given = [name for name, value in arguments.items() if value is not None]
        if self._spec.layout != "thd":
            if given:
                raise ValueError(f"{', '.join(given)} given: only layout thd has packed sequences")
            return
        if cu_q is None or max_q is None:
            raise ValueError("layout thd needs cu_seqlens_q and max_seqlen_q")
        cu_k = cu_q if cu_k is None else cu_k
        self._add_vector("q_starts", cu_q, None)
        self._add_vector("k_starts", cu_k, self._operands["q_starts"].shape[0])
        longest = operator.index(max_q)
        self._spec = self._spec.replace(
            max_q=longest, max_k=longest if max_k is None else operator.index(max_k)
        )

    def _check_sizes(self) -> None:
        s = self.sizes
        if s.hkv == 0 or s.h % s.hkv:
            raise ValueError(f"q has {s.h} heads, k has {s.hkv}: the first must be a multiple of the second")
        shapes = {role: tuple(x.shape) for role, x in self._operands.items() if role in ("q", "k", "v")}
        if len(shapes) < 3:
            return
        batch, head, position = LAYOUTS[self._spec.layout]
        q, k, v = shapes["q"], shapes["k"], shapes["v"]
        if k[:-1] != v[:-1]:
            raise ValueError(f"k {k} and v {v} must have the same shape but for the last dimension")
        if q[-1] != k[-1]:
            raise ValueError(f"q {q} and k {k} must have the same last dimension")
        if batch is not None and q[batch] != k[batch]:
            raise ValueError(f"q {q} and k {k} must have the same batch, dimension {batch}")

    # --- what is captured ---

    def modify(
        self, given: Given, *, bias=None, descriptor: SequenceDescriptor | None = None, masks=(), leaves=None
    ) -> None:
        """score_mod and mask_mod; bias and segments are formulas too, and `masks` are texts of positions."""
        leaves = dict(leaves or {})
        if descriptor is not None and descriptor.segment_ids is not None:
            leaves.update(self._segments(descriptor))
        if bias is not None:
            leaves["score"] = f"(score + {self._dense('bias', bias)})"
        self._extra_masks += [substitute(text, leaves) for text in masks]
        s = self.sizes
        found = formulas(given, self._captures, (s.b, s.h, s.sq, s.skv), leaves)
        mask = all_of([*self._extra_masks, *([found.mask] if found.mask is not None else [])])
        self._spec = self._spec.replace(mod=found.mod, mask=mask, bprop=found.bprop)

    def scalar(self, name: str, value) -> None:
        """A scalar for formulas that are not the caller's; before modify()."""
        self._captures.reserve(name)
        self._captures.add_scalar(value, name)

    def vector(self, name: str, value) -> str:
        """The load of one number per sequence, for formulas that are not the caller's; before modify()."""
        array = jnp.asarray(value).astype(jnp.int32)
        if array.shape != (self.sizes.b,):
            raise ValueError(f"lengths have shape {array.shape}; they must be [B] = ({self.sizes.b},)")
        self._captures.reserve(name)
        capture = self._captures.add_tensor(array, name)
        note_load(capture, ["b"])
        return f"{name}[b]"

    def positions(self, name: str, value, word: str) -> str:
        """The load of one position per row ("q") or column ("k"); before modify()."""
        self._captures.reserve(name)
        capture = self._captures.add_tensor(value, name)
        note_load(capture, [word])
        return f"{name}[{word}]"

    def mask_text(self, text: str) -> None:
        """One more condition; before modify()."""
        self._extra_masks.append(text)

    def mask_array(self, mask) -> None:
        """A dense mask, [B|1, H|1, Sq|1, Skv|1] of bool; before modify()."""
        if jnp.asarray(mask).dtype != jnp.bool_:
            raise TypeError(f"mask has the type {jnp.asarray(mask).dtype}; it must be bool (true: kept)")
        self._extra_masks.append(self._dense("mask", mask))

    def _dense(self, name: str, array) -> str:
        """The load of an array that broadcasts to [B, H, Sq, Skv]: by rows, whatever positions these have."""
        array = jnp.asarray(array)
        s = self.sizes
        full = (s.b, s.h, s.sq, s.skv)
        if self._spec.layout == "thd":
            raise ValueError(f"{name} has no meaning with layout thd; capture an array in score_mod instead")
        if array.ndim != 4 or any(n not in (1, m) for n, m in zip(array.shape, full)):
            raise ValueError(f"{name} has shape {array.shape}; it must broadcast to [B, H, Sq, Skv] = {full}")
        capture = self._captures.add_tensor(array)
        indices = ["0" if n == 1 and m != 1 else w for n, m, w in zip(array.shape, full, "bhqk")]
        note_load(capture, indices)
        return f"{capture.name}[{', '.join(indices)}]"

    def _segments(self, descriptor: SequenceDescriptor) -> dict[str, str]:
        """A mask of equal segments; what q and k are where there are positions."""
        s = self.sizes
        if self._spec.layout == "thd":
            raise ValueError(
                "segment ids have no meaning with layout thd, whose sequences are given by cu_seqlens"
            )
        leaves = {}
        ids = [
            self._rows("segment_ids", x, n, w) for x, n, w in zip(descriptor.segment_ids, (s.sq, s.skv), "qk")
        ]
        self._extra_masks.append(f"{ids[0]} == {ids[1]} && {ids[0]} != 0")
        if descriptor.segment_pos is not None:
            for x, n, word in zip(descriptor.segment_pos, (s.sq, s.skv), "qk"):
                leaves[word] = f"({self._rows('segment_pos', x, n, word)})"
        return leaves

    def _rows(self, name: str, array, length: int, word: str) -> str:
        array = jnp.asarray(array).astype(jnp.int32)
        if array.shape != (self.sizes.b, length):
            raise ValueError(f"{name} has shape {array.shape}; it must be [B, S] = {(self.sizes.b, length)}")
        capture = self._captures.add_tensor(array)
        note_load(capture, ["b", word])
        return f"{capture.name}[b, {word}]"

    # --- what is bound ---

    def _add_vector(self, role: str, value, count: int | None) -> None:
        array = jnp.asarray(value)
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise TypeError(f"{role} has the type {array.dtype}; it must be int32")
        if array.ndim != 1 or (count is not None and array.shape[0] != count) or array.shape[0] == 0:
            raise ValueError(
                f"{role} has shape {array.shape}; it must be [{'B + 1' if count is None else count}]"
            )
        self._operands[role] = array.astype(jnp.int32)

    def lengths(self, q_lengths, kv_lengths, descriptor: SequenceDescriptor | None = None) -> None:
        if descriptor is not None and descriptor.seqlens is not None:
            if q_lengths is not None or kv_lengths is not None:
                raise ValueError(
                    "lengths are given twice: in sequence_descriptor and as q_lengths, kv_lengths"
                )
            q_lengths, kv_lengths = descriptor.seqlens
        if q_lengths is not None:
            self._add_vector("q_lengths", q_lengths, self.sizes.b)
        if kv_lengths is not None:
            self._add_vector("k_lengths", kv_lengths, self.sizes.b)

    def values(self, *, scale=None, sink=None, b_offset=0, h_offset=0) -> None:
        if scale is not None:
            self._operands["scale"] = _scalar("scale", scale, jnp.float32)
        if sink is not None:
            sink = jnp.asarray(sink)
            if sink.shape != (self.sizes.h,):
                raise ValueError(f"sink has shape {sink.shape}; it must be [H] = ({self.sizes.h},)")
            rows = jnp.float64 if self._dtype == jnp.float64 else jnp.float32
            self._operands["sink"] = sink.astype(rows)
        for role, value in (("b_offset", b_offset), ("h_offset", h_offset)):
            if not _is_zero(value):
                self._operands[role] = _scalar(role, value, jnp.int32)

    def offsets(self, q_offset, kv_offset) -> None:
        for role, value in (("q_offset", q_offset), ("k_offset", kv_offset)):
            if _is_zero(value):
                continue
            if jnp.ndim(value):
                self._add_vector(f"{role}s", value, self.sizes.b)
            else:
                self._operands[role] = _scalar(role, value, jnp.int32)

    def dropout(self, rate: float, seed, rng: str = "portable") -> None:
        if rng not in ("portable", "engine"):
            raise ValueError(f"dropout_rng={rng!r} must be portable or engine")
        if not rate:
            return
        if not 0 < rate < 1 or not math.isfinite(rate):
            raise ValueError(f"dropout_rate={rate} must be at least 0 and below 1")
        if seed is None:
            raise ValueError(f"dropout_rate={rate} needs dropout_seed: a number, a PRNG key or uint32[2]")
        self._operands["seed"] = _seed(seed)
        self._spec = self._spec.replace(dropout=float(rate), rng=rng)

    def options(self, **fields) -> None:
        self._spec = self._spec.replace(**fields)

    # --- run ---

    @property
    def _dtype(self):
        return next(iter(self._operands.values())).dtype

    def finished(self) -> tuple[Spec, list[jax.Array]]:
        """The Spec and its operands."""
        operands = dict(self._operands)
        for t in self._captures.tensors:
            operands[f"tensor:{t.name}"] = t.value
        for scalar in self._captures.scalars:
            operands[f"scalar:{scalar.name}"] = scalar.value
        spec = self._spec.replace(
            operands=tuple(operands),
            tensors=tuple(Captured(t.name, tuple(t.axes)) for t in self._captures.tensors),
            scalars=tuple((x.name, x.kind) for x in self._captures.scalars),
        )
        arrays = made_alike([_with_own_type(x) for x in operands.values()])
        _check_problem(spec, arrays)
        return spec, arrays

    def run(self, checkpoint_name: str | None = None) -> tuple[jax.Array, ...]:
        spec, arrays = self.finished()
        note(spec, arrays)
        attend = functools.partial(_derivative.attend, spec, checkpoint_name)
        return _explicit.with_types(spec, attend, arrays)(*arrays)


def _check_problem(spec: Spec, arrays) -> None:
    """What the library itself refuses, said while JAX traces."""
    problem = _core.Problem(problem_line(spec, arrays, "forward"))
    if spec.engine is None:
        return
    if spec.engine not in _core.engines():
        raise ValueError(f"engine={spec.engine!r} must be one of {', '.join(_core.engines())}")
    if jax.default_backend() == "cpu":
        answer, reasons = _core.supported(problem, engine=spec.engine, device="cpu")
        if not answer:
            raise _core.Unsupported(
                f"engine {spec.engine} was asked for, but JAX runs on the CPU here: {reasons}"
            )


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


def _with_own_type(x: jax.Array) -> jax.Array:
    """An array whose type gives way to others is another operand to JAX, which would compile anew for it."""
    return jax.lax.convert_element_type(x, x.dtype) if jax.typeof(x).weak_type else x


def _is_zero(value) -> bool:
    return isinstance(value, (int, np.integer)) and value == 0


def _scalar(name: str, value, dtype) -> jax.Array:
    array = jnp.asarray(value)
    if array.ndim:
        raise ValueError(f"{name} has shape {array.shape}; it must be a scalar")
    if dtype == jnp.int32 and not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} has the type {array.dtype}; it must be an integer")
    return array.astype(dtype)


def _seed(seed) -> jax.Array:
    if isinstance(seed, (int, np.integer)):
        number = int(seed) % 2**64
        return jnp.asarray(np.array([number % 2**32, number >> 32], np.uint32))
    if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        seed = jax.random.key_data(seed)
    seed = seed.reshape(-1)
    if seed.dtype == jnp.uint32 and seed.shape[0] >= 2:
        return seed[-2:]
    if seed.shape == (1,) and jnp.issubdtype(seed.dtype, jnp.integer):
        return jnp.concatenate([seed.astype(jnp.uint32), jnp.zeros(1, jnp.uint32)])
    raise TypeError(
        f"dropout_seed has type {seed.dtype} and shape {seed.shape}; give a number, a PRNG key or uint32[2]"
    )
