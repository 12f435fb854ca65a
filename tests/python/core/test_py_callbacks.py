"""Callbacks as the recorder sees them: what they capture, state between forward and backward, and every refusal."""

import functools
import threading

import numpy as np
import pytest
from callback_value import Softcap, evaluate, program_of

import fovea
from fovea.recorder import data_type, is_callback, record


def test_broadcast_tensors_become_loads():
    shapes = {"per_head": (1, 4, 1, 1), "per_row": (2, 1, 8, 1), "full": (2, 4, 8, 6), "one": (1,), "zero_d": ()}
    tensors = {name: np.zeros(shape, np.float16) for name, shape in shapes.items()}

    def callback(graph, score, t):
        for one in t.values():
            score = graph.add(a=score, b=one)
        return score

    recorded = record(callback, tensors=tensors, sizes=(2, 4, 8, 6))
    assert (
        recorded.mod
        == "(((((score + per_head[0, h, 0, 0]) + per_row[b, 0, q, 0]) + full[b, h, q, k]) + one[0]) + zero_d[])"
    )
    declared = {one.name: (one.dtype, one.extents) for one in recorded.captures}
    assert declared["per_row"] == ("f16", ("B", "1", "Sq", "1")) and declared["full"][1] == ("B", "H", "Sq", "Skv")
    assert declared["zero_d"] == ("f16", ())
    assert record(callback, tensors=tensors).captures[0].extents == ("1", "4", "1", "1")


def test_names_that_formulas_cannot_have_are_changed():
    tensors = {
        "q": np.ones((1, 1, 1, 1), np.float32),
        "my-bias": np.ones((1, 1, 1, 1), np.float32),
        "v0": np.ones((1,), np.float32),
    }

    def callback(graph, score, t):
        return graph.add(graph.mul(score, t["q"]), graph.mul(t["my-bias"], t["v0"]))

    recorded = record(callback, tensors=tensors)
    assert [(one.key, one.name) for one in recorded.captures] == [
        ("q", "t_q"),
        ("my-bias", "my_bias"),
        ("v0", "t_v0"),
    ]
    assert evaluate(callback, 2.0, tensors=tensors) == 3.0


def test_only_what_is_used_is_captured():
    tensors = {"a": np.ones((1,), np.float32), "b": np.ones((1,), np.float32)}
    assert [one.key for one in record(lambda g, s, t: g.mul(s, t["b"]), tensors=tensors).captures] == ["b"]


def test_a_long_chain_stays_a_short_text():
    def callback(graph, score, tensors):
        for _ in range(500):
            score = graph.add(score, graph.sigmoid(score))
        return score

    text = record(callback).mod
    assert len(text) < 40000
    assert fovea.Program(f'mod="{text}"').mod
    doubling = functools.reduce(lambda f, _: (lambda g, s, t: g.gelu(f(g, s, t))), range(12), lambda g, s, t: s)
    assert len(record(doubling).mod) < 4000


def test_tensors_of_the_graph():
    scale = np.full((1, 1, 1, 1), 2.0, np.float32)
    by_name = lambda g, s, t: g.mul(
        s, g.tensor(dim=[1, 1, 1, 1], stride=[1] * 4, data_type=data_type.FLOAT, name="scale")
    )  # noqa: E731
    assert evaluate(by_name, 3.0, tensors={"scale": scale}) == 6.0
    assert evaluate(lambda g, s, t: g.mul(s, g.tensor_like(scale)), 3.0) == 6.0
    assert evaluate(lambda g, s, t: g.mul(s, g.tensor_like(t["scale"])), 3.0, tensors={"scale": scale}) == 6.0
    recorded = record(lambda g, s, t: g.mul(s, g.tensor_like(t["scale"])), tensors={"scale": scale})
    assert recorded.captures[0].tensor is scale


def test_a_stateful_callback_whatever_was_called_before():
    cap = {"softcap": np.full((1, 1, 1, 1), 5.0, np.float32)}
    softcap = Softcap()
    first = record(softcap.forward, softcap.backward, tensors=cap)
    record(softcap.forward, tensors=cap)  # another forward in between
    record(lambda g, s, t: softcap.forward(g, g.neg(s), t), tensors=cap)
    assert record(softcap.forward, softcap.backward, tensors=cap) == first
    assert program_of(first).check_bprop()[0] < 1e-6


def test_a_stateful_callback_from_many_threads():
    cap = {"softcap": np.full((1, 1, 1, 1), 5.0, np.float32)}
    softcap, texts, failures = Softcap(), set(), []

    def work():
        try:
            for _ in range(50):
                recorded = record(softcap.forward, softcap.backward, tensors=cap)
                texts.add((recorded.mod, recorded.bprop))
        except fovea.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures and len(texts) == 1


def test_a_callback_may_import_cudnn():
    """As Transformer Engine's do. If it is not installed, nothing of the stand-in is left behind."""
    import importlib.util
    import sys

    def callback(graph, score, tensors):
        import cudnn

        return graph.neg(score, compute_data_type=cudnn.data_type.FLOAT).set_data_type(cudnn.data_type.FLOAT)

    assert record(callback).mod == "(-score)"
    assert "cudnn" not in sys.modules or importlib.util.find_spec("cudnn")
    with pytest.raises(ZeroDivisionError):
        record(lambda g, s, t: 1 / 0)
    assert "cudnn" not in sys.modules or importlib.util.find_spec("cudnn")


def test_what_is_a_callback():
    class Object:
        def __call__(self, graph, score, tensors): ...

        def method(self, graph, score, tensors): ...

    assert (
        is_callback(Object())
        and is_callback(Object().method)
        and is_callback(functools.partial(lambda a, b, c, d: d, 1))
    )
    assert (not is_callback(lambda score, b, h, q, k: score) and not is_callback("score") and not is_callback(max))


CAP = {"x": np.ones((1, 3, 1, 1), np.float32)}
STALE = []


@pytest.mark.parametrize(
    "callback, options, text",
    [
        (lambda g, s, t: g.matmul(s, s), {}, "graph.matmul is not there for a modifier; there are: abs, add,"),
        (lambda g, s, t: s.reshape(), {}, "a tensor of the recorder has no 'reshape'"),
        (lambda g, s, t: 3.0, {}, "score_mod: must return a tensor of the graph, got float"),
        (lambda g, s, t: None, {}, "score_mod: must return a tensor of the graph, got NoneType"),
        (lambda g, s, t: g.add(s, "x"), {}, "graph.add: b must be a tensor of this graph, got str"),
        (lambda g, s, t: g.add(s), {}, "graph.add takes a and b"),
        (lambda g, s, t: g.add(s, s, s), {}, "graph.add takes a and b"),
        (lambda g, s, t: g.add(s, c=s), {}, "graph.add takes a and b"),
        (lambda g, s, t: g.gen_index(s, 4), {}, "axis is 4; the score has the axes 0 to 3"),
        (
            lambda g, s, t: g.tanh(s, compute_data_type=data_type.HALF),
            {},
            "compute_data_type is HALF; formulas compute in FLOAT",
        ),
        (lambda g, s, t: g.relu(s, compute_data_type="BFLOAT16"), {}, "compute_data_type is BFLOAT16"),
        (lambda g, s, t: g.swish(s, compute_data_type="HALF"), {}, "compute_data_type is HALF"),
        (lambda g, s, t: s.set_data_type("FP8_E4M3"), {}, "data_type is FP8_E4M3"),
        (lambda g, s, t: s.set_output(True), {}, "nothing of it can be an output"),
        (lambda g, s, t: s.set_dim([1]), {"sizes": (1, 2, 3, 4)}, "this tensor has the extents [1, 2, 3, 4]"),
        (lambda g, s, t: g.neg(s).get_dim(), {}, "are not known while a callback is recorded"),
        (
            lambda g, s, t: g.tensor(name="y"),
            {"tensors": CAP},
            "has no data; pass it as score_mod_tensors['y'] (there are: 'x')",
        ),
        (lambda g, s, t: s, {"tensors": CAP, "sizes": (1, 2, 3, 4)}, "extent 3 along axis 1; must be 1 or H = 2"),
        (
            lambda g, s, t: s,
            {"tensors": {"x": np.ones(3)}},
            "shape [3]; must have four extents that broadcast",
        ),
        (lambda g, s, t: s, {"tensors": {"x": 1.0}}, "tensors['x']: must be a tensor"),
        (lambda g, s, t: s, {"tensors": {"x": np.ones(1, np.complex64)}}, "elements of type complex64"),
        (lambda g, s, t: (STALE.append(s), g.add(s, STALE[0]))[1], {}, "made in another recording"),
        (lambda g, s, t: g.add(s, 2**40), {}, "does not fit 32 bits"),
    ],
)
def test_every_refusal(callback, options, text):
    if "another recording" in text:
        record(callback)
    with pytest.raises(fovea.InvalidArgument) as error:
        record(callback, **options)
    assert text in str(error.value)
