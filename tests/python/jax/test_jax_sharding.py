"""Every case on eight devices: batch and heads under jit, then along the sequence."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import CASES, HKV, D, H, S, causal
from jax_definition import LIMITS, call, check, close
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from test_jax_values import IDS, check_all, expected, loss

import fovea.jax

SHARDINGS = (P("x", None, "y"), P("x"), P(None, None, "y"))
ORDERS = ("contiguous", "striped", "zigzag")
STRATEGIES = ("ring", "ring", "all_gather")


@pytest.mark.parametrize("i", range(len(CASES)), ids=IDS)
def test_batch_and_heads(i, eight_devices):
    case = CASES[i]
    tensors, learned, fixed, wanted = expected(i)
    mesh = Mesh(np.array(eight_devices).reshape(4, 2), ("x", "y"))
    spec = SHARDINGS[i % len(SHARDINGS)]
    cut = [jax.device_put(x, NamedSharding(mesh, spec)) for x in tensors]
    run = jax.jit(jax.grad(functools.partial(loss, case, fixed, cut[3]), argnums=(0, 1), has_aux=True))
    (grads, learned_grads), o = run(cut[:3], learned)
    check_all((o, grads, learned_grads), wanted)
    assert o.sharding.is_equivalent_to(NamedSharding(mesh, spec), 4), o.sharding


@pytest.mark.parametrize("spec", SHARDINGS, ids=str)
def test_partitions_do_not_talk(spec, eight_devices):
    """Nothing is gathered for batch and heads; only gradients of what all devices share are summed."""
    tensors, learned, fixed, _ = expected(IDS.index("alibi learned"))
    mesh = Mesh(np.array(eight_devices).reshape(4, 2), ("x", "y"))
    cut = [jax.device_put(x, NamedSharding(mesh, spec)) for x in tensors]
    case = CASES[IDS.index("alibi learned")]
    forward = jax.jit(lambda q, k, v: call(fovea.jax.attention, case, (q, k, v), learned, fixed))
    text = forward.lower(*cut[:3]).compile().as_text()
    assert not re.findall(r" (all-gather|all-to-all|collective-permute|all-reduce)\(", text)
    backward = jax.jit(jax.grad(functools.partial(loss, case, fixed, cut[3]), argnums=(0, 1), has_aux=True))
    text = backward.lower(cut[:3], learned).compile().as_text()
    assert not re.findall(r" (all-gather|all-to-all|collective-permute)\(", text)
    assert len(re.findall(r" all-reduce\(", text)) <= 2  # slopes, and k or v of heads that were not cut


@pytest.mark.parametrize("check_vma", (True, False))
def test_shard_map(check_vma, eight_devices):
    """Inside shard_map a device sees its own batch and heads: offsets say which."""
    i = IDS.index("gate")
    case = CASES[i]
    tensors, learned, fixed, wanted = expected(i)
    mesh = Mesh(np.array(eight_devices).reshape(4, 2), ("x", "y"))
    cut = P("x", None, "y")

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(cut, cut, cut, P()), out_specs=cut, check_vma=check_vma)
    def attend(q, k, v, learned):
        b, h = jax.lax.axis_index("x"), jax.lax.axis_index("y") * (H // 2)
        return call(fovea.jax.attention, case, (q, k, v), learned, fixed, b_offset=b, h_offset=h)

    def total(qkv, learned):
        o = attend(*qkv, learned)
        return jnp.sum(o * tensors[3]), o

    (grads, learned_grads), o = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(tensors[:3], learned)
    check_all((o, grads, learned_grads), wanted)


def over_the_sequence(case, fixed, mesh, strategy, order):
    """q, k, v, learned -> o, with the sequence dealt out to the devices of the mesh."""

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(None, "s"),) * 3 + (P(),), out_specs=P(None, "s"))
    def part(q, k, v, learned):
        context = functools.partial(fovea.jax.context_attention, axis_name="s", strategy=strategy, order=order)
        return call(context, case, (q, k, v), learned, fixed)

    def whole(qkv, learned):
        dealt = [fovea.jax.reorder_sequence(x, mesh.size, order) for x in qkv]
        return fovea.jax.reorder_sequence(part(*dealt, learned), mesh.size, order, inverse=True)

    return whole


@pytest.mark.parametrize("i", range(len(CASES)), ids=IDS)
def test_context(i, eight_devices):
    case = CASES[i]
    tensors, learned, fixed, wanted = expected(i)
    mesh = Mesh(np.array(eight_devices), ("s",))
    attend = over_the_sequence(case, fixed, mesh, STRATEGIES[i % 4 % 3], ORDERS[i % 3])

    def total(qkv, learned):
        o = attend(qkv, learned)
        return jnp.sum(o * tensors[3]), o

    (grads, learned_grads), o = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(tensors[:3], learned)
    check_all((o, grads, learned_grads), wanted)


@pytest.mark.parametrize("strategy", ("ring", "all_gather"))
@pytest.mark.parametrize("order", ORDERS)
def test_context_on_one_device(order, strategy):
    """A mesh of one: what a GPU gets of context parallelism, with offsets and places that lie on it."""
    tensors = expected(IDS.index("causal"))[0]
    mesh = Mesh(np.array(jax.devices()[:1]), ("s",))
    more = {"score_mod": lambda s, b, h, q, k: 2.0 * jnp.tanh(s / 2.0), "mask_mod": causal}
    ring = jax.shard_map(
        lambda *a: fovea.jax.context_attention(*a, axis_name="s", strategy=strategy, order=order, **more),
        mesh=mesh,
        in_specs=(P(None, "s"),) * 3,
        out_specs=P(None, "s"),
    )

    def whole(attend, order):
        def total(*qkv):
            dealt = [fovea.jax.reorder_sequence(x, 1, order) for x in qkv]
            o = fovea.jax.reorder_sequence(attend(*dealt), 1, order, inverse=True)
            return jnp.sum(o.astype(jnp.float32) * tensors[3].astype(jnp.float32))

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))(*tensors[:3])

    alone = whole(functools.partial(fovea.jax.attention, **more), "contiguous")
    close(whole(ring, order), alone, 1e-4, 2e-5)


@pytest.mark.parametrize("layout, order", [("bhsd", (0, 2, 1, 3)), ("sbhd", (1, 0, 2, 3))])
def test_context_in_other_layouts(layout, order, eight_devices):
    """The ring, zig-zag, with a sink and lengths, where positions are another dimension."""
    tensors, _, _, _ = expected(IDS.index("lengths"))
    more = {"mask_mod": causal, "sink": jnp.linspace(-1.0, 1.0, H), "kv_lengths": jnp.asarray([32, 20, 1, 0])}
    place = order.index(1)
    cut = P(*("s" if d == place else None for d in range(4)))
    ring = jax.shard_map(
        lambda *a: fovea.jax.context_attention(*a, axis_name="s", order="zigzag", layout=layout, **more),
        mesh=Mesh(np.array(eight_devices), ("s",)),
        in_specs=(cut,) * 3,
        out_specs=cut,
    )

    def over_devices(*qkv):
        dealt = [fovea.jax.reorder_sequence(jnp.transpose(x, order), 8, "zigzag", axis=place) for x in qkv]
        o = fovea.jax.reorder_sequence(ring(*dealt), 8, "zigzag", axis=place, inverse=True)
        return jnp.transpose(o, np.argsort(order))

    def alone(*qkv):
        return fovea.jax.attention(*qkv, **more)

    def both(attend):
        return jax.jit(
            jax.value_and_grad(lambda *qkv: jnp.sum(attend(*qkv) * tensors[3]), argnums=(0, 1, 2))
        )(*tensors[:3])

    for x, y in zip(jax.tree.leaves(both(over_devices)), jax.tree.leaves(both(alone))):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("strategy", ("DEFAULT", "ALL_GATHER"))
def test_the_flax_module_over_the_sequence(strategy, eight_devices):
    """Transformer Engine's arguments; the module is called inside shard_map."""
    pytest.importorskip("flax", reason="the module needs flax, which is not installed")
    tensors, _, _, wanted = expected(IDS.index("causal"))
    module = fovea.jax.DotProductAttention(
        head_dim=D,
        num_attention_heads=H,
        num_gqa_groups=HKV,
        attn_mask_type="causal",
        transpose_batch_sequence=False,
        context_parallel_axis="s",
        context_parallel_causal_load_balanced=True,
        context_parallel_strategy=strategy,
    )
    cut = P(None, "s")
    part = jax.shard_map(
        lambda *a: module.apply({}, *a, deterministic=True),
        mesh=Mesh(np.array(eight_devices), ("s",)),
        in_specs=(cut,) * 3,
        out_specs=cut,
    )
    dealt = [fovea.jax.reorder_sequence(x, 8, "zigzag") for x in tensors[:3]]
    o = fovea.jax.reorder_sequence(jax.jit(part)(*dealt), 8, "zigzag", inverse=True)
    check("o", o, wanted[0], LIMITS["float32"][0])


@pytest.mark.parametrize("order", ORDERS)
def test_orders_deal_out_every_token(order):
    x = jnp.arange(S)[None]
    dealt = fovea.jax.reorder_sequence(x, 4, order)
    assert sorted(dealt[0].tolist()) == list(range(S))
    np.testing.assert_array_equal(fovea.jax.reorder_sequence(dealt, 4, order, inverse=True), x)


def test_dropout_is_the_same_on_any_number_of_devices(eight_devices):
    tensors, learned, fixed, _ = expected(IDS.index("causal"))
    q, k, v, _ = tensors
    more = {"mask_mod": "causal", "dropout_rate": 0.3, "dropout_seed": 7}
    alone = fovea.jax.attention(q, k, v, **more)
    mesh = Mesh(np.array(eight_devices).reshape(4, 2), ("x", "y"))
    cut = [jax.device_put(x, NamedSharding(mesh, P("x", None, "y"))) for x in (q, k, v)]
    np.testing.assert_allclose(jax.jit(lambda *a: fovea.jax.attention(*a, **more))(*cut), alone, rtol=1e-5, atol=1e-6)
    line = Mesh(np.array(eight_devices), ("s",))
    ring = jax.shard_map(
        lambda *a: fovea.jax.context_attention(*a, axis_name="s", **more),
        mesh=line,
        in_specs=(P(None, "s"),) * 3,
        out_specs=P(None, "s"),
    )
    np.testing.assert_allclose(jax.jit(ring)(q, k, v), alone, rtol=1e-5, atol=2e-6)


def test_an_engines_generator_is_not_cut(eight_devices):
    """Forward and backward may be cut in different ways; inside shard_map the caller says which seed."""
    q, k, v, _ = expected(IDS.index("causal"))[0]
    mesh = Mesh(np.array(eight_devices[:4]), ("x",))
    drop = functools.partial(fovea.jax.attention, dropout_rate=0.3, dropout_rng="engine")
    cut = [jax.device_put(x, NamedSharding(mesh, P("x"))) for x in (q, k, v)]
    with pytest.raises(Exception, match="dropout_rng='engine' under jit over several devices"):
        jax.jit(functools.partial(drop, dropout_seed=7))(*cut)

    def part(q, k, v):
        own = jax.lax.axis_index("x").astype(jnp.uint32)
        return drop(q, k, v, dropout_seed=jnp.stack([jnp.uint32(7), own]))

    o = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=(P("x"),) * 3, out_specs=P("x")))(q, k, v)
    for i in range(4):
        seed = jnp.asarray([7, i], jnp.uint32)
        one = drop(*(x[i : i + 1] for x in (q, k, v)), dropout_seed=seed)
        np.testing.assert_allclose(o[i : i + 1], one, rtol=1e-5, atol=1e-6)


FORMS = {
    "one head of keys": (
        ((2, 16, 8, 8), (2, 16, 1, 8), (2, 16, 1, 8)),
        (P("x", None, "y"), P("x"), P("x")),
        {"score_mod": "score * t[h] + 0.1 * H", "captures": True, "return_max_logit": True},
    ),
    "packed": (
        ((2, 16, 3, 8, 8),),
        (P("x", None, None, "y"),),
        {"layout": "bs3hd", "score_mod": "alibi", "dropout_rate": 0.2, "dropout_seed": 3},
    ),
    "packed sequences": (
        ((16, 8, 8),) * 3,
        (P(None, "y"),) * 3,
        {"layout": "thd", "cu_seqlens_q": np.array([0, 5, 16], np.int32), "max_seqlen_q": 16},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_other_forms_are_cut_too(name, eight_devices):
    shapes, specs, more = FORMS[name]
    more = dict(more)
    learned = jnp.linspace(0.5, 1.5, 8)
    if more.pop("captures", False):
        captured = {"score_mod_tensors": lambda t: {"t": t}, "sink": lambda t: t}
    else:
        captured = {"sink": lambda t: t}
    arrays = [jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate(shapes)]

    def total(learned, *arrays):
        results = fovea.jax.attention(*arrays, **more, **{key: f(learned) for key, f in captured.items()})
        o, *rest = results if isinstance(results, tuple) else (results,)
        return jnp.sum(o**2), rest

    run = jax.jit(jax.value_and_grad(total, argnums=tuple(range(1 + len(arrays))), has_aux=True))
    mesh = Mesh(np.array(eight_devices).reshape(2, 4), ("x", "y"))
    cut = [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(arrays, specs)]
    for x, y in zip(jax.tree.leaves(run(learned, *cut)), jax.tree.leaves(run(learned, *arrays))):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
