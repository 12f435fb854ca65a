"""Arrays of every kind on the host: views without copies, buffers, DLPack, foreign libraries; what is
refused."""

import array
import ctypes

import dense_numpy as dense
import numpy as np
import pytest

import fovea
from fovea import _core
from fovea._arrays import host_array


@pytest.fixture
def qkv(rng):
    return [rng.standard_normal((2, 3, 8, 4)).astype(np.float32) for _ in range(3)]


class OnlyDlpack:
    """An array of some library: all that is known is DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_dlpack_and_buffers_are_read_in_place(qkv):
    wanted = fovea.attention(*qkv)
    assert np.array_equal(fovea.attention(*map(OnlyDlpack, qkv)), wanted)
    assert np.array_equal(fovea.attention(*map(memoryview, qkv)), wanted)
    for view in (OnlyDlpack(qkv[0]), memoryview(qkv[0])):
        seen = host_array("q", view)
        assert seen.pointer == qkv[0].ctypes.data and seen.shape == qkv[0].shape and seen.dtype == "f32"
        assert seen.strides == tuple(stride // 4 for stride in qkv[0].strides)


def test_read_only_arrays_are_taken(qkv):
    for x in qkv:
        x.flags.writeable = False
    assert np.isfinite(fovea.attention(*qkv)).all()


def test_captured_arrays_of_other_kinds(qkv):
    slopes = array.array("f", [0.5, 0.25, 0.125])
    got = fovea.attention(*qkv, score_mod="score + slopes[h] * (k - q)", tensors={"slopes": slopes})
    other = (ctypes.c_float * 3)(0.5, 0.25, 0.125)
    assert np.array_equal(got, fovea.attention(*qkv, score_mod="score + s[h] * (k - q)", tensors={"s": other}))


def test_packed_qkv_is_three_views(rng):
    packed = rng.standard_normal((2, 8, 3, 3, 4)).astype(np.float32)  # b s (3) h d
    q, k, v = (packed[:, :, i] for i in range(3))
    assert not q.flags.c_contiguous
    got = fovea.attention(q, k, v, layout="bshd", is_causal=True)
    apart = [np.ascontiguousarray(x) for x in (q, k, v)]
    assert np.array_equal(got, fovea.attention(*apart, layout="bshd", is_causal=True))


def test_broadcast_and_transposed_views(qkv, rng):
    q, k, v = qkv
    one = np.broadcast_to(k[:1], k.shape)  # a batch stride of zero
    assert np.array_equal(fovea.attention(q, one, v), fovea.attention(q, np.ascontiguousarray(one), v))
    turned = np.asfortranarray(q)
    assert dense.relative_error(fovea.attention(turned, k, v), fovea.attention(q, k, v)) < 1e-6
    bias = rng.standard_normal((8, 8, 3)).astype(np.float32).transpose(2, 0, 1)
    got = fovea.attention(q, k, v, score_mod="score + bias[h, q, k]", tensors={"bias": bias})
    dense_bias = np.ascontiguousarray(bias)
    assert np.array_equal(
        got, fovea.attention(q, k, v, score_mod="score + bias[h, q, k]", tensors={"bias": dense_bias})
    )
    constant = np.broadcast_to(np.float32(2), (3,))  # every stride is zero
    got = fovea.attention(q, k, v, score_mod="score * c[h]", tensors={"c": constant})
    assert np.array_equal(
        got, fovea.attention(q, k, v, score_mod="score * c[h]", tensors={"c": np.full(3, 2, np.float32)})
    )


def test_new_data_in_the_same_shape_gives_new_results_from_the_same_plan(qkv):
    text = "score * c[h] + 0.123"
    call = lambda c: fovea.attention(*qkv, score_mod=text, tensors={"c": np.array(c, np.float32)})  # noqa: E731
    first = call([1, 2, 3])
    before = fovea.cache_stats()["builds"]
    second = call([3, 2, 1])
    assert fovea.cache_stats()["builds"] == before and not np.array_equal(first, second)
    assert np.array_equal(first, call([1, 2, 3]))


def test_a_scalar_s_new_value_and_a_new_literal_build_nothing(qkv):
    fovea.attention(*qkv, score_mod="score * 0.377 * t", scalars={"t": 1.0})
    before = fovea.cache_stats()["builds"]
    fovea.attention(*qkv, score_mod="score * 0.377 * t", scalars={"t": 2.0})
    fovea.attention(*qkv, score_mod="score * 0.378 * t", scalars={"t": 2.0})
    fovea.attention(*(x[:1, :, :5] for x in qkv), score_mod="score * 0.378 * t", scalars={"t": 2.0}, scale=0.3)
    assert fovea.cache_stats()["builds"] == before


def test_bfloat16_and_half_are_seen():
    import ml_dtypes

    assert host_array("x", np.zeros(2, ml_dtypes.bfloat16)).dtype == "bf16"
    assert [host_array("x", np.zeros(2, t)).dtype for t in ("f2", "f4", "f8", "i4", "i8", "u1", "?")] == [
        "f16", "f32", "f64", "i32", "i64", "u8", "bool"]  # fmt: skip


@pytest.mark.parametrize(
    "bad, text",
    [
        ([[1.0]], "q: list; must be an array on the host"),
        (3.5, "q: float; must be an array on the host"),
        (np.zeros((2, 3, 8, 4), np.complex64), "q: elements of type complex64"),
        (np.zeros((2, 3, 8, 4), np.int32), "q: i32; must be one of f32, f16, bf16, f64"),
        (np.zeros((2, 3, 8, 4), ">f4"), "q: elements in foreign byte order"),
        (np.zeros((3, 8, 4), np.float32), "q: 3 dimensions [3, 8, 4]; must be 4, as layout bhsd has"),
        (
            np.zeros((2, 3, 8, 4), np.dtype([("x", "f4"), ("y", "i2")]))["x"],
            "must be whole elements of 4 bytes",
        ),
    ],
)
def test_what_is_no_array_for_us_is_refused(qkv, bad, text):
    with pytest.raises(fovea.InvalidArgument, match="q[ :]") as error:
        fovea.attention(bad, *qkv[1:])
    assert text in str(error.value)


def test_a_device_array_is_refused():
    class OnGpu:
        def __dlpack__(self, **options):
            raise BufferError("on a GPU")

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(fovea.Error):
        fovea.attention(OnGpu(), OnGpu(), OnGpu())


def test_the_core_takes_pointers():
    x = np.ones((1, 1, 4, 8), np.float32)
    out = np.full_like(x, np.nan)
    plan = _core.Plan(_core.Problem("sq=4 d=8"))
    plan.run(x.ctypes.data, x.ctypes.data, x.ctypes.data, (out.ctypes.data, (32, 32, 8, 1)), threads=1, lse=None)
    assert np.array_equal(out, x) and plan.engine == "cpu" and plan.device == "cpu"
    assert plan.workspace((1, 1, 1, 8, 8, 8, 8)) > 0 and "sq=4 d=8" in repr(plan)
    out[:] = np.nan
    plan.run(q=x.ctypes.data, k=x.ctypes.data, v=x.ctypes.data, o=out.ctypes.data, sizes=(1, 1, 1, 2, 2, 8, 8))
    assert np.array_equal(out[0, 0, :2], x[0, 0, :2]) and np.isnan(out[0, 0, 2:]).all()


@pytest.mark.parametrize(
    "keywords, text",
    [
        ({"streem": 1}, "run() has no 'streem'; there are: q, k, v"),
        ({"q": "x"}, "q is 'x'; it must be a pointer or (pointer, strides)"),
        ({"q": (1, (1, 2))}, "q: there must be 4 strides, got 2"),
        ({"q": (1, [1, 2, 3, 4])}, "it must be a tuple of strides"),
        ({"lse": 1.5}, "lse is 1.5; it must be an address"),
        ({"threads": -1}, "threads is -1; it must be 1 or more"),
        ({"q_offset": 2**40}, "q_offset is 1099511627776; it must fit 32 bits"),
        ({"seed": "x"}, "seed must be an integer"),
        ({"scale": "x"}, "scale is 'x'; it must be a number"),
        ({"sizes": (1, 2)}, "sizes is (1, 2); it must be (b, h, hkv"),
        ({"tensors": 3}, "tensors is 3; it must be a sequence of tuples"),
        ({"tensors": [("t", 1)]}, "it must be (name, pointer, dtype, extents, strides)"),
        ({"tensors": [(1, 1, 1, (), ())]}, "tensors is 1; it must be a text"),
        ({"scalars": [("x",)]}, "it must be (name, value)"),
        ({"scalars": [("x", "y")]}, "x is 'y'; it must be a number"),
        ({"q": 0, "k": 0, "v": 0, "o": 0}, "q: must not be null"),
    ],
)
def test_the_core_names_what_it_refuses(keywords, text):
    plan = _core.Plan(_core.Problem("sq=4 d=8"))
    with pytest.raises(fovea.InvalidArgument) as error:
        plan.run(**keywords)
    assert text in str(error.value)
