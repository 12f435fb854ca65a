"""The recorder: each of cudnn's pointwise methods against NumPy."""

import math

import numpy as np
import pytest
from callback_value import evaluate

import fovea
from fovea._request import program_line
from fovea.recorder import data_type, record

POINTS = [-3.0, -1.0, -0.25, 0.0, 0.5, 1.0, 2.75]
erf = np.vectorize(math.erf)
sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
gelu = lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))  # noqa: E731
gelu_tanh = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))  # noqa: E731


UNARY = {
    "tanh": np.tanh, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "erf": erf, "abs": np.abs, "neg": np.negative, "ceil": np.ceil, "floor": np.floor,
    "reciprocal": lambda x: 1 / x, "relu": lambda x: np.maximum(x, 0), "sigmoid": sigmoid, "swish": lambda x: x * sigmoid(x),
    "softplus": lambda x: np.log1p(np.exp(x)), "elu": lambda x: np.where(x > 0, x, np.expm1(x)), "gelu": gelu,
    "gelu_approx_tanh": gelu_tanh, "identity": lambda x: x,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_methods_of_one_input(name):
    callback = lambda graph, score, tensors: getattr(graph, name)(
        input=score, compute_data_type=data_type.FLOAT, name="x"
    )  # noqa: E731
    for score in POINTS:
        with np.errstate(all="ignore"):
            wanted = float(UNARY[name](np.float64(score)))
        got = evaluate(callback, score)
        assert got == pytest.approx(wanted, rel=1e-6, abs=1e-7, nan_ok=True), score


BINARY = {
    "add": ("a", "b", np.add), "sub": ("a", "b", np.subtract), "mul": ("a", "b", np.multiply), "div": ("a", "b", np.divide),
    "bias": ("input", "bias", np.add), "scale": ("input", "scale", np.multiply), "add_square": ("a", "b", lambda a, b: a + b * b),
    "min": ("input0", "input1", np.minimum), "max": ("input0", "input1", np.maximum), "mod": ("input0", "input1", np.fmod),
    "pow": ("input0", "input1", np.power),
}  # fmt: skip
COMPARED = {
    "cmp_eq": np.equal, "cmp_neq": np.not_equal, "cmp_gt": np.greater, "cmp_ge": np.greater_equal, "cmp_lt": np.less,
    "cmp_le": np.less_equal,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_methods_of_two_inputs(name):
    first, second, definition = BINARY[name]
    for score in POINTS:
        for other in (-2.0, 0.75, 3.0):
            tensors = {"other": np.full((1, 1, 1, 1), other, np.float32)}
            named = lambda g, s, t: getattr(g, name)(**{first: s, second: t["other"]})  # noqa: E731
            by_place = lambda g, s, t: getattr(g, name)(s, t["other"])  # noqa: E731
            with np.errstate(all="ignore"):
                wanted = float(definition(np.float64(score), np.float64(other)))
            for callback in (named, by_place):
                got = evaluate(callback, score, tensors=tensors)
                assert got == pytest.approx(wanted, rel=1e-6, abs=1e-6, nan_ok=True), (score, other)


@pytest.mark.parametrize("name", COMPARED)
def test_comparisons_choose(name):
    def callback(graph, score, tensors):
        mask = getattr(graph, name)(input=score, comparison=tensors["limit"])
        mask.set_data_type(data_type.BOOLEAN)
        return graph.binary_select(input0=score, input1=tensors["limit"], mask=mask)

    tensors = {"limit": np.full((1, 1, 1, 1), 0.5, np.float32)}
    for score in POINTS:
        wanted = score if COMPARED[name](score, 0.5) else 0.5
        assert evaluate(callback, score, tensors=tensors) == wanted


def test_logic():
    def callback(graph, score, tensors):
        above, below = graph.cmp_gt(score, graph.tensor_scalar(-1.0)), graph.cmp_lt(score, graph.tensor_scalar(1.0))
        inside = graph.logical_and(a=above, b=below)
        odd = graph.logical_or(inside, graph.logical_not(input=above))
        return graph.identity(odd, compute_data_type=data_type.FLOAT)

    assert [evaluate(callback, score) for score in (-2.0, 0.0, 2.0)] == [1.0, 1.0, 0.0]


def test_a_comparison_may_be_computed_with():
    callback = lambda g, s, t: g.mul(s, g.cmp_gt(s, g.tensor_scalar(0.0)))  # noqa: E731
    assert evaluate(callback, 2.0) == 2.0 and evaluate(callback, -2.0) == 0.0


def test_a_number_may_be_a_mask():
    callback = lambda g, s, t: g.binary_select(s, g.tensor_scalar(9.0), mask=g.relu(s))  # noqa: E731
    assert evaluate(callback, 2.0) == 2.0 and evaluate(callback, -2.0) == 9.0


@pytest.mark.parametrize("axis, wanted", [(0, 1), (1, 2), (2, 5), (3, 3), (-1, 3)])
def test_positions(axis, wanted):
    assert evaluate(lambda g, s, t: g.gen_index(input=s, axis=axis), 0.0, at=(1, 2, 5, 3)) == wanted


def test_arithmetic_of_positions():
    def callback(graph, score, tensors):
        q, k = graph.gen_index(score, 2), graph.gen_index(score, 3)
        whole = graph.div(
            graph.add(q, q), graph.identity(k), compute_data_type=data_type.INT32
        )  # 10 / 3, towards zero
        part = graph.div(q, k)
        return graph.add(graph.add(whole, part), graph.mod(graph.sub(k, q), graph.tensor_scalar(4)))  # -2 rem 4

    assert evaluate(callback, 0.0, at=(0, 0, 5, 3)) == pytest.approx(3 + 5 / 3 - 2)


def test_a_product_of_positions_does_not_wrap():
    def callback(graph, score, tensors):
        q = graph.gen_index(score, 2)
        return graph.mul(graph.mul(q, q), graph.mul(q, q))

    program = fovea.Program(f'mod="{record(callback).mod}"')
    mod, _, _ = program.core.evaluate(0.0, (0, 0, 1000, 0), (1, 1, 1, 1001, 1))
    assert mod == pytest.approx(1e12)


def test_stored_types_convert():
    truncated = lambda g, s, t: g.identity(s).set_data_type(data_type.INT32)  # noqa: E731
    assert evaluate(truncated, 2.75) == 2.0
    assert evaluate(lambda g, s, t: g.identity(s).set_data_type(data_type.BOOLEAN), 2.75) == 1.0


def derivative(function, x, step=1e-6):
    return (function(np.float64(x + step)) - function(np.float64(x - step))) / (2 * step)


BACKWARD = {
    "tanh_backward": np.tanh, "sigmoid_backward": sigmoid, "softplus_backward": UNARY["softplus"], "elu_backward": UNARY["elu"],
    "gelu_backward": gelu, "gelu_approx_tanh_backward": gelu_tanh, "swish_backward": UNARY["swish"],
    "relu_backward": UNARY["relu"],
}  # fmt: skip


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_of_activations(name):
    bprop = lambda g, grad, t, score: getattr(g, name)(loss=grad, input=score)  # noqa: E731
    for score in (-2.0, -0.5, 0.25, 1.5):
        got = evaluate(lambda g, s, t: g.identity(s), score, bprop=bprop, grad=3.0)
        assert got == pytest.approx(3 * derivative(BACKWARD[name], score), rel=1e-4), score


@pytest.mark.parametrize("name", [name for name in UNARY if f"{name}_backward" in BACKWARD])
def test_gradients_are_those_that_fovea_derives(name):
    forward = lambda g, s, t: getattr(g, name)(s)  # noqa: E731
    backward = lambda g, grad, t, score: getattr(g, f"{name}_backward")(grad, score)  # noqa: E731
    recorded = record(forward, backward)
    error, where = fovea.Program(program_line(recorded.mod, None, recorded.bprop)).check_bprop()
    assert error < 2e-5, where


def test_relu_with_clips_and_slope():
    options = {"negative_slope": 0.1, "lower_clip": -1.0, "upper_clip": 2.0}
    forward = lambda g, s, t: g.relu(s, **options)  # noqa: E731
    backward = lambda g, grad, t, s: g.relu_backward(grad, s, **options)  # noqa: E731
    assert [evaluate(forward, x) for x in (-3.0, 0.5, 5.0)] == pytest.approx([-1.2, 0.5, 2.0])
    assert [evaluate(forward, x, bprop=backward, grad=1.0) for x in (-3.0, 0.5, 5.0)] == pytest.approx(
        [0.1, 1.0, 0.0]
    )
    leaky = lambda g, s, t: g.leaky_relu(s, negative_slope=0.25)  # noqa: E731
    leaky_back = lambda g, grad, t, s: g.leaky_relu_backward(loss=grad, input=s, negative_slope=0.25)  # noqa: E731
    assert evaluate(leaky, -4.0) == -1.0 and evaluate(leaky, -4.0, bprop=leaky_back, grad=2.0) == 0.5
    swish = lambda g, s, t: g.swish(s, swish_beta=2.0)  # noqa: E731
    swish_back = lambda g, grad, t, s: g.swish_backward(grad, s, swish_beta=2.0)  # noqa: E731
    assert evaluate(swish, 0.7) == pytest.approx(0.7 * sigmoid(1.4), rel=1e-6)
    assert evaluate(swish, 0.7, bprop=swish_back, grad=1.0) == pytest.approx(
        derivative(lambda x: x * sigmoid(2 * x), 0.7), rel=1e-5
    )


def test_every_method_of_cudnn_s_pygraph_is_there():
    """The pointwise part of cudnn's Python frontend, version 1.32, by name."""
    from fovea.recorder.graph import methods

    cudnn = (
        "add bias mul scale sqrt max min gen_index relu leaky_relu tanh elu gelu sigmoid swish softplus gelu_approx_tanh "
        "relu_backward leaky_relu_backward tanh_backward sigmoid_backward elu_backward gelu_backward softplus_backward "
        "swish_backward gelu_approx_tanh_backward erf identity exp log neg mod pow abs ceil floor rsqrt reciprocal sin cos tan "
        "logical_not logical_and logical_or sub div add_square cmp_eq cmp_neq cmp_gt cmp_ge cmp_lt cmp_le binary_select"
    )
    assert set(cudnn.split()) <= set(methods())
