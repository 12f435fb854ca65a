"""Forward mode and second derivatives on the CPU: every case against the definition in float64, and under transforms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import CASES, causal, softcap
from jax_definition import call, check, close, data, defined, dense, scores_of
from jax_setup import DEVICE

import fovea.jax

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="tangents run on the CPU")

BY_HAND = ("cuDNN callback", "bprop by hand")  # whose derivatives have none of their own
DERIVED = [case for case in CASES if case.name not in BY_HAND]
LIMIT = 6e-5  # ten times that of gradients: of sums whose terms cancel


def changes(attend, inputs, direction, grad_o):
    """Of o along a direction; of the gradients along it, by forward over reverse and by reverse over reverse."""

    def gradients(inputs):
        return jax.grad(lambda inputs: jnp.sum(attend(inputs) * grad_o))(inputs)

    def along(inputs):
        parts = zip(jax.tree.leaves(gradients(inputs)), jax.tree.leaves(direction))
        return sum(jnp.sum(g * t) for g, t in parts)

    _, o = jax.jvp(attend, (inputs,), (direction,))
    _, forward = jax.jvp(gradients, (inputs,), (direction,))
    return o, forward, jax.grad(along)(inputs)


@pytest.mark.parametrize("case", DERIVED, ids=[case.name for case in DERIVED])
def test_as_defined(case):
    tensors, learned, fixed = data(case)
    inputs = (tensors[:3], learned)
    rng = np.random.default_rng([*case.name.encode()])
    direction = jax.tree.map(lambda x: jnp.asarray(rng.standard_normal(x.shape), x.dtype), inputs)

    def ours(inputs):
        return call(fovea.jax.attention, case, *inputs, fixed)

    got = jax.jit(functools.partial(changes, ours))(inputs, direction, tensors[3])
    with jax.enable_x64(True):
        wide = [jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64)), x) for x in (inputs, direction, tensors[3])]
        wanted = changes(lambda inputs: defined(case, *inputs, fixed)[0], *wide)
        wanted = jax.tree.map(np.asarray, wanted)
    for what, x, y in zip(("o", "forward", "reverse"), got, wanted):
        for j, pair in enumerate(zip(jax.tree.leaves(x), jax.tree.leaves(y))):
            check(f"{what} {j}", *pair, LIMIT)


@pytest.fixture
def qkv():
    rng = np.random.default_rng(3)
    return [jnp.asarray(rng.standard_normal((1, 5, 2, 4)), jnp.float32) for _ in range(3)]


def ours(q, k, v):
    return fovea.jax.attention(q, k, v, score_mod=softcap(2.0), mask_mod=causal)


def theirs(q, k, v):
    kept = jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool))
    return dense(q, k, v, lambda scores: jnp.where(kept, 2 * jnp.tanh(scores / 2), -jnp.inf))


def loss(attend):
    return lambda *qkv: jnp.sum(jnp.sin(attend(*qkv)))


TRANSFORMS = {
    "hessian": lambda f: jax.hessian(loss(f), (0, 1, 2)),
    "hessian, compiled": lambda f: jax.jit(jax.hessian(loss(f), (0, 1, 2))),
    "jacrev of jacrev": lambda f: jax.jacrev(jax.jacrev(loss(f), (0, 1))),
    "jacfwd": lambda f: jax.jacfwd(f, (0, 1, 2)),
    "jvp": lambda f: lambda *qkv: jax.jvp(f, qkv, qkv[::-1]),
    "linearize": lambda f: lambda *qkv: jax.linearize(f, *qkv)[1](*qkv[::-1]),
    "grad of a compiled grad": lambda f: jax.grad(lambda *x: jnp.sum(jax.jit(jax.grad(loss(f)))(*x) ** 2)),
    "checkpoint": lambda f: jax.grad(lambda *x: jnp.sum(jax.grad(loss(jax.checkpoint(f)))(*x) ** 2)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name, qkv):
    close(TRANSFORMS[name](ours)(*qkv), TRANSFORMS[name](theirs)(*qkv), 1e-4, 1e-5)


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, 1)])
def test_vmap(axes):
    """Of a Hessian times a vector, with what is captured mapped or not."""
    rng = np.random.default_rng(4)
    shapes = [(3, 2, 5, 2, 4) if a == 0 else (2, 5, 2, 4) if a is None else (2, 3, 5, 2, 4) for a in axes]
    qkv = [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]
    gains = jnp.asarray(rng.uniform(0.5, 1, (3, 2)), jnp.float32)

    def change(attend, q, k, v, gain):
        gradients = jax.grad(lambda q, gain: jnp.sum(jnp.sin(attend(q, k, v, gain))), (0, 1))
        return jax.jvp(gradients, (q, gain), (q, gain))[1]

    def fused(q, k, v, gain):
        return fovea.jax.attention(q, k, v, score_mod=lambda s, b, h, i, j: jnp.tanh(s * gain[h]))

    def with_all_scores(q, k, v, gain):
        return dense(q, k, v, lambda scores: jnp.tanh(scores * gain[:, None, None]))

    for gain_axis, gain in ((0, gains), (None, gains[0])):
        got, wanted = (jax.vmap(functools.partial(change, f), (*axes, gain_axis))(*qkv, gain) for f in (fused, with_all_scores))
        close(got, wanted, 1e-4, 1e-5)


def test_a_learned_scale(qkv):
    q, k, v = qkv

    def both(attend):
        value = lambda scale, q: jnp.sum(jnp.sin(attend(q, scale)))
        return jax.hessian(value, (0, 1))(jnp.float32(0.7), q)

    ours = lambda q, scale: fovea.jax.attention(q, k, v, scale=scale)
    theirs = lambda q, scale: dense(q, k, v, scale=scale)
    close(both(ours), both(theirs), 1e-4, 1e-5)

    def mixed(attend):
        """The first derivative is by q alone."""
        slope = jax.grad(lambda q, scale: jnp.sum(jnp.sin(attend(q, scale))))
        reverse = jax.grad(lambda scale: jnp.sum(slope(q, scale) ** 2))(jnp.float32(0.7))
        return reverse, jax.jvp(slope, (q, jnp.float32(0.7)), (v, jnp.float32(1.0)))[1]

    close(mixed(ours), mixed(theirs), 1e-4, 1e-5)


@pytest.mark.parametrize("layout", ["bs3hd", "bshd_bs2hd"])
def test_packed_projections(layout):
    rng = np.random.default_rng(5)
    q = jnp.asarray(rng.standard_normal((1, 5, 2, 4)), jnp.float32)
    whole = jnp.asarray(rng.standard_normal((1, 5, 3 if layout == "bs3hd" else 2, 2, 4)), jnp.float32)

    def fused(q, x):
        given = (x, None, None) if layout == "bs3hd" else (q, x, None)
        return fovea.jax.attention(*given, layout=layout, score_mod=softcap(2.0), mask_mod=causal)

    def with_all_scores(q, x):
        parts = [x[:, :, i] for i in range(x.shape[2])]
        return theirs(*parts) if layout == "bs3hd" else theirs(q, *parts)

    for transform in (jax.jacfwd, lambda f, n: jax.hessian(lambda *x: jnp.sum(jnp.sin(f(*x))), n)):
        close(transform(fused, (0, 1))(q, whole), transform(with_all_scores, (0, 1))(q, whole), 1e-4, 1e-5)


def test_lse_has_one(qkv):
    q, k, v = qkv

    ours = lambda q: jnp.sum(fovea.jax.attention(q, k, v, return_lse=True)[1] ** 2)
    theirs = lambda q: jnp.sum(jax.nn.logsumexp(scores_of(q, k), -1) ** 2)
    close(jax.hessian(ours)(q), jax.hessian(theirs)(q), 1e-4, 1e-5)


def test_what_has_none(qkv):
    q, k, v = qkv
    plain = lambda q: fovea.jax.attention(q, k, v)
    with pytest.raises(NotImplementedError, match="no third derivative"):
        jax.jvp(lambda q: jax.jvp(plain, (q,), (q,))[1], (q,), (q,))
    by_hand = lambda q: jnp.sum(fovea.jax.attention(q, k, v, score_mod="2 * score", score_mod_bprop="2 * grad"))
    with pytest.raises(NotImplementedError, match="bprop"):
        jax.hessian(by_hand)(q)


def test_gpus_refuse_it_when_it_is_lowered(qkv):
    change = jax.jit(lambda *qkv: jax.jvp(ours, qkv, qkv)[1])
    with pytest.raises(NotImplementedError, match="on the CPU only, not yet on GPUs"):
        change.trace(*qkv).lower(lowering_platforms=("cuda",))
    jax.jit(jax.grad(loss(ours))).trace(*qkv).lower(lowering_platforms=("cuda",))  # first derivatives are there


FIRST = {
    "scan": lambda attend, q, w: jax.lax.scan(lambda x, g: (attend(x, g), None), q, w)[0],
    "checkpoint": lambda attend, q, w: jax.lax.scan(jax.checkpoint(lambda x, g: (attend(x, g), None)), q, w)[0],
    "vmap": lambda attend, q, w: jax.vmap(attend, (None, 0))(q, w),
    "cond": lambda attend, q, w: jax.lax.cond(w[0, 0] > 0, lambda q: attend(q, w[0]), lambda q: q, q),
}


@pytest.mark.parametrize("name", FIRST)
def test_first_derivatives_run_no_tangent(name, qkv):
    """It is what is transposed, whatever stands round it; GPUs have none."""
    q, k, v = qkv

    def attend(q, gain):
        return fovea.jax.attention(q, k, v, score_mod=lambda s, b, h, i, j: s * gain[h])

    gradients = jax.jit(jax.grad(lambda q, w: jnp.sum(FIRST[name](attend, q, w) ** 2), (0, 1)))
    program = gradients.trace(q, jnp.ones((3, 2))).lower(lowering_platforms=("cuda",)).as_text()
    assert "fovea_backward" in program and "fovea_tangent" not in program


def test_no_array_of_all_scores():
    """No result of a compiled program is as large as all scores."""
    q, k, v = (jnp.zeros((1, 512, 1, 4), jnp.float32) for _ in range(3))
    change = lambda q: jax.jvp(jax.grad(lambda q: jnp.sum(fovea.jax.attention(q, k, v) ** 2)), (q,), (q,))[1]
    sizes = [eqn.outvars[0].aval.size for eqn in jax.make_jaxpr(change)(q).eqns]
    assert max(sizes) < 512 * 512
