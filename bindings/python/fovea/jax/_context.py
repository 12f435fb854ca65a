"""Context parallelism: one sequence over many devices, inside jax.shard_map.

Each device holds a part of the queries and of the keys. `ring`: keys and values travel round the devices
and each part's result is merged by its lse. `all_gather`: every device gets all keys first. Modifiers and
masks see global positions, whichever order the sequence is dealt out in.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from . import _derivative, _primitive
from ._call import Call, made_alike
from ._modifiers import Given
from ._order import ORDERS, Place, reorder_sequence
from ._spec import LAYOUTS, Spec, gradient_roles, gradient_source

_STRATEGIES = ("ring", "all_gather")


def context_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    axis_name: str,
    strategy: str = "ring",
    order: str = "contiguous",
    layout: str = "bshd",
    scale: float | jax.Array | None = None,
    sink: jax.Array | None = None,
    q_lengths: jax.Array | None = None,
    kv_lengths: jax.Array | None = None,
    dropout_rate: float = 0.0,
    dropout_seed: int | jax.Array | None = None,
    dropout_rng: str = "portable",
    engine: str | None = None,
    builtin_masks: tuple[str, ...] = (),
    **modifiers: Any,
) -> jax.Array:
    """Attention over a sequence that is cut along the mesh axis `axis_name`; call it inside jax.shard_map.

    q, k, v are this device's parts (layouts bshd, bhsd, sbhd). `order` says how the sequence was dealt out:
    "contiguous", "striped" (token t on device t % n) or "zigzag" (device i has parts i and 2n - 1 - i of 2n),
    the last two so that causal masks give every device the same work; `reorder_sequence` brings an array into
    such an order. score_mod, mask_mod and the rest are as in `attention` and see global positions: capture
    whole arrays, not shards. Lengths are global too.
    """
    for name, value, known in (
        ("strategy", strategy, _STRATEGIES),
        ("order", order, ORDERS),
        ("layout", layout, LAYOUTS),
    ):
        if value not in known or value == "thd":
            raise ValueError(f"{name}={value!r} must be one of {', '.join(x for x in known if x != 'thd')}")
    if dropout_rate and dropout_rng != "portable":
        raise ValueError(f"dropout_rng={dropout_rng!r}: parts of one sequence need the portable generator")
    if dropout_rate and order != "contiguous":
        raise ValueError(
            f"dropout needs order='contiguous': what is dropped follows the position, and order is {order!r}"
        )
    parts = jax.lax.axis_size(axis_name)
    own = jax.lax.axis_index(axis_name).astype(jnp.int32)
    position = LAYOUTS[layout][2]
    if strategy == "all_gather":
        k, v = (_gathered(x, axis_name, position, parts, order) for x in (k, v))
    call = Call(layout, q, k, v)
    lengths = (q.shape[position], k.shape[position])
    total = (parts * lengths[0], parts * lengths[1] if strategy == "ring" else lengths[1])
    # Gathered keys lie where they are.
    words = "qk" if strategy == "ring" else "q"
    places = [Place(word, order, parts, length) for word, length in zip(words, lengths)]
    leaves = _leaves(call, places, own)
    for word, name, value in (("q", "ql", q_lengths), ("k", "kl", kv_lengths)):
        if value is not None:
            call.mask_text(f"{leaves.get(word, word)} < {call.vector(name, value)}")
    leaves.update({"Sq": str(total[0]), "Skv": str(total[1])})
    call.modify(Given(**modifiers), masks=builtin_masks, leaves=leaves)
    call.values(scale=scale, sink=None if strategy == "ring" else sink)
    call.dropout(dropout_rate, dropout_seed)
    call.options(engine=engine)
    if strategy == "all_gather":
        return call.run()[0]
    return _ring_of(call, (axis_name, places[1]), sink)


def _leaves(call: Call, places: list[Place], own) -> dict[str, str]:
    """Binds where this device's part lies, and says what q and k are there."""
    if places[0].order == "contiguous":
        call.offsets(*(next((p.of(own) for p in places if p.word == word), 0) for word in "qk"))
        return {}
    if places[0].order == "zigzag":
        return {p.word: f"({call.positions(p.name, p.of(own), p.word)})" for p in places}
    for p in places:
        call.scalar(p.name, p.of(own))
    return {p.word: f"({p.word} * {p.parts} + {p.name})" for p in places}


def _gathered(x, axis_name: str, position: int, parts: int, order: str):
    whole = jax.lax.all_gather(x, axis_name, axis=position, tiled=True)
    return reorder_sequence(whole, parts, order, axis=position, inverse=True)


# --- the ring ---


def _ring_of(call: Call, ring: tuple[str, Place], sink):
    spec, arrays = call.finished()
    extra = () if sink is None else (jnp.asarray(sink, jnp.float32),)
    arrays = made_alike([*arrays, *extra])
    return _ring(spec, ring, *arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _ring(spec: Spec, ring, *arrays):
    return _ring_forward(spec, ring, arrays)[0]


def _split(spec: Spec, arrays):
    """Operands by role, and the sink behind them."""
    count = len(spec.operands)
    return dict(zip(spec.operands, arrays)), (arrays[count] if len(arrays) > count else None)


def _ring_forward(spec: Spec, ring, arrays):
    axis_name, place = ring
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
        [operands["k"], operands["v"], jnp.zeros(shape, jnp.float32), jnp.full(rows, -jnp.inf), q]
    )[:4]
    (_, _, o, lse), _ = jax.lax.scan(visit, tuple(start), jnp.arange(parts))
    if sink is not None:
        with_sink = jnp.logaddexp(lse, sink[None, :, None])
        o, lse = o * _by_row(spec, jnp.exp(lse - with_sink)), with_sink
    return o.astype(q.dtype), o, lse


def _ring_fwd(spec: Spec, ring, *primals):
    arrays = [p.value for p in primals]
    wanted = _derivative.wanted_of(spec, primals[: len(spec.operands)])
    if len(arrays) > len(spec.operands) and primals[-1].perturbed:
        wanted = (*wanted, "sink")
    out, o, lse = _ring_forward(spec, ring, arrays)
    return out, _derivative.Residuals((tuple(arrays), o, lse), wanted)


def _ring_bwd(spec: Spec, ring, residuals, grad_o):
    arrays, o, lse = residuals.arrays
    if isinstance(grad_o, jax.custom_derivatives.SymbolicZero) or not residuals.wanted:
        return tuple(None for _ in arrays)
    operands, sink = _split(spec, arrays)
    grad_o = grad_o.astype(jnp.float32)
    gradients = _ring_gradients(spec, ring, operands, (o, lse, grad_o), residuals.wanted)
    result = [
        g.astype(x.dtype) if (g := gradients.get(role)) is not None else None for role, x in operands.items()
    ]
    if sink is not None:
        result.append(_sink_gradient(spec, sink, o, lse, grad_o) if "sink" in residuals.wanted else None)
    return tuple(result)


_ring.defvjp(_ring_fwd, _ring_bwd, symbolic_zeros=True)


def _ring_gradients(spec: Spec, ring, operands, rest, wanted) -> dict[str, jax.Array]:
    axis_name, place = ring
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
    safe = jnp.where(lse == -jnp.inf, 0.0, lse)
    weights = [_by_row(spec, jnp.exp(x[1] - safe)) for x in (first, second)]
    return first[0] * weights[0] + second[0] * weights[1], lse


def _sink_gradient(spec: Spec, sink, o, lse, grad_o):
    batch, head, position = LAYOUTS[spec.layout]
    delta = jnp.transpose(jnp.sum(o * grad_o, axis=-1), (batch, head, position))
    return -jnp.sum(jnp.exp(sink[None, :, None] - lse) * delta, axis=(0, 2))
