"""The gradients of fovea.attention: against differences of the definition in double, of q, k, v and
everything captured."""

import dense_numpy as dense
import numpy as np
import pytest
from callback_value import Softcap

import fovea
from fovea import _core


B, H, S, D = 2, 2, 7, 4


@pytest.fixture
def arrays(rng):
    """In double: differences of f32 would be noise. The values are exact in f32."""
    made = [rng.standard_normal((B, H, S, D)) for _ in range(4)]
    return [x.astype(np.float32).astype(np.float64) for x in made]


SLOPES = np.array([0.5, 0.25], np.float64)
TABLE = np.arange(13, dtype=np.float64) / 8 - 0.75
CASES = {
    "none": ({}, {}),
    "causal": ({"is_causal": True}, {"mask": lambda b, h, q, k: q >= k}),
    "softcap": (
        {"score_mod": "cap * tanh(score / cap)", "scalars": {"cap": 1.5}},
        {"mod": lambda s, b, h, q, k, cap: cap * np.tanh(s / cap)},
    ),
    "alibi, causal": (
        {"score_mod": "score + slopes[h] * (k - q)", "tensors": {"slopes": SLOPES}, "is_causal": True},
        {"mod": lambda s, b, h, q, k, slopes: s + slopes[h] * (k - q), "mask": lambda b, h, q, k: q >= k},
    ),
    "relative table and temperature": (
        {"score_mod": "score / t + table[k - q + 6]", "tensors": {"table": TABLE}, "scalars": {"t": 0.7}},
        {"mod": lambda s, b, h, q, k, table, t: s / t + table[k - q + 6]},
    ),
}


def loss_of(arrays, definition, captured, sinks):
    q, k, v, weight = arrays
    mod = definition.get("mod")
    bound = None if mod is None else lambda s, b, h, i, j: mod(s, b, h, i, j, **captured)
    o, lse = dense.attention(q, k, v, mod=bound, mask=definition.get("mask"), sinks=sinks)
    return (o * weight).sum() + 0.3 * np.where(np.isfinite(lse), lse, 0).sum()


@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_differences_of_the_definition(arrays, name, with_sinks):
    options, definition = CASES[name]
    q, k, v, weight = arrays
    sinks = np.array([0.4, -0.6]) if with_sinks else None
    o, pull = fovea.vjp(q, k, v, engine="reference", sinks=sinks, **options)
    got = pull(weight, grad_lse=np.full(pull.lse.shape, 0.3))
    captured = {n: x.copy() for n, x in options.get("tensors", {}).items()}
    captured |= {n: np.array(x) for n, x in options.get("scalars", {}).items()}
    assert set(got) == {"q", "k", "v", *captured, *(["sinks"] if with_sinks else [])}
    changed = {"q": q, "k": k, "v": v, **captured, **({"sinks": sinks} if with_sinks else {})}
    for gradient, array in changed.items():
        indices = np.linspace(0, array.size - 1, min(array.size, 9)).astype(int)
        wanted = dense.central_differences(lambda: loss_of(arrays, definition, captured, sinks), array, indices)
        scale = max(1e-3, np.abs(wanted).max())
        assert np.abs(got[gradient].reshape(-1)[indices] - wanted).max() / scale < 2e-5, gradient


@pytest.mark.parametrize("name", CASES)
def test_the_cpu_engine_agrees_with_the_reference(arrays, name):
    options, _ = CASES[name]
    f32 = [x.astype(np.float32) for x in arrays]
    options = {**options, "tensors": {n: x.astype(np.float32) for n, x in options.get("tensors", {}).items()}}
    _, exact = fovea.vjp(*arrays[:3], engine="reference", **{**options, "tensors": CASES[name][0].get("tensors")})
    _, fast = fovea.vjp(*f32[:3], **options)
    wanted, got = exact(arrays[3]), fast(f32[3])
    for gradient in wanted:
        assert dense.relative_error(got[gradient], wanted[gradient]) < 6e-6, gradient


def test_only_what_is_asked_for_is_given(arrays):
    q, k, v, weight = (x.astype(np.float32) for x in arrays)
    table = TABLE.astype(np.float32)
    options = {"score_mod": "score + table[k - q + 6]", "tensors": {"table": table}}
    _, pull = fovea.vjp(q, k, v, grads=["table", "v"], **options)
    assert set(pull(weight)) == {"table", "v"}
    _, nothing = fovea.vjp(q, k, v, grads=[], **options)
    assert nothing(weight) == {}


def test_backward_from_saved_outputs(arrays):
    q, k, v, weight = (x.astype(np.float32) for x in arrays)
    o, lse = fovea.attention(q, k, v, is_causal=True, return_lse=True)
    got = fovea.attention_backward(weight, q, k, v, o, lse, is_causal=True)
    _, pull = fovea.vjp(q, k, v, is_causal=True)
    assert all(np.array_equal(got[name], gradient) for name, gradient in pull(weight).items())


def test_a_gradient_of_zero_strides(arrays):
    q, k, v, _ = (x.astype(np.float32) for x in arrays)
    o, pull = fovea.vjp(q, k, v)
    one = np.broadcast_to(np.float32(1), o.shape)  # what .sum() sends back
    dense_one = pull(np.ones_like(o))
    assert all(np.array_equal(gradient, dense_one[name]) for name, gradient in pull(one).items())


def test_an_unused_tensor_and_an_ignored_score_have_zero_gradients(arrays):
    q, k, v, weight = (x.astype(np.float32) for x in arrays)
    _, pull = fovea.vjp(q, k, v, score_mod="f32(k)", tensors={"unused": np.ones(3, np.float32)})
    got = pull(weight)
    assert not got["unused"].any() and not got["q"].any() and got["v"].any()


def test_a_tensor_that_a_callback_leaves_alone_has_a_zero_gradient(arrays):
    q, k, v, weight = (x.astype(np.float32) for x in arrays)
    one = {"score": np.ones((1, 1, 1, 1), np.float32)}
    _, pull = fovea.vjp(q, k, v, score_mod=lambda graph, score, tensors: graph.neg(score), tensors=one)
    assert pull(weight)["score"].tolist() == [[[[0.0]]]]


def test_a_tensor_of_no_dimensions(arrays):
    q, k, v, weight = (x.astype(np.float32) for x in arrays)
    _, pull = fovea.vjp(q, k, v, score_mod="score * t[]", tensors={"t": np.array(0.5, np.float32)})
    _, scalar = fovea.vjp(q, k, v, score_mod="score * t", scalars={"t": 0.5})
    assert np.allclose(pull(weight)["t"], scalar(weight)["t"], rtol=1e-5) and pull(weight)["t"].shape == ()


def test_a_hand_written_derivative_is_used(arrays):
    q, k, v, weight = (x.astype(np.float32) for x in arrays)
    _, derived = fovea.vjp(q, k, v, score_mod="2 * score")
    _, by_hand = fovea.vjp(q, k, v, score_mod="2 * score", score_mod_bprop="grad * 2")
    _, other = fovea.vjp(q, k, v, score_mod="2 * score", score_mod_bprop="grad * 4")
    assert np.allclose(derived(weight)["q"], by_hand(weight)["q"], rtol=1e-5)
    assert np.allclose(2 * derived(weight)["q"], other(weight)["q"], rtol=1e-5)


def test_a_callback_with_a_backward_that_needs_its_forward(arrays):
    q, k, v, weight = (x.astype(np.float32) for x in arrays)
    softcap, cap = Softcap(), np.full((1, 1, 1, 1), 1.5, np.float32)
    _, pull = fovea.vjp(q, k, v, score_mod=softcap.forward, score_mod_bprop=softcap.backward, tensors={"softcap": cap})
    _, text = fovea.vjp(q, k, v, score_mod="cap * tanh(score / cap)", scalars={"cap": 1.5})
    got, wanted = pull(weight), text(weight)
    assert dense.relative_error(got["q"], wanted["q"]) < 2e-6
    assert dense.relative_error(got["softcap"].reshape(()), wanted["cap"]) < 1e-5


def test_dropout_of_the_backward_is_that_of_the_forward(arrays):
    q, k, v, weight = arrays
    options = {"dropout_p": 0.4, "seed": 11, "engine": "reference"}
    o, pull = fovea.vjp(q, k, v, **options)
    got = pull(weight)["v"]
    indices = range(0, v.size, 13)
    run = lambda: (fovea.attention(q, k, v, **options) * weight).sum()  # noqa: E731
    assert np.allclose(got.reshape(-1)[list(indices)], dense.central_differences(run, v, indices), atol=1e-6)


# --- gradients of captured values whose terms cancel ---


def dense_slopes(q, k, v, slopes, weight, dtype):
    """The gradient of slopes[h] in score + slopes[h] * (k - q), with all scores in memory."""
    q, k, v, slopes, weight = (x.astype(dtype) for x in (q, k, v, slopes, weight))
    distance = (np.arange(k.shape[2])[None, :] - np.arange(q.shape[2])[:, None]).astype(dtype)
    score = (q @ k.swapaxes(2, 3)) * dtype(q.shape[3] ** -0.5) + slopes[:, None, None] * distance
    p = np.exp(score - score.max(3, keepdims=True))
    p /= p.sum(3, keepdims=True)
    grad_p = weight @ v.swapaxes(2, 3)
    return (p * (grad_p - (p * grad_p).sum(3, keepdims=True)) * distance).sum((0, 2, 3))


SLOPE = "score + slopes[h] * (k - q)"


@pytest.mark.parametrize("length, steepest", [(77, 2.0), (300, 2.0), (300, 0.1)])
def test_learned_slopes_are_as_exact_as_with_all_scores(rng, length, steepest):
    """If one key has nearly all of a row, dP and rowsum(dO * O) are nearly equal; distances multiply what is left."""
    slopes = np.linspace(steepest / 4, steepest, 4).astype(np.float32)
    errors = []
    for _ in range(6):
        q, k, v, weight = (rng.standard_normal((1, 4, length, 32)).astype(np.float32) for _ in range(4))
        _, pull = fovea.vjp(q, k, v, score_mod=SLOPE, tensors={"slopes": slopes}, grads=["slopes"])
        wanted = dense_slopes(q, k, v, slopes, weight, np.float64)
        others = (pull(weight)["slopes"], dense_slopes(q, k, v, slopes, weight, np.float32))
        errors.append([dense.relative_error(x, wanted) for x in others])
    ours, theirs = np.sqrt(np.mean(np.square(errors), 0))
    # lse, which is an f32, is large if slopes are steep: that is left.
    assert ours <= 1.5 * theirs, f"relative error {ours:.1e}; with all scores in f32 {theirs:.1e}"


def test_learned_slopes_of_bfloat16(rng):
    """O comes rounded to bfloat16: far more than what is left of dP - rowsum(dO * O)."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    slopes = np.array([0.5, 2.0], np.float32)
    q, k, v, weight = (rng.standard_normal((1, 2, 300, 32)).astype(bfloat16) for _ in range(4))
    _, pull = fovea.vjp(q, k, v, score_mod=SLOPE, tensors={"slopes": slopes}, grads=["slopes"])
    wanted = dense_slopes(q, k, v, slopes, weight, np.float64)
    assert dense.relative_error(pull(weight)["slopes"], wanted) < 1e-3


def test_slopes_from_parts_of_the_keys(rng):
    """O and lse are those of all keys; the gradients of a row's scores in one part do not add up to zero."""
    q, k, v, weight = (rng.standard_normal((2, 2, 40, 16)).astype(np.float32) for _ in range(4))
    given = {"score_mod": SLOPE, "tensors": {"slopes": np.array([0.3, 0.02], np.float32)}}
    o, lse = fovea.attention(q, k, v, return_lse=True, **given)
    whole = fovea.attention_backward(weight, q, k, v, o, lse, grads=["slopes"], **given)["slopes"]
    parts = [
        fovea.attention_backward(
            weight, q, k[:, :, at], v[:, :, at], o, lse, grads=["slopes"], k_offset=at.start, **given
        )["slopes"]
        for at in (slice(0, 13), slice(13, 40))
    ]
    assert dense.relative_error(parts[0] + parts[1], whole) < 2e-5


# --- direction=tangent as the C interface has it: bound by name, checked by name ---


LINE = 'direction=tangent b=1 h=2 sq=3 skv=4 d=5 dv=5 mod="score + w[h, k] * c" tensor="w:f32[H,Skv]" scalar="c=0.5" '


@pytest.fixture
def moved():
    rng = np.random.default_rng(1)
    shapes = {"q": (2, 3, 5), "k": (2, 4, 5), "v": (2, 4, 5), "w": (2, 4)}
    out = {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}
    out.update({f"tangent_{name}": rng.standard_normal(x.shape).astype("f") for name, x in [*out.items()]})
    return out | {"tangent_o": np.full((2, 3, 5), np.nan, "f"), "tangent_lse": np.full((2, 3), np.nan, "f")}


def forward(x, step=0.0, c=0.5):
    q, k, v, w = (x[name].astype("d") + step * x[f"tangent_{name}"] for name in ("q", "k", "v", "w"))
    scores = q @ k.swapaxes(1, 2) / 5**0.5 + w[:, None, :] * (c + step * 0.25)
    lse = np.log(np.exp(scores).sum(-1))
    return np.exp(scores - lse[..., None]) @ v, lse


def bindings(x, **changes):
    names = ("q", "k", "v", "tangent_q", "tangent_k", "tangent_v", "tangent_o", "tangent_lse")
    x["lse"] = forward(x)[1].astype("f")
    out = {name: x[name].ctypes.data for name in (*names, "lse")}
    out["tensors"] = (("w", x["w"].ctypes.data, _core.F32, (2, 4), None),)
    out["tensor_tangents"] = (("w", x["tangent_w"].ctypes.data, _core.F32, (2, 4), None),)
    out["scalar_tangents"] = (("c", 0.25),)
    return out | changes


def test_forward_mode_follows_differences(moved):
    plan = _core.Plan(_core.Problem(LINE + 'grads=""'), engine="reference")
    plan.run(**bindings(moved))
    (o, lse), (o_before, lse_before) = forward(moved, 1e-4), forward(moved, -1e-4)
    np.testing.assert_allclose(moved["tangent_o"], (o - o_before) / 2e-4, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moved["tangent_lse"], (lse - lse_before) / 2e-4, rtol=1e-5, atol=1e-6)


def test_what_is_not_named_does_not_move(moved):
    plan = _core.Plan(_core.Problem(LINE + 'grads=""'), engine="reference")
    plan.run(**bindings(moved, tensor_tangents=(), scalar_tangents=()))
    still = moved["tangent_o"].copy()
    moved["tangent_w"][:] = 0
    plan.run(**bindings(moved, scalar_tangents=(("c", 0.0),)))
    assert np.array_equal(moved["tangent_o"], still)


REFUSED = {
    "tangent_q: must not be null": {"tangent_q": 0},
    "o=0x40: is bound, but this problem has none": {"o": 64},
    "tangents.*captures no tensor 'x'": {"tensor_tangents": (("x", 64, _core.F32, (2, 4), None),)},
    r"tangent of tensor w=\[2,5\]: must have the declared extents": {
        "tensor_tangents": (("w", 64, _core.F32, (2, 5), None),)
    },
}


@pytest.mark.parametrize("text", REFUSED)
def test_errors_name_the_argument(text, moved):
    plan = _core.Plan(_core.Problem(LINE + 'grads=""'), engine="reference")
    with pytest.raises(fovea.InvalidArgument, match=text):
        plan.run(**bindings(moved, **REFUSED[text]))


def test_other_directions_have_no_tangents(moved):
    plan = _core.Plan(_core.Problem(LINE.replace("tangent", "forward")))
    with pytest.raises(fovea.InvalidArgument, match="tangents are bound, but this problem is no tangent"):
        given = bindings(moved)
        plan.run(q=64, k=64, v=64, o=64, tensors=given["tensors"], tensor_tangents=given["tensor_tangents"])


def test_engines_say_who_has_it():
    problem = _core.Problem(LINE + "grads=q")
    answer, text = _core.supported(problem)
    assert not answer and "reference can, but runs only when it is named" in text
    assert _core.supported(problem, engine="reference")[0]
    answer, text = _core.supported(problem, device="h200")
    assert not answer and "engine jit runs forwards and backwards" in text


def test_probabilities_that_dropout_leaves_may_add_up_to_one():
    # Of two keys and a sink, each with a third of a row, dropout at 2/3 mostly leaves one or none. One counts as all of
    # the row then, but its gradients do not add up to nothing: the sink has a part of them.
    random = np.random.default_rng(5)
    q, k, v = np.zeros((1, 1, 64, 8), np.float32), *random.standard_normal((2, 1, 1, 2, 8)).astype(np.float32)
    options = {"score_mod": "score + t[h]", "tensors": {"t": np.zeros(1, np.float32)}, "sinks": np.zeros(1, np.float32)}
    weight = random.standard_normal((1, 1, 64, 8)).astype(np.float32)
    grads = [
        fovea.vjp(q, k, v, **options, dropout_p=2 / 3, seed=3, engine=engine)[1](weight)["t"]
        for engine in ("cpu", "reference")
    ]
    np.testing.assert_allclose(*grads, rtol=1e-5)
