"""Every mistake a caller of fovea.attention can make is an error that names the argument, its value and the rule; those that
fovea.torch and fovea.jax share: test_py_request.py."""

import numpy as np
import pytest

import fovea

B, H, S, D = 2, 4, 8, 16
X = np.ones((B, H, S, D), np.float32)
CAP = fovea.formula("score * c", scalars={"c": "f32"})
TABLE = fovea.formula("score + t[h]", tensors={"t": "f32[H]"})


@pytest.mark.parametrize(
    "options, text",
    [
        ({"v": X.astype(np.float64)}, "v: f64; must be f32, as q is"),
        ({"scale": float("nan")}, "scale=nan: must be a finite number"),
        ({"dropout_p": -0.1}, "dropout_p=-0.1"),
        ({"dropout_p": "x"}, "dropout_p='x': must be at least 0 and below 1"),
        ({"scale": "x"}, "scale='x': must be a finite number"),
        ({"q_offset": 1.5}, "q_offset: must be one integer per sequence, got float64 []"),
        ({"seed": "x", "dropout_p": 0.5}, "seed must be an integer"),
        ({"score_mod": "score", "tensors": 3}, "tensors: must be a dict of names, got int"),
        ({"score_mod": "score * c", "scalars": {"c": np.ones(2)}}, "scalars['c']: must be a number, got array([1., 1.])"),
        ({"score_mod": "score * c", "scalars": {"c": 2**40}}, "'c' is declared i32"),
        ({"q": X[:, :, ::-1]}, "strides must be 0 or more"),
        ({"window_size": (1, 2, 3)}, "window_size=(1, 2, 3): must be (left, right)"),
        ({"window_size": (-2, 0)}, "window_size=(-2, 0)"),
        ({"window_size": (1.5, 0)}, "window_size=(1.5, 0)"),
        ({"sinks": np.zeros(H)}, "sinks: f64 with strides [1]; must be f32 and dense"),
        ({"sinks": np.zeros(2 * H, np.float32)[::2]}, "sinks: f32 with strides [2]"),
        ({"seq_lens": np.array([1, 99])}, "99"),
        ({"seq_lens": np.array([1, 2**40])}, "seq_lens: has values that do not fit 32 bits"),
        ({"mask_mod": np.ones((S, S), bool)}, "got ndarray; capture an array by name, as in mask_mod='m[q, k]'"),
        ({"score_mod": "scor + 1"}, "unknown name 'scor'; did you mean 'score'?"),
        ({"score_mod": "score +"}, "mod"),
        ({"score_mod": lambda score, b, h, q, k: score}, "must be a formula text, a fovea.Program or a callback"),
        ({"mask_mod": "score > 0"}, "'score' can't be used in a mask"),
        ({"mask_mod": 7}, "mask_mod: must be a formula text of positions"),
        ({"score_mod": "score", "score_mod_bprop": 3}, "score_mod_bprop: must be a formula text of score and grad"),
        ({"score_mod": lambda graph, score, tensors: score, "scalars": {"c": 1.0}}, "scalars: a callback (graph, score, tensors)"),
        ({"seq_lens": (None, [3, -1])}, "seq_lens[1]=-1 of keys: must lie in 0"),
        ({"score_mod": "score + t[h]"}, "unknown tensor 't' (give it as tensors={'t': ...})"),
        ({"score_mod": CAP, "scalars": {"c": "x"}}, "scalars['c']: must be a number, got 'x'"),
        ({"score_mod": CAP, "scalars": {"c": True}}, "scalars['c']: must be a number, got True"),
        ({"score_mod": TABLE, "tensors": {"t": np.ones(H)}}, "tensors['t']: f64; must be f32, as the program declares"),
        ({"score_mod": TABLE, "tensors": {"t": np.ones(3, np.float32)}}, "must have the declared extents [4]"),
        ({"score_mod": TABLE, "tensors": {"t": [1.0] * H}}, "tensors['t']: list; must be an array on the host"),
        (
            {
                "score_mod": TABLE,
                "mask_mod": fovea.formula("t[0] > 0", tensors={"t": "f32[4]"}),
                "tensors": {"t": np.ones(4, np.float32)},
            },
            "two formulas declare the tensor 't'",
        ),
        ({"score_mod": "score + t[q]", "tensors": {"t": np.ones(5, np.float32)}}, "must cover offset + length = 8"),
        ({"score_mod": "score + t[h]", "tensors": {"t": np.ones(H)}}, "f64"),
        ({"engine": "cudann"}, "cudann"),
        ({"threads": -3}, "threads is -3"),
        ({"h_global": 2}, "h_global"),
    ],
)
def test_a_mistake_is_named(options, text):
    arguments = {"q": X, "k": X, "v": X, **options}
    with pytest.raises(fovea.Error) as error:
        fovea.attention(**arguments)
    assert text in str(error.value)


def test_starts_beyond_the_rows():
    x = np.ones((5, 2, 4), np.float32)
    with pytest.raises(ValueError, match="cu_seqlens|start"):
        fovea.attention(x, x, x, layout="thd", cu_seqlens=np.array([0, 9]))


def test_double_needs_the_reference_by_name():
    x = X.astype(np.float64)
    with pytest.raises(fovea.Unsupported, match="use engine reference for f64") as error:
        fovea.attention(x, x, x)
    assert isinstance(error.value, NotImplementedError)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"grad_o": X[:1]}, "grad_o: f32[1, 4, 8, 16]; must be f32[2, 4, 8, 16]"),
        ({"grad_o": X.astype(np.float16)}, "grad_o: f16"),
        ({"o": X[..., :3]}, "o: f32[2, 4, 8, 3]"),
        ({"lse": np.zeros((B, H, S))}, "lse: f64[2, 4, 8]; must be f32[2, 4, 8]"),
        ({"lse": np.zeros((B, S, H), np.float32).transpose(0, 2, 1)}, "lse: strides [32, 1, 4]; must be dense"),
        ({"grad_lse": np.zeros(3, np.float32)}, "grad_lse: f32[3]"),
        ({"grads": ["q", "w"]}, "grads: 'w' has no gradient here; must be some of q, k, v"),
        ({"grads": ["sinks"]}, "grads: 'sinks' has no gradient here"),
    ],
)
def test_a_mistake_of_the_backward_is_named(change, text):
    arguments = {"grad_o": X, "q": X, "k": X, "v": X, "o": X, "lse": np.zeros((B, H, S), np.float32), **change}
    with pytest.raises(fovea.InvalidArgument) as error:
        fovea.attention_backward(**arguments)
    assert text in str(error.value)


def test_whole_numbers_have_no_gradient():
    ids = np.arange(S, dtype=np.int32)
    with pytest.raises(fovea.InvalidArgument, match="'ids' has no gradient here"):
        fovea.vjp(X, X, X, score_mod="score + ids[k]", tensors={"ids": ids}, grads=["ids"])


def test_an_unknown_option_is_an_error():
    with pytest.raises(TypeError, match="is_casual"):
        fovea.attention(X, X, X, is_casual=True)
    with pytest.raises(TypeError, match="is_casual"):
        fovea.vjp(X, X, X, is_casual=True)


def test_the_families_of_errors():
    assert issubclass(fovea.InvalidArgument, fovea.Error) and issubclass(fovea.InvalidArgument, ValueError)
    assert issubclass(fovea.Unsupported, NotImplementedError) and issubclass(fovea.DeviceError, RuntimeError)
    assert issubclass(fovea.OutOfMemory, MemoryError) and issubclass(fovea.InternalError, RuntimeError)
    assert fovea.InvalidArgument.__module__ == "fovea" and fovea.Error.__doc__
