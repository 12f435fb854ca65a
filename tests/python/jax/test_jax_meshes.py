"""Meshes as users make them: uneven cuts, both partitioners, explicit axes, several axes at once."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_cases import D, H, S, causal
from jax_definition import close

from fovea.jax import attention, context_attention

HEADS = P("x", None, "y")


@pytest.fixture
def explicit(eight_devices):
    """What jax.make_mesh makes unless told otherwise."""
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2, devices=eight_devices)
    assert jax.make_mesh((1,), ("x",)).axis_types == (AxisType.Explicit,)
    return mesh


def random(shape, i=0):
    return jax.random.normal(jax.random.key(i), shape)


UNEVEN = {"batch": ((3, 8, 4, 8), (3, 8, 4, 8), P("x")), "heads": ((2, 8, 6, 8), (2, 8, 1, 8), P(None, None, "x"))}


@pytest.mark.parametrize("name", UNEVEN)
def test_parts_that_do_not_come_out_even_are_gathered(name, eight_devices):
    """A constraint may ask for it; XLA would pad the last part, and sums would have the padding in them."""
    q_shape, k_shape, cut = UNEVEN[name]
    arrays = random(q_shape), random(k_shape, 1), random(k_shape, 2)
    sharding = NamedSharding(Mesh(np.array(eight_devices[:4]), ("x",)), cut)

    def loss(place, slopes, q, k, v):
        o = attention(place(q), k, v, score_mod=lambda s, b, h, i, j: s * slopes[h] * (1 + b) + 0.1 * h * (i - j))
        return jnp.sum(o**2)

    slopes = jnp.linspace(0.5, 1.5, q_shape[2])
    cut_up = functools.partial(loss, lambda q: jax.lax.with_sharding_constraint(q, sharding))
    got = jax.jit(jax.value_and_grad(cut_up, argnums=(0, 1)))(slopes, *arrays)
    close(got, jax.value_and_grad(functools.partial(loss, lambda q: q), argnums=(0, 1))(slopes, *arrays), 1e-4, 1e-4)


def test_gspmd(qkv, eight_devices):
    """The partitioner before Shardy, which asks for the shardings of results."""
    mesh = Mesh(np.array(eight_devices).reshape(4, 2), ("x", "y"))
    cut = [jax.device_put(x, NamedSharding(mesh, HEADS)) for x in qkv]
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        got = jax.jit(jax.grad(lambda *a: jnp.sum(attention(*a, mask_mod=causal) ** 2)))(*cut)
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)
    close(got, jax.grad(lambda *a: jnp.sum(attention(*a, mask_mod=causal) ** 2))(*qkv), 1e-4)


# --- explicit axes ---


def test_results_have_types_on_explicit_meshes(qkv, explicit):
    cut = [jax.device_put(x, NamedSharding(explicit, HEADS)) for x in qkv]
    types = []

    def loss(*qkv):
        o, lse, top = attention(*qkv, mask_mod=causal, return_lse=True, return_max_logit=True)
        types.extend(tuple(jax.typeof(x).sharding.spec) for x in (o, lse, top))
        return jnp.sum((o + qkv[0]) ** 2) + jnp.sum(lse)

    got = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*cut)
    assert types == [("x", None, "y", None), ("x", "y", None), ("y",)]
    assert all(g.sharding.is_equivalent_to(x.sharding, 4) for g, x in zip(got, cut))
    close(got, jax.grad(loss, argnums=(0, 1, 2))(*qkv), 1e-4, 1e-5)


def test_packed_and_mapped_on_explicit_meshes(explicit):
    packed = random((4, S, 3, H, D))
    cut = jax.device_put(packed, NamedSharding(explicit, P("x", None, None, "y")))
    attend = functools.partial(attention, layout="bs3hd", mask_mod=causal)
    got = jax.jit(attend)(cut)
    assert tuple(got.sharding.spec) == ("x", None, "y", None)
    close(got, attend(packed))
    examples = random((4, 1, S, 3, H, D))
    cut = jax.device_put(examples, NamedSharding(explicit, P("x", None, None, None, "y")))
    close(jax.jit(jax.vmap(attend))(cut), jax.vmap(attend)(examples))


# --- inside shard_map ---


@pytest.mark.parametrize("check_vma", (True, False))
def test_shard_map_that_is_not_compiled(check_vma, qkv, eight_devices):
    """As one writes it first; JAX refuses custom derivatives there, but not inside of compiled functions."""
    mesh = Mesh(np.array(eight_devices), ("s",))
    q, k, v = (x[:, :8] for x in qkv)
    one = P(None, "s")
    run = functools.partial(jax.shard_map, mesh=mesh, check_vma=check_vma)
    whole = attention(q, k, v, mask_mod=causal)
    ring = functools.partial(context_attention, axis_name="s", mask_mod=causal)
    close(run(ring, in_specs=(one,) * 3, out_specs=one)(q, k, v), whole)

    def rows(q, k, v):
        return attention(q, k, v, mask_mod=causal, q_offset=jax.lax.axis_index("s"))

    close(run(rows, in_specs=(one, P(), P()), out_specs=one)(q, k, v), whole)


@pytest.mark.parametrize("strategy, order", [("ring", "zigzag"), ("all_gather", "striped"), ("ring", "contiguous")])
def test_batch_heads_and_sequence_at_once(strategy, order, qkv, eight_devices):
    """Modifiers see global batches and heads if the mesh cuts these beside the sequence."""
    from fovea.jax import reorder_sequence

    mesh = Mesh(np.array(eight_devices).reshape(2, 2, 2), ("b", "h", "s"))
    table = jnp.linspace(0.1, 1.0, 4 * H).reshape(4, H)
    cut = P("b", "s", "h")

    def modifier(score, b, h, i, j):
        return score * table[b, h] + 0.1 * (j - i)

    def part(q, k, v):
        b, h = jax.lax.axis_index("b") * 2, jax.lax.axis_index("h") * (H // 2)
        more = {"strategy": strategy, "order": order, "b_offset": b, "h_offset": h, "global_heads": H}
        lengths = {"kv_lengths": jax.lax.dynamic_slice(jnp.array([32, 7, 0, 20]), (b,), (2,))}
        text = {"mask_mod": "causal && h < H"}
        return context_attention(q, k, v, axis_name="s", score_mod=modifier, **text, **more, **lengths)

    def over_devices(*qkv):
        dealt = [reorder_sequence(x, 2, order) for x in qkv]
        o = jax.shard_map(part, mesh=mesh, in_specs=(cut,) * 3, out_specs=cut)(*dealt)
        return reorder_sequence(o, 2, order, inverse=True)

    def alone(*qkv):
        return attention(*qkv, score_mod=modifier, mask_mod="causal", kv_lengths=jnp.array([32, 7, 0, 20]))

    def both(attend):
        return jax.jit(jax.value_and_grad(lambda *a: jnp.sum(attend(*a) ** 2), argnums=(0, 1, 2)))(*qkv)

    close(both(over_devices), both(alone), 1e-4, 1e-5)


def test_a_ring_of_empty_rows_and_sinks_that_are_not_there(qkv, eight_devices):
    sinks = jnp.asarray([0.0, -jnp.inf, 1.0, 2.0])
    more = {"mask_mod": lambda b, h, i, j: (i > 3) & (j < 2)}
    one = P(None, "s")

    def ring(sink, q, k, v):
        return context_attention(q, k, v, axis_name="s", sink=sink, **more)

    mesh = Mesh(np.array(eight_devices), ("s",))
    over = jax.shard_map(ring, mesh=mesh, in_specs=(P(), one, one, one), out_specs=one)
    runs = (over, lambda sink, *qkv: attention(*qkv, sink=sink, **more))
    got, want = (
        jax.jit(jax.value_and_grad(lambda *a, f=f: jnp.sum(jnp.sin(f(*a))), argnums=(0, 1)))(sinks, *qkv)
        for f in runs
    )
    close(got, want, 1e-4, 1e-5)


@pytest.mark.parametrize("strategy", ("ring", "all_gather"))
def test_parts_of_a_sequence_have_names_for_checkpoint(strategy, qkv, eight_devices):
    policy = jax.checkpoint_policies.save_only_these_names("context")
    mesh, one = Mesh(np.array(eight_devices), ("s",)), P(None, "s")

    def forwards(name):
        attend = functools.partial(context_attention, axis_name="s", strategy=strategy, checkpoint_name=name)
        part = jax.shard_map(jax.checkpoint(attend, policy=policy), mesh=mesh, in_specs=(one,) * 3, out_specs=one)
        text = str(jax.make_jaxpr(jax.grad(lambda *a: jnp.sum(jnp.sin(part(*a)))))(*qkv))
        return text.count("fovea_forward[")

    assert forwards(None) == 2 * forwards("context")


def test_the_ring_leaves_out_what_is_masked(qkv, eight_devices):
    """As the library's plan says: a window over neighbours takes one step beside a device's own, nothing masked seven."""
    mesh, one = Mesh(np.array(eight_devices), ("s",)), P(None, "s")

    def sent(mask):
        attend = functools.partial(context_attention, axis_name="s", mask_mod=mask)
        part = jax.shard_map(attend, mesh=mesh, in_specs=(one,) * 3, out_specs=one)
        pairs = re.findall(r"perm=(\(.*?\),?\))", str(jax.make_jaxpr(part)(*qkv)))
        return [len(re.findall(r"\(\d+, \d+\)", pair)) for pair in pairs]

    assert sent(None) == [8] * 14
    assert sent("q >= k && q - k < 2") == [7] * 2
    assert sent("q >= k") == [n for n in range(7, 0, -1) for _ in "kv"]


def test_wide_integers_change_nothing(qkv, eight_devices):
    """jax_enable_x64: positions and rows of a ring stay what the library takes."""
    one = P(None, "s")
    ring = jax.shard_map(
        lambda *a: context_attention(*a, axis_name="s", mask_mod=causal),
        mesh=Mesh(np.array(eight_devices), ("s",)),
        in_specs=(one,) * 3,
        out_specs=one,
    )
    with jax.enable_x64(True):
        got = jax.jit(jax.grad(lambda *a: jnp.sum(ring(*a) ** 2), argnums=(0, 1, 2)))(*qkv)
    want = jax.grad(lambda *a: jnp.sum(attention(*a, mask_mod=causal) ** 2), argnums=(0, 1, 2))(*qkv)
    assert all(g.dtype == jnp.float32 for g in got)
    close(got, want, 1e-4, 1e-5)
