"""jit, grad, checkpoint, donation, export; what is traced and built, and how often."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import B, H, S, causal, softcap
from jax_definition import DTYPE, close, dense, differs, scores_of
from jax_setup import DEVICE, seed

import fovea
import fovea.jax
from fovea import _core


def builds() -> int:
    return _core.cache_statistics()["builds"]


def count_lowerings(monkeypatch):
    """How often a custom call is lowered: once per program that JAX compiles."""
    from fovea.jax import _primitive

    lines = []
    original = _primitive._custom_call

    def counted(*args):
        lines.append(args[-1])
        return original(*args)

    monkeypatch.setattr(_primitive, "_custom_call", counted)
    return lines


def test_a_new_number_compiles_and_builds_nothing(qkv, monkeypatch):
    """Numbers are bound per call."""
    lines = count_lowerings(monkeypatch)
    results, built = [], []
    for cap in (3.0, 4.0, 0.5):
        results.append(fovea.jax.attention(*qkv, score_mod=softcap(cap), mask_mod=causal))
        built.append(builds())
    assert len(lines) == 1 and built[0] == built[-1]
    assert all(differs(results[0], other) for other in results[1:])


def test_new_captured_values_compile_and_build_nothing(qkv, monkeypatch):
    lines = count_lowerings(monkeypatch)
    results, built = [], []
    for slopes in (jnp.ones(H), jnp.zeros(H), jnp.arange(H) * 0.25):
        # Like no other test's: what is compiled here was not compiled before.
        results.append(fovea.jax.attention(*qkv, score_mod=lambda s, b, h, q, k: slopes[h] * (k - q) - s))
        built.append(builds())
    assert len(lines) == 1 and built[0] == built[-1]
    assert all(differs(results[0], other) for other in results[1:])


def test_scale_offsets_and_window_are_bound_per_call(qkv, monkeypatch):
    lines = count_lowerings(monkeypatch)
    for scale, offset, size in ((0.1, 1, 4), (0.2, 2, 8)):
        window = jnp.int32(size)  # an array is bound per call on every device, a Python int on the CPU
        got = fovea.jax.attention(
            *qkv, scale=scale, q_offset=offset, mask_mod=lambda b, h, q, k: (q >= k) & (q - k < window)
        )
        q, k, v = (x.astype(jnp.float32) for x in qkv)
        k, v = (jnp.repeat(x, 2, axis=2) for x in (k, v))
        i, j = jnp.arange(S)[:, None] + offset, jnp.arange(S)[None]
        kept = (i >= j) & (i - j < size)
        close(got, dense(q, k, v, lambda scores: jnp.where(kept, scores, -jnp.inf), scale), 1e-4, 1e-5)
    assert len(lines) == 1


def test_traced_once_under_jit(qkv):
    traces = []

    def modifier(score, b, h, q, k, cap):
        traces.append(1)
        return cap * jnp.tanh(score / cap)

    @jax.jit
    def attend(q, k, v, cap):
        return fovea.jax.attention(q, k, v, score_mod=lambda s, b, h, i, j: modifier(s, b, h, i, j, cap))

    first = [attend(*qkv, cap) for cap in (1.0, 2.0, 3.0)]
    assert len(traces) == 1, "one trace of the modifier for all values"
    assert differs(first[0], first[2])


def test_a_smaller_batch_builds_no_other_plan(qkv):
    """The batch is not part of the plan. (Engine cudnn bakes it: there powers of two share graphs.)"""
    engine = "jit" if DEVICE == "cuda" else None

    def attend(n):
        doc, slopes = jnp.zeros((n, S), jnp.int32), jnp.ones((n, H))
        return fovea.jax.attention(
            *(x[:n] for x in qkv),
            score_mod=lambda s, b, h, q, k: s * slopes[b, h],
            mask_mod=lambda b, h, q, k: doc[b, q] == doc[b, k],
            engine=engine,
        )

    attend(B)
    before = builds()
    attend(B - 1), attend(1), attend(2), attend(B)
    assert builds() == before


def test_a_modifier_is_what_it_computes(qkv):
    """Functions at one address, redefined ones, lambdas and partials."""
    results = []
    for factor in (0.5, 2.0):
        scope = {}
        exec(f"def modify(score, b, h, q, k): return score * {factor}", scope)
        results.append(fovea.jax.attention(*qkv, score_mod=scope["modify"]))
        del scope
    assert differs(results[0], results[1])
    before = builds()
    for same in (
        lambda score, b, h, q, k: score * 0.5,
        functools.partial(lambda x, score, b, h, q, k: score * x, 0.5),
    ):
        got = fovea.jax.attention(*qkv, score_mod=same)
        if DEVICE == "cpu":
            np.testing.assert_array_equal(got, results[0])
        close(got, results[0])
    # The partial's number is a scalar, the lambda's a literal that the plan lifts: at most one more plan.
    assert builds() <= before + 1


def test_checkpoint_saves_what_is_named(qkv):
    policy = jax.checkpoint_policies.save_only_these_names("context")

    def loss(q, k, v, name):
        return jnp.sum(jnp.sin(fovea.jax.attention(q, k, v, mask_mod=causal, checkpoint_name=name)))

    def saved(name):
        function = jax.checkpoint(functools.partial(loss, name=name), policy=policy)
        text = str(jax.make_jaxpr(jax.grad(function))(*qkv))
        return text.count("fovea_forward[")

    assert saved("context") == 1, "the output is saved: no second forward"
    assert saved(None) == 2, "without the name it is computed again"
    got = jax.grad(jax.checkpoint(functools.partial(loss, name="context"), policy=policy))(*qkv)
    close(got, jax.grad(functools.partial(loss, name=None))(*qkv))


def test_donated_buffers(qkv):
    attend = jax.jit(lambda q, k, v: fovea.jax.attention(q, k, v, mask_mod=causal), donate_argnums=(0,))
    wanted = fovea.jax.attention(*qkv, mask_mod=causal)
    q = qkv[0] + 0
    got = attend(q, *qkv[1:])
    close(got, wanted)
    assert q.is_deleted()


@pytest.fixture
def checks():
    pytest.importorskip("flatbuffers", reason="jax.export serialises with flatbuffers, which is not installed")
    return [jax.export.DisabledSafetyCheck.custom_call(name) for name in fovea.jax.custom_call_targets()]


def sloped(q, k, v, slopes):
    return fovea.jax.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i))


def test_export(qkv, checks):
    slopes = jnp.arange(H) * 0.1
    exported = jax.export.export(jax.jit(sloped), disabled_checks=checks)(*qkv, slopes)
    again = jax.export.deserialize(exported.serialize())
    close(again.call(*qkv, slopes), sloped(*qkv, slopes))


def test_export_with_its_derivative(qkv, checks):
    def attend(q, k, v):
        return fovea.jax.attention(q, k, v, mask_mod=causal)

    exported = jax.export.export(jax.jit(attend), disabled_checks=checks)(*qkv)
    again = jax.export.deserialize(exported.serialize(vjp_order=1))

    def gradients(function):
        return jax.grad(lambda *a: jnp.sum(function(*a).astype(jnp.float32) ** 2), argnums=(0, 1, 2))(*qkv)

    close(gradients(again.call), gradients(attend))


def test_export_to_other_platforms(qkv, checks):
    """A program for a GPU is made without one; sizes must be known."""
    slopes = jnp.arange(H) * 0.1
    exported = jax.export.export(jax.jit(sloped), disabled_checks=checks, platforms=("cpu", "cuda"))
    half = [jax.ShapeDtypeStruct(x.shape, jnp.bfloat16) for x in qkv]
    assert exported(*half, slopes).platforms == ("cpu", "cuda")
    (batch,) = jax.export.symbolic_shape("batch")
    shapes = [jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype) for x in qkv]
    with pytest.raises(fovea.InvalidArgument, match=r"q: shape \[batch, .*none may be symbolic"):
        exported(*shapes, slopes)


def test_only_wanted_gradients_are_computed(qkv, monkeypatch):
    lines = count_lowerings(monkeypatch)
    bias = jnp.ones((H, S))

    def loss(q, bias):
        return jnp.sum(fovea.jax.attention(q, *qkv[1:], score_mod=lambda s, b, h, i, j: s + bias[h, j] + 0.125 * i))

    jax.grad(loss)(qkv[0], bias)
    assert any("grads=q " in line + " " for line in lines)
    jax.grad(loss, argnums=1)(qkv[0], bias)
    assert any("grads=a0 " in line + " " for line in lines)


def test_a_program_of_many_calls_runs_again(qkv):
    """Enough calls for a command buffer on a GPU, recorded once and run with other arrays and numbers."""
    q, k, v = qkv

    def layers(q, cap):
        for _ in range(6):
            capped = {"score_mod": lambda s, b, h, i, j: cap * jnp.tanh(s / cap), "scale": 0.1 * cap}
            o = fovea.jax.attention(q, k, v, mask_mod=causal, **capped)
            q = (0.5 * q + 0.5 * o).astype(q.dtype)
        return q

    def loss(q, cap):
        return jnp.sum(layers(q, cap).astype(jnp.float32) ** 2)

    compiled = jax.jit(jax.value_and_grad(loss))
    for turn in range(4):
        arguments = (q * (1 + 0.1 * turn), jnp.float32(1.0 + 0.5 * turn))
        close(compiled(*arguments), jax.value_and_grad(loss)(*arguments), 1e-4, 1e-4)


def test_layers_in_a_scan(qkv):
    """What the layers capture is learned, what they mask by is not; both go through scan's own derivative."""
    q, k, v = qkv
    tables = jnp.linspace(0.1, 1.0, 2 * H).reshape(2, H)
    doc = jnp.zeros((B, S), jnp.int32).at[:, S // 2 :].set(1)

    def layer(x, table):
        o = attend(x, k, v, table)
        return x + o, None

    def attend(x, k, v, table):
        return fovea.jax.attention(
            x, k, v, score_mod=lambda s, b, h, i, j: s * table[h], mask_mod=lambda b, h, i, j: doc[b, i] == doc[b, j]
        )

    def scanned(tables, q):
        return jnp.sum(jax.lax.scan(layer, q, tables)[0] ** 2)

    def unrolled(tables, q):
        for table in tables:
            q = layer(q, table)[0]
        return jnp.sum(q**2)

    close(jax.jit(jax.grad(scanned, (0, 1)))(tables, q), jax.grad(unrolled, (0, 1))(tables, q), 1e-4)


def test_jacrev_works(qkv):
    q, k, v = (x[:1, :3, :2] for x in qkv)

    def jacobian(attend):
        return jax.jit(jax.jacrev(lambda q: attend(q, k, v)[..., :2]))(q)

    close(jacobian(fovea.jax.attention), jacobian(jax.nn.dot_product_attention), 1e-4)


def test_vmap_of_vmap():
    """Captured arrays and numbers that either axis maps, or neither; gradients of all."""
    rng = np.random.default_rng(seed())
    q, k, v, gate, cap = (
        jnp.asarray(rng.uniform(0.5, 1.5, shape), DTYPE)
        for shape in ((2, 3, 2, 8, 2, 16),) * 3 + ((2, 3, 2, 2), (3,))
    )
    kept = jnp.asarray(rng.random((2, 2, 8)) < 0.7)

    def loss(q, k, v, gate, cap, kept):
        o = fovea.jax.attention(
            *(q, k, v),
            score_mod=lambda s, b, h, i, j: cap * s * gate[b, h] + b,
            mask_mod=lambda b, h, i, j: kept[b, j] | (i == j),
        )
        return jnp.sum(o.astype(jnp.float32) ** 2)

    run = jax.value_and_grad(loss, argnums=(0, 1, 2, 3, 4))
    mapped = jax.vmap(jax.vmap(run, (0, 0, 0, 0, 0, None)), (0, 0, 0, 0, None, 0))
    got = mapped(q, k, v, gate, cap, kept)
    for x in range(2):
        wanted = [run(q[x, y], k[x, y], v[x, y], gate[x, y], cap[y], kept[x]) for y in range(3)]
        close(jax.tree.map(lambda a: a[x], got), jax.tree.map(lambda *a: jnp.stack(a), *wanted), 1e-4)


def test_sequences_run_one_by_one_where_they_must(qkv):
    """A mapped sink is one per example, which no single call can have."""
    sinks = jnp.stack([jnp.zeros(H), jnp.ones(H)])

    def loss(sink, q):
        return jnp.sum(fovea.jax.attention(q, *qkv[1:], sink=sink) ** 2)

    got = jax.vmap(jax.grad(loss), (0, None))(sinks, qkv[0])
    wanted = jnp.stack([jax.grad(loss)(sink, qkv[0]) for sink in sinks])
    close(got, wanted)


def test_lse_has_a_gradient(qkv):
    q, k, v = qkv

    def ours(q, k):
        _, lse = fovea.jax.attention(q, k, v, return_lse=True)
        return jnp.sum(jnp.cos(lse))

    def plain(q, k):
        return jnp.sum(jnp.cos(jax.nn.logsumexp(scores_of(q, jnp.repeat(k, 2, axis=2)), axis=-1)))

    for x, y in zip(jax.grad(ours, (0, 1))(q, k), jax.grad(plain, (0, 1))(q, k)):
        close(x, y, 1e-4)


def test_explain_names_engines(qkv):
    text = fovea.jax.explain(*qkv, mask_mod=causal, device="cpu")
    assert "cpu" in text and "reference" in text
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in qkv]
    assert fovea.jax.explain(*shapes, mask_mod=causal, device="cpu") == text
