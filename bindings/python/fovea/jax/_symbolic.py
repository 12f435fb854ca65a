"""A jaxpr, read as a formula.

Values are either KnownValue or symbolic. A KnownValue depends on no score and no position: JAX computes it outside, and it
is captured if a formula needs it. Symbolic values are arrays of Terms. Equations between KnownValue values are hoisted: they
run once per call of the attention, under whatever transformation surrounds it, so JAX differentiates them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import source_info_util  # the only way to the user's line of an equation

from .._request import TraceError
from . import _arrays as arrays
from ._arrays import SymbolicArray
from ._captures import TENSOR_TYPES, Captures
from ._operations import REDUCTIONS, RULES, NoFormula, kind_of
from ._terms import Writer, literal

UNROLLED = 64  # elements of a reduction that is written out
_INLINED = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "custom_jvp_call"}


@dataclasses.dataclass(frozen=True)
class KnownValue:
    value: Any
    is_literal: bool = False  # written in the modifier itself, so that it is part of the formula


class JaxprReader:
    """Reads one modifier; `writer` gets the text, `captures` what the text needs."""

    def __init__(self, what: str, writer: Writer, captures: Captures):
        self._what = what
        self._writer = writer
        self._captures = captures
        self._caller = None  # the equation whose function is being read
        self._casts: dict[tuple[int, str], tuple[Any, list[KnownValue]]] = {}  # with what keeps the id alive

    def read(self, jaxpr, consts, inputs) -> list[KnownValue | SymbolicArray]:
        env: dict[Any, KnownValue | SymbolicArray] = {}
        env.update(zip(jaxpr.constvars, (c if isinstance(c, KnownValue) else KnownValue(c) for c in consts)))
        env.update(zip(jaxpr.invars, inputs))

        def value_of(atom):
            return KnownValue(atom.val, is_literal=True) if hasattr(atom, "val") else env[atom]

        for eqn in jaxpr.eqns:
            try:
                results = self._equation(eqn, [value_of(a) for a in eqn.invars])
            except (NoFormula, OverflowError) as error:
                raise self._refusal((eqn, self._caller), error) from None
            env.update(zip(eqn.outvars, results))
        return [value_of(a) for a in jaxpr.outvars]

    def _refusal(self, equations, reason: Exception) -> TraceError:
        """`equations` are the one at fault and the one that called it: inside a function of JAX there is no line of the
        user."""
        line = next((text for e in equations if e is not None and (text := _line_of(e))), "an unknown line")
        name = equations[0].primitive.name
        return TraceError(f"{self._what}: the primitive '{name}' at {line} can't be part of a formula: {reason}")

    def symbolic(self, value: KnownValue | SymbolicArray) -> SymbolicArray:
        if isinstance(value, SymbolicArray):
            return value
        if _is_key(value.value):
            raise NoFormula("formulas draw no random numbers; capture an array of them")
        if np.ndim(value.value):
            return self._captures.symbolic(value.value, self._writer)
        if value.is_literal:
            kind = _literal_kind(value.value)
            number = np.asarray(value.value, self._captures.reals if kind == "f32" else None)
            return arrays.scalar(literal(number[()], kind))
        return arrays.scalar(self._captures.scalar_term(value.value, self._writer))

    # --- one equation ---

    def _equation(self, eqn, inputs) -> list[KnownValue | SymbolicArray]:
        if all(isinstance(x, KnownValue) for x in inputs):
            return self._hoisted(eqn, inputs)
        name = eqn.primitive.name
        if name in _INLINED:
            return self._call(eqn, inputs)
        if name == "cond":
            return self._cond(eqn, inputs)
        xs = [self.symbolic(x) for x in inputs]
        if name in RULES:
            return [self._elementwise(name, eqn, xs)]
        if name in REDUCTIONS:
            return [self._reduce(name, eqn, xs[0])]
        view = _VIEWS.get(name)
        if view:
            result = view(self._writer, eqn, xs)
            return result if isinstance(result, list) else [result]
        if name == "stop_gradient":
            raise NoFormula("gradients of a score can't be stopped; give score_mod_bprop")
        raise NoFormula(_REASONS.get(name, "formulas have no such operation"))

    def _hoisted(self, eqn, inputs: list[KnownValue]) -> list[KnownValue]:
        """JAX casts a traced number wherever it meets an array: one cast, so that it is captured once."""
        if eqn.primitive.name != "convert_element_type" or inputs[0].is_literal:
            return _hoist(eqn, inputs)
        value = inputs[0].value
        key = (id(value), str(eqn.outvars[0].aval))
        if key not in self._casts:
            self._casts[key] = (value, _hoist(eqn, inputs))
        return self._casts[key][1]

    def _elementwise(self, name: str, eqn, xs: list[SymbolicArray]) -> SymbolicArray:
        out = eqn.outvars[0].aval
        for var in (*eqn.invars, *eqn.outvars):
            if name not in ("convert_element_type", "select_n", *_COMPARISONS):
                kind_of(var.aval.dtype, "an operand")
        kind = kind_of(out.dtype, "the result") if name != "select_n" else xs[1].kind
        where = (eqn, self._caller)

        def apply(*terms):
            # Elements are written when they are used, long after the equation was read.
            try:
                return RULES[name](self._writer, eqn.params, *terms)
            except (NoFormula, OverflowError) as error:
                raise self._refusal(where, error) from None

        return arrays.elementwise(out.shape, kind, xs, apply)

    def _reduce(self, name: str, eqn, x: SymbolicArray) -> SymbolicArray:
        rule, starts = REDUCTIONS[name]
        axes = eqn.params["axes"]
        reduced = [x.shape[d] for d in axes]
        if int(np.prod(reduced)) > UNROLLED:
            raise NoFormula(f"it reduces {int(np.prod(reduced))} elements; at most {UNROLLED} are written out")
        if x.kind not in starts:
            raise NoFormula(f"there is no such reduction of {x.kind}")

        def at(kept):
            total = None
            for inner in arrays.all_indices(reduced):
                given = dict(zip(axes, inner))
                outer = iter(kept)
                here = x.at(tuple(given[d] if d in given else next(outer) for d in range(len(x.shape))))
                total = here if total is None else RULES[rule](self._writer, {}, total, here)
            return literal(starts[x.kind], x.kind) if total is None else total

        return SymbolicArray(tuple(eqn.outvars[0].aval.shape), x.kind, at)

    def _call(self, eqn, inputs):
        inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        if eqn.primitive.name == "custom_jvp_call" and not _is_of_jax(inner):
            raise NoFormula("its hand-written derivative would be lost; write it as plain functions")
        known = _floor_operation(eqn, inner)
        if known:
            x, y = (self.symbolic(v) for v in inputs)
            operation = getattr(self._writer, known)
            return [arrays.elementwise(eqn.outvars[0].aval.shape, "i32", [x, y], operation)]
        caller, self._caller = self._caller, eqn if _line_of(eqn) else self._caller
        try:
            return self.read(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs)
        finally:
            self._caller = caller

    def _cond(self, eqn, inputs):
        which, operands = self.symbolic(inputs[0]), inputs[1:]
        cases = [
            [self.symbolic(v) for v in self.read(branch.jaxpr, branch.consts, operands)] for branch in eqn.params["branches"]
        ]

        def choose(*results: SymbolicArray) -> SymbolicArray:
            rule = RULES["select_n"]
            return arrays.elementwise(
                results[0].shape, results[0].kind, [which, *results], lambda *t: rule(self._writer, {}, *t)
            )

        return [choose(*results) for results in zip(*cases)]


# --- views: (writer, equation, arrays) -> array or list of arrays ---


def _iota(writer, eqn, xs):
    dimension, shape = eqn.params["dimension"], eqn.params["shape"]
    kind = kind_of(eqn.params["dtype"], "the result")
    return SymbolicArray(tuple(shape), kind, lambda indices: writer.cast(indices[dimension], kind))


def _gather(writer, eqn, xs):
    p = eqn.params
    mode = {"CLIP": "clip", "FILL_OR_DROP": "fill", "PROMISE_IN_BOUNDS": "promise"}.get(p["mode"].name)
    if mode is None:
        raise NoFormula(f"gathering with mode {p['mode']} has no formula")
    fill = p["fill_value"]
    if fill is None:
        fill = {"f32": np.nan, "i32": -(2**31), "bool": True}[xs[0].kind]
    numbers = (p["dimension_numbers"], p["slice_sizes"], mode, fill)
    return arrays.gather(writer, xs[0], xs[1], eqn.outvars[0].aval.shape, numbers)


def _split(writer, eqn, xs):
    axis, first, parts = eqn.params["axis"], 0, []
    for size in eqn.params["sizes"]:
        start, limit = [0] * len(xs[0].shape), list(xs[0].shape)
        start[axis], limit[axis] = first, first + size
        parts.append(arrays.strided_slice(writer, xs[0], start, limit, None))
        first += size
    return parts


def _dot(writer, eqn, xs):
    (contract_x, contract_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    x, y = xs
    sizes = [x.shape[d] for d in contract_x]
    if int(np.prod(sizes)) > UNROLLED:
        raise NoFormula(f"it sums {int(np.prod(sizes))} products; at most {UNROLLED} are written out")
    free_x = [d for d in range(len(x.shape)) if d not in (*contract_x, *batch_x)]
    free_y = [d for d in range(len(y.shape)) if d not in (*contract_y, *batch_y)]

    def at(indices):
        count = len(batch_x)
        batch, rest_x, rest_y = (indices[:count], indices[count : count + len(free_x)], indices[count + len(free_x) :])
        total = None
        for inner in arrays.all_indices(sizes):
            at_x = {**dict(zip(batch_x, batch)), **dict(zip(contract_x, inner)), **dict(zip(free_x, rest_x))}
            at_y = {**dict(zip(batch_y, batch)), **dict(zip(contract_y, inner)), **dict(zip(free_y, rest_y))}
            product = writer.mul(
                x.at(tuple(at_x[d] for d in range(len(x.shape)))), y.at(tuple(at_y[d] for d in range(len(y.shape))))
            )
            total = product if total is None else writer.add(total, product)
        return literal(0, x.kind) if total is None else total

    return SymbolicArray(tuple(eqn.outvars[0].aval.shape), x.kind, at)


_VIEWS = {
    "broadcast_in_dim": lambda w, e, xs: arrays.broadcast(xs[0], e.params["shape"], e.params["broadcast_dimensions"]),
    "squeeze": lambda w, e, xs: arrays.squeeze(xs[0], e.params["dimensions"]),
    "expand_dims": lambda w, e, xs: arrays.reshape(w, xs[0], e.outvars[0].aval.shape),
    "reshape": lambda w, e, xs: arrays.reshape(w, xs[0], e.outvars[0].aval.shape),
    "transpose": lambda w, e, xs: arrays.transpose(xs[0], e.params["permutation"]),
    "rev": lambda w, e, xs: arrays.reverse(w, xs[0], e.params["dimensions"]),
    "slice": lambda w, e, xs: arrays.strided_slice(
        w, xs[0], e.params["start_indices"], e.params["limit_indices"], e.params["strides"]
    ),
    "concatenate": lambda w, e, xs: arrays.concatenate(w, xs, e.params["dimension"]),
    "dynamic_slice": lambda w, e, xs: arrays.dynamic_slice(w, xs[0], [x.scalar for x in xs[1:]], e.params["slice_sizes"]),
    "gather": _gather,
    "split": _split,
    "iota": _iota,
    "dot_general": _dot,
}
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_REASONS = {
    "while": "loops have no formula; a loop of fixed length can be written out in Python",
    "scan": "loops have no formula; a loop of fixed length can be written out in Python",
    "custom_vjp_call": "its hand-written derivative would be lost; write it as plain functions",
    "pure_callback": "formulas call no Python",
    "random_bits": "formulas draw no random numbers; capture an array of them",
    "scatter": "formulas write to no array",
    "dynamic_update_slice": "formulas write to no array",
}


def _hoist(eqn, inputs: list[KnownValue]) -> list[KnownValue]:
    """The equation, run where the attention is called."""
    is_literal = all(x.is_literal for x in inputs)
    if eqn.effects:
        raise NoFormula("it has side effects")

    def run():
        params = eqn.primitive.get_bind_params(eqn.params)
        results = eqn.primitive.bind(*(x.value for x in inputs), **params)
        return results if eqn.primitive.multiple_results else [results]

    if is_literal:
        with jax.ensure_compile_time_eval():
            return [KnownValue(r if _is_key(r) else np.asarray(r), is_literal=True) for r in run()]
    return [KnownValue(r) for r in run()]


def _floor_operation(eqn, inner) -> str | None:
    """jnp's // and % of integers are a dozen equations; the language has both."""
    name = eqn.params.get("name")
    if name not in ("floor_divide", "remainder") or eqn.outvars[0].aval.dtype != jnp.int32:
        return None
    function = {"floor_divide": jnp.floor_divide, "remainder": jnp.remainder}[name]
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type) for v in eqn.invars]
    if any(s.shape or s.dtype != jnp.int32 for s in shapes):
        return None
    own = jax.make_jaxpr(function)(*shapes).jaxpr.eqns[0].params["jaxpr"]
    return {"floor_divide": "floor_divide", "remainder": "modulo"}[name] if str(own) == str(inner) else None


def _is_key(value) -> bool:
    return jnp.issubdtype(getattr(value, "dtype", None) or np.float32, jax.dtypes.extended)


def _is_of_jax(inner) -> bool:
    info = getattr(getattr(inner, "jaxpr", inner), "debug_info", None)
    where = str(getattr(info, "func_src_info", ""))
    return jax.__path__[0] in where


def _literal_kind(value) -> str:
    dtype = np.dtype(np.asarray(value).dtype)
    return TENSOR_TYPES[dtype.name][1] if dtype.name in TENSOR_TYPES else kind_of(dtype, "a literal")


def _line_of(eqn) -> str:
    return source_info_util.summarize(eqn.source_info)
