"""The ring of context parallelism: keys and values go round the devices, and each part is merged by its lse.

Called by context_attention(). The derivative goes round once more; gradients of keys and values travel with
them and are back home at the end.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name as name_for_checkpoint

from . import _derivative, _primitive
from ._call import Call
from ._order import Place
from ._spec import LAYOUTS, Spec, gradient_roles, gradient_source
from ._values import made_alike


@dataclasses.dataclass(frozen=True)
class Ring:
    axis_name: str
    keys: Place  # of the part that a device has at first
    name: str | None  # for jax.checkpoint policies


def ring_of(call: Call, ring: Ring, sink):
    spec, arrays = call.finished()
    extra = () if sink is None else (jnp.asarray(sink, jnp.float32),)
    arrays = made_alike([*arrays, *extra])
    return _ring_compiled(spec, ring, *arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _ring(spec: Spec, ring: Ring, *arrays):
    return _ring_forward(spec, ring, arrays)[0]


def _split(spec: Spec, arrays):
    """Operands by role, and the sink behind them."""
    count = len(spec.operands)
    return dict(zip(spec.operands, arrays)), (arrays[count] if len(arrays) > count else None)


def _ring_forward(spec: Spec, ring, arrays):
    axis_name, place = ring.axis_name, ring.keys
    parts = place.parts
    operands, sink = _split(spec, arrays)
    part = spec.replace(outputs=("o", "lse"), o_dtype="float32")

    def visit(carry, i):
        k, v, o, lse = carry
        here = {**operands, "k": k, "v": v, place.role: place.of(_source(axis_name, parts, i))}
        o_part, lse_part = _primitive.bind("forward", part, made_alike(list(here.values())))
        o, lse = _merged(spec, (o, lse), (o_part, lse_part))
        return (*_passed_on((k, v), axis_name, parts), o, lse), None

    q = operands["q"]
    shape = (*q.shape[:-1], operands["v"].shape[-1])
    rows = _rows(spec, q.shape)
    start = made_alike(
        [
            operands["k"],
            operands["v"],
            jnp.zeros(shape, jnp.float32),
            jnp.full(rows, -jnp.inf, jnp.float32),
            q,
        ]
    )[:4]
    (_, _, o, lse), _ = jax.lax.scan(visit, tuple(start), jnp.arange(parts))
    if sink is not None:
        with_sink = jnp.logaddexp(lse, sink[None, :, None])
        o, lse = o * _by_row(spec, jnp.exp(lse - _finite(with_sink))), with_sink
    return o.astype(q.dtype), o, lse


def _ring_fwd(spec: Spec, ring, *primals):
    arrays = [p.value for p in primals]
    wanted = _derivative.wanted_of(spec, primals[: len(spec.operands)])
    if len(arrays) > len(spec.operands) and primals[-1].perturbed:
        wanted = (*wanted, "sink")
    out, o, lse = _ring_forward(spec, ring, arrays)
    if ring.name is not None:
        out, o, lse = (name_for_checkpoint(x, ring.name) for x in (out, o, lse))
    return out, _derivative.Residuals((tuple(arrays), o, lse), (spec, wanted))


def _ring_bwd(spec: Spec, ring, residuals, grad_o):
    arrays, o, lse = residuals.arrays
    _, wanted = residuals.known
    if isinstance(grad_o, jax.custom_derivatives.SymbolicZero) or not wanted:
        return tuple(None for _ in arrays)
    operands, sink = _split(spec, arrays)
    grad_o = grad_o.astype(jnp.float32)
    gradients = _ring_gradients(spec, ring, operands, (o, lse, grad_o), wanted)
    result = [
        g.astype(x.dtype) if (g := gradients.get(role)) is not None else None for role, x in operands.items()
    ]
    if sink is not None:
        result.append(_sink_gradient(spec, sink, o, lse, grad_o) if "sink" in wanted else None)
    return tuple(result)


_ring.defvjp(_ring_fwd, _ring_bwd, symbolic_zeros=True)
# shard_map that is not compiled refuses functions with such derivatives, but not inside of others.
_ring_compiled = jax.jit(_ring, static_argnums=(0, 1))


def _ring_gradients(spec: Spec, ring, operands, rest, wanted) -> dict[str, jax.Array]:
    axis_name, place = ring.axis_name, ring.keys
    parts = place.parts
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
    travelling = [role for role in ("k", "v") if role in roles]

    def visit(carry, i):
        k, v, sums = carry
        here = {**operands, "k": k, "v": v, place.role: place.of(_source(axis_name, parts, i))}
        results = _primitive.bind("backward", part, made_alike([*here.values(), *rest]))
        sums = {role: sums[role] + g.astype(jnp.float32) for role, g in zip(roles, results)}
        sums.update(zip(travelling, _passed_on([sums[role] for role in travelling], axis_name, parts)))
        return (*_passed_on((k, v), axis_name, parts), sums), None

    zeros = made_alike([*(jnp.zeros(operands[role].shape, jnp.float32) for role in roles), operands["q"]])[
        :-1
    ]
    start = (operands["k"], operands["v"], dict(zip(roles, zeros)))
    (_, _, sums), _ = jax.lax.scan(visit, start, jnp.arange(parts))
    return sums


def _source(axis_name: str, parts: int, i):
    """Whose keys this device holds after i steps."""
    return ((jax.lax.axis_index(axis_name) - i) % parts).astype(jnp.int32)


def _passed_on(arrays, axis_name: str, parts: int):
    return [jax.lax.ppermute(x, axis_name, [(i, (i + 1) % parts) for i in range(parts)]) for x in arrays]


def _rows(spec: Spec, shape) -> tuple[int, ...]:
    batch, head, position = LAYOUTS[spec.layout]
    return (shape[batch], shape[head], shape[position])


def _by_row(spec: Spec, rows):
    """[B, H, S] as a factor of o."""
    order = {"bshd": (0, 2, 1), "bhsd": (0, 1, 2), "sbhd": (2, 0, 1)}[spec.layout]
    return jnp.transpose(rows, order)[..., None]


def _merged(spec: Spec, first, second):
    """Two parts of the keys: outputs weighted by their shares of the sum. A row that both left empty stays
    empty.
    """
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
