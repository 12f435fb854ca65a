"""Context parallelism: one sequence over many devices, inside jax.shard_map.

Each device has a part of the queries and of the keys. `ring`: keys and values travel round the devices, and the results of
the parts are merged by lse. `all_gather`: every device gets all keys first. Modifiers and masks see global positions, in
whatever order the sequence is distributed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._core import InvalidArgument
from .._options import RETURNS, Handed, filled, takes
from .._request import one_of
from ._attention import attention
from ._call import CallBuilder
from ._modifiers import GivenModifiers
from ._ring import ORDERS, ShardPlace, Ring, reorder_sequence, ring_of
from ._spec import LAYOUTS

_STRATEGIES = ("ring", "all_gather")
# Of attention(), what has no meaning for a part of a sequence, or is said by what this function takes itself.
_WITHOUT = ("bias", "dense_mask", "sequence_descriptor", "cu_seqlens_q", "cu_seqlens_kv", "max_seqlen_q", "max_seqlen_kv")


@takes(attention, without=(*_WITHOUT, "q_offset", "kv_offset", *RETURNS))
def context_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    axis_name: str,
    strategy: str = "ring",
    order: str = "contiguous",
    layout: str = "bshd",
    **options: Any,
) -> jax.Array:
    """Attention over a sequence that is sharded along the mesh axis `axis_name`; call it inside jax.shard_map.

    q, k, v are this device's parts (layouts bshd, bhsd, sbhd). `order` says how the sequence is distributed: "contiguous",
    "striped" (token t on device t % n) or "zigzag" (device i has parts i and 2n - 1 - i of 2n). The last two give every device
    the same work under a causal mask; `reorder_sequence` puts an array into such an order. score_mod, mask_mod and the rest
    are as in `attention` and see global positions: capture whole arrays, not shards. Lengths are global too. If the mesh
    shards the batch or the heads as well, b_offset, h_offset and global_heads say which part this is."""
    _check_choices(strategy, order, layout)
    options = filled(context_attention, options)
    _check_dropout(options["dropout_rate"], options["dropout_rng"], order)
    given, sink = GivenModifiers.of(options), options["sink"]
    try:
        parts = jax.lax.axis_size(axis_name)
    except NameError:
        raise InvalidArgument(f"axis_name={axis_name!r}: is no axis here; call context_attention inside jax.shard_map") from None
    own = jax.lax.axis_index(axis_name).astype(jnp.int32)
    position = LAYOUTS[layout][2]
    if strategy == "all_gather":
        k, v = (_gathered(x, axis_name, position, parts, order) for x in (k, v))
    call = CallBuilder(layout, q, k, v)
    call.keep_names(given)
    call.offsets(b=options["b_offset"], h=options["h_offset"])
    lengths = (q.shape[position], k.shape[position])
    total = (parts * lengths[0], parts * lengths[1] if strategy == "ring" else lengths[1])
    # Gathered keys are in order: the position of each is its index.
    words = "qk" if strategy == "ring" else "q"
    places = [ShardPlace(word, order, parts, length) for word, length in zip(words, lengths)]
    leaves = _leaves(call, places, own)
    for word, name in (("q", "q_lengths"), ("k", "kv_lengths")):
        if (value := options[name]) is not None:
            call.mask_text(f"{leaves.get(word, word)} < {call.per_sequence(f'{word}_ends', value, name)}")
    placed = dict(leaves)
    leaves.update({"Sq": str(total[0]), "Skv": str(total[1])})
    call.modify(given, masks=options["builtin_masks"], leaves=leaves)
    call.values(scale=options["scale"], sink=None if strategy == "ring" else sink)
    call.dropout(options["dropout_rate"], options["dropout_seed"])
    handed = Handed(**{name: options[name] for name in Handed._fields if name in options})
    call.options(handed, strict=options["strict"], h_global=options["global_heads"] or 0)
    name = options["checkpoint_name"]
    if strategy == "all_gather":
        return call.run(name)[0]
    return ring_of(call, Ring(axis_name, places[1], name), sink, placed)


def _check_choices(strategy: str, order: str, layout: str) -> None:
    for name, value, known in (("strategy", strategy, _STRATEGIES), ("order", order, ORDERS), ("layout", layout, LAYOUTS)):
        one_of(name, value, [x for x in known if x != "thd"])


def _check_dropout(rate: float, rng: str, order: str) -> None:
    if rate and rng != "portable":
        raise InvalidArgument(f"dropout_rng={rng!r}: parts of one sequence need the portable generator")
    if rate and order != "contiguous":
        raise InvalidArgument(
            f"order={order!r}: must be 'contiguous' with dropout, since what is dropped follows the position"
        )


def _leaves(call: CallBuilder, places: list[ShardPlace], own) -> dict[str, str]:
    """Binds where this device's part lies, and says what q and k are there."""
    if places[0].order == "contiguous":
        call.offsets(**{p.word: p.of(own) for p in places})
        return {}
    if places[0].order == "zigzag":
        return {p.word: f"({call.positions(p.name, p.of(own), p.word)})" for p in places}
    for p in places:
        call.number(p.name, p.of(own))
    return {p.word: f"({p.word} * {p.parts} + {p.name})" for p in places}


def _gathered(x, axis_name: str, position: int, parts: int, order: str):
    whole = jax.lax.all_gather(x, axis_name, axis=position, tiled=True)
    return reorder_sequence(whole, parts, order, axis=position, inverse=True)
