"""The ring of context parallelism: how the tokens of a sequence are distributed over devices, and keys and values of one device
after the other, each part merged by its lse.

Called by context_attention(). The library's plan says which steps there are and which device needs whose keys in them
(fovea_parallel_plan): steps that are masked on every device are skipped, and keys that are masked for a device are not sent
to it. Keys come straight from the device that has them, and their gradients go straight back."""

from __future__ import annotations

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name as name_for_checkpoint

from .. import _core
from .._core import InvalidArgument
from .._request import one_of
from . import _derivative, _primitive
from ._call import CallBuilder
from ._inputs import made_alike
from ._spec import LAYOUTS, Spec, gradient_roles, gradient_source, problem_line

ORDERS = ("contiguous", "striped", "zigzag")


@dataclasses.dataclass(frozen=True)
class ShardPlace:
    """Where a device's part of the queries ("q") or keys ("k") lies, of `length` tokens on each device."""

    word: str
    order: str
    parts: int
    length: int

    @property
    def role(self) -> str:
        """The role of the operand that has this place: an offset, a scalar, or the position of each token."""
        kinds = {"contiguous": "{}_offset", "striped": "scalar:{}_first", "zigzag": "tensor:{}_places"}
        return kinds[self.order].format(self.word)

    @property
    def name(self) -> str:
        return self.role.partition(":")[2]

    def of(self, device) -> jax.Array:
        """That operand, for this device."""
        if self.order != "zigzag":
            return device * (self.length if self.order == "contiguous" else 1)
        local, half = jnp.arange(self.length, dtype=jnp.int32), _half(self.length)
        return local + half * jnp.where(local < half, device, 2 * self.parts - 2 - device)


def reorder_sequence(x: jax.Array, parts: int, order: str, *, axis: int = 1, inverse: bool = False) -> jax.Array:
    """Reorders a whole sequence so that contiguous shards of it are the parts of `parts` devices, or (inverse) back.

    "striped" gives device i the tokens i, i + parts, ...; "zigzag" the i-th and the i-th last of 2 * parts pieces."""
    one_of("order", order, ORDERS)
    if order == "contiguous":
        return x
    length = x.shape[axis]
    if length % parts:
        raise InvalidArgument(f"a sequence of {length} can't be dealt out to {parts} devices")
    x = jnp.moveaxis(x, axis, 0)
    rest = x.shape[1:]
    if order == "striped":
        first, second = (parts, length // parts) if inverse else (length // parts, parts)
        x = jnp.swapaxes(x.reshape(first, second, *rest), 0, 1).reshape(length, *rest)
        return jnp.moveaxis(x, 0, axis)
    pieces = x.reshape(2 * parts, _half(length // parts), *rest)
    dealt = [j for i in range(parts) for j in (i, 2 * parts - 1 - i)]
    if inverse:
        dealt = [dealt.index(j) for j in range(2 * parts)]
    return jnp.moveaxis(pieces[jnp.array(dealt)].reshape(length, *rest), 0, axis)


def _half(length: int) -> int:
    if length % 2:
        raise InvalidArgument(f"order='zigzag' cuts each device's {length} tokens in two; that number must be even")
    return length // 2


@dataclasses.dataclass(frozen=True)
class Ring:
    axis_name: str
    keys: ShardPlace  # of the part that a device has at first
    name: str | None  # for jax.checkpoint policies
    steps: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()  # (how far keys come, (from, to) of each)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["arrays"], meta_fields=["wanted"])
@dataclasses.dataclass(frozen=True)
class Residuals:
    """What a forward keeps: its operands, o and lse; and the gradients that are wanted."""

    arrays: tuple
    wanted: tuple[str, ...]


def ring_of(call: CallBuilder, ring: Ring, sink, leaves):
    """`leaves` are what stands for the positions of the whole sequence in the formulas of a part."""
    spec, arrays = call.finished()
    ring = dataclasses.replace(ring, steps=_steps(spec, arrays, ring.keys, leaves))
    extra = () if sink is None else (jnp.asarray(sink, jnp.float32),)
    arrays = made_alike([*arrays, *extra])
    return _ring_compiled(spec, ring, *arrays)


def _steps(spec: Spec, arrays, place: ShardPlace, leaves):
    """Steps in which some device has something to compute. What is captured is not known while JAX traces, and may be
    anything."""
    whole = {word: text for word, text in leaves.items() if word in ("q", "k")}
    texts = {}
    for name in ("mod", "mask"):
        texts[name] = getattr(spec, name)
        for word, text in whole.items():
            texts[name] = texts[name] and texts[name].replace(text, word)
    position = LAYOUTS[spec.layout][2]
    shapes = [
        jax.ShapeDtypeStruct(
            tuple(n * place.parts if i == position else n for i, n in enumerate(x.shape)) if role in "qkv" else x.shape,
            x.dtype,
        )
        for role, x in zip(spec.operands, arrays)
    ]
    problem = _core.Problem(problem_line(spec.replace(bprop=None, dropout=0.0, **texts), shapes, "forward"))
    needs = {}
    for rank in range(place.parts):
        plan = json.loads(_core.parallel_plan(problem, (place.parts, "ring", place.order, 0), rank))
        for i, step in enumerate(plan["steps"]):
            if step["tiles"]:
                needs.setdefault(i, []).append((step["from"], rank))
    return tuple((i, tuple(needs[i])) for i in sorted(needs))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _ring(spec: Spec, ring: Ring, *arrays):
    return _ring_forward(spec, ring, arrays)[0]


def _split(spec: Spec, arrays):
    """Operands by role, and the sink behind them."""
    count = len(spec.operands)
    return dict(zip(spec.operands, arrays)), (arrays[count] if len(arrays) > count else None)


def _ring_forward(spec: Spec, ring, arrays):
    place = ring.keys
    operands, sink = _split(spec, arrays)
    part = spec.replace(outputs=("o", "lse"), o_dtype="float32")
    q, k, v = (operands[role] for role in "qkv")
    shape = (*q.shape[:-1], v.shape[-1])
    o, lse = jnp.zeros(shape, jnp.float32), jnp.full(_rows(spec, q.shape), -jnp.inf, jnp.float32)
    for i, pairs in ring.steps:
        brought = _brought((k, v), ring, i, pairs)
        here = {**operands, **dict(zip("kv", brought)), place.role: place.of(_source(ring, i))}
        o_part, lse_part = _primitive.bind("forward", part, made_alike(list(here.values())))
        o, lse = _merged(spec, (o, lse), (o_part, lse_part))
    if sink is not None:
        with_sink = jnp.logaddexp(lse, sink[None, :, None])
        o, lse = o * _by_row(spec, jnp.exp(lse - _finite(with_sink))), with_sink
    return o.astype(q.dtype), o, lse


def _ring_fwd(spec: Spec, ring, *primals):
    arrays = [p.value for p in primals]
    given = [(role, p.value.dtype) for role, p in zip(spec.operands, primals) if p.perturbed]
    wanted = _derivative.wanted_of([role for role, _ in given], [dtype for _, dtype in given])
    if len(arrays) > len(spec.operands) and primals[-1].perturbed:
        wanted = (*wanted, "sink")
    out, o, lse = _ring_forward(spec, ring, arrays)
    if ring.name is not None:
        out, o, lse = (name_for_checkpoint(x, ring.name) for x in (out, o, lse))
    return out, Residuals((tuple(arrays), o, lse), wanted)


def _ring_bwd(spec: Spec, ring, residuals, grad_o):
    (arrays, o, lse), wanted = residuals.arrays, residuals.wanted
    if isinstance(grad_o, jax.custom_derivatives.SymbolicZero) or not wanted:
        return tuple(None for _ in arrays)
    operands, sink = _split(spec, arrays)
    grad_o = grad_o.astype(jnp.float32)
    gradients = _ring_gradients(spec, ring, operands, (o, lse, grad_o), wanted)
    result = [g.astype(x.dtype) if (g := gradients.get(role)) is not None else None for role, x in operands.items()]
    if sink is not None:
        result.append(_sink_gradient(spec, sink, o, lse, grad_o) if "sink" in wanted else None)
    return tuple(result)


_ring.defvjp(_ring_fwd, _ring_bwd, symbolic_zeros=True)
# shard_map that is not compiled refuses functions with such derivatives, but not inside of others.
_ring_compiled = jax.jit(_ring, static_argnums=(0, 1))


def _ring_gradients(spec: Spec, ring, operands, rest, wanted) -> dict[str, jax.Array]:
    place = ring.keys
    part = spec.replace(
        operands=(*spec.operands, "o", "lse", "grad_o"),
        wanted=tuple(w for w in wanted if w != "sink"),
        o_dtype="float32",
        grad_dtype="float32",
        training=True,
        outputs=("o",),
    )
    roles = [gradient_source(role) for role in gradient_roles(part)]
    if not roles:
        return {}
    like = made_alike([*(operands[role] for role in roles), operands["q"]])
    sums = {role: jnp.zeros_like(x, jnp.float32) for role, x in zip(roles, like)}
    for i, pairs in ring.steps:
        brought = _brought((operands["k"], operands["v"]), ring, i, pairs)
        here = {**operands, **dict(zip("kv", brought)), place.role: place.of(_source(ring, i))}
        results = _primitive.bind("backward", part, made_alike([*here.values(), *rest]))
        back = tuple((to, source) for source, to in pairs)
        for role, g in zip(roles, results):
            g = g.astype(jnp.float32)
            sums[role] += _brought((g,), ring, i, back)[0] if role in ("k", "v") else g
    return sums


def _source(ring: Ring, i: int):
    """Whose keys this device works on in step i."""
    return ((jax.lax.axis_index(ring.axis_name) - i) % ring.keys.parts).astype(jnp.int32)


def _brought(arrays, ring: Ring, i: int, pairs):
    """From one device of each pair to the other; a device that nothing is sent to gets zeros, which are masked there."""
    return arrays if i == 0 else [jax.lax.ppermute(x, ring.axis_name, pairs) for x in arrays]


def _rows(spec: Spec, shape) -> tuple[int, ...]:
    batch, head, position = LAYOUTS[spec.layout]
    return (shape[batch], shape[head], shape[position])


def _by_row(spec: Spec, rows):
    """[B, H, S] as a factor of o."""
    return jnp.transpose(rows, [LAYOUTS[spec.layout].index(i) for i in range(3)])[..., None]


def _merged(spec: Spec, first, second):
    """Two parts of the keys: outputs weighted by their shares of the sum. A row that both left empty stays empty."""
    lse = jnp.logaddexp(first[1], second[1])
    weights = [_by_row(spec, jnp.exp(x[1] - _finite(lse))) for x in (first, second)]
    return first[0] * weights[0] + second[0] * weights[1], lse


def _finite(lse):
    """What may be subtracted: a row with nothing in it has -inf."""
    return jnp.where(lse == -jnp.inf, 0.0, lse)


def _sink_gradient(spec: Spec, sink, o, lse, grad_o):
    batch, head, position = LAYOUTS[spec.layout]
    delta = jnp.transpose(jnp.sum(o * grad_o, axis=-1), (batch, head, position))
    return -jnp.sum(jnp.exp(sink[None, :, None] - _finite(lse)) * delta, axis=(0, 2))
