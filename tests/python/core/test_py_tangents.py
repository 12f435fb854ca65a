"""direction=tangent as the C interface has it: bound by name, checked by name."""

import numpy
import pytest

import fovea
from fovea import _core

LINE = 'direction=tangent b=1 h=2 sq=3 skv=4 d=5 dv=5 mod="score + w[h, k] * c" tensor="w:f32[H,Skv]" scalar="c=0.5" '


@pytest.fixture
def arrays():
    rng = numpy.random.default_rng(1)
    shapes = {"q": (2, 3, 5), "k": (2, 4, 5), "v": (2, 4, 5), "w": (2, 4)}
    out = {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}
    out.update({f"tangent_{name}": rng.standard_normal(x.shape).astype("f") for name, x in [*out.items()]})
    return out | {"tangent_o": numpy.full((2, 3, 5), numpy.nan, "f"), "tangent_lse": numpy.full((2, 3), numpy.nan, "f")}


def forward(x, step=0.0, c=0.5):
    q, k, v, w = (x[name].astype("d") + step * x[f"tangent_{name}"] for name in ("q", "k", "v", "w"))
    scores = q @ k.swapaxes(1, 2) / 5**0.5 + w[:, None, :] * (c + step * 0.25)
    lse = numpy.log(numpy.exp(scores).sum(-1))
    return numpy.exp(scores - lse[..., None]) @ v, lse


def bindings(x, **changes):
    names = ("q", "k", "v", "tangent_q", "tangent_k", "tangent_v", "tangent_o", "tangent_lse")
    x["lse"] = forward(x)[1].astype("f")
    out = {name: x[name].ctypes.data for name in (*names, "lse")}
    out["tensors"] = (("w", x["w"].ctypes.data, _core.F32, (2, 4), None),)
    out["tensor_tangents"] = (("w", x["tangent_w"].ctypes.data, _core.F32, (2, 4), None),)
    out["scalar_tangents"] = (("c", 0.25),)
    return out | changes


def test_forward_mode_follows_differences(arrays):
    plan = _core.Plan(_core.Problem(LINE + 'grads=""'), engine="reference")
    plan.run(**bindings(arrays))
    (o, lse), (o_before, lse_before) = forward(arrays, 1e-4), forward(arrays, -1e-4)
    numpy.testing.assert_allclose(arrays["tangent_o"], (o - o_before) / 2e-4, rtol=1e-5, atol=1e-6)
    numpy.testing.assert_allclose(arrays["tangent_lse"], (lse - lse_before) / 2e-4, rtol=1e-5, atol=1e-6)


def test_what_is_not_named_does_not_move(arrays):
    plan = _core.Plan(_core.Problem(LINE + 'grads=""'), engine="reference")
    plan.run(**bindings(arrays, tensor_tangents=(), scalar_tangents=()))
    still = arrays["tangent_o"].copy()
    arrays["tangent_w"][:] = 0
    plan.run(**bindings(arrays, scalar_tangents=(("c", 0.0),)))
    assert numpy.array_equal(arrays["tangent_o"], still)


REFUSED = {
    "tangent_q: must not be null": {"tangent_q": 0},
    "o=0x40: is bound, but this problem has none": {"o": 64},
    "tangents.*captures no tensor 'x'": {"tensor_tangents": (("x", 64, _core.F32, (2, 4), None),)},
    r"tangent of tensor w=\[2,5\]: must have the declared extents": {
        "tensor_tangents": (("w", 64, _core.F32, (2, 5), None),)
    },
}


@pytest.mark.parametrize("text", REFUSED)
def test_errors_name_the_argument(text, arrays):
    plan = _core.Plan(_core.Problem(LINE + 'grads=""'), engine="reference")
    with pytest.raises(fovea.InvalidArgument, match=text):
        plan.run(**bindings(arrays, **REFUSED[text]))


def test_other_directions_have_no_tangents(arrays):
    plan = _core.Plan(_core.Problem(LINE.replace("tangent", "forward")))
    with pytest.raises(fovea.InvalidArgument, match="tangents are bound, but this problem is no tangent"):
        given = bindings(arrays)
        plan.run(q=64, k=64, v=64, o=64, tensors=given["tensors"], tensor_tangents=given["tensor_tangents"])


def test_engines_say_who_has_it():
    problem = _core.Problem(LINE + "grads=q")
    answer, text = _core.supported(problem)
    assert not answer and "reference can, but runs only when it is named" in text
    assert _core.supported(problem, engine="reference")[0]
    answer, text = _core.supported(problem, device="h200")
    assert not answer and "engine jit runs forwards and backwards" in text
