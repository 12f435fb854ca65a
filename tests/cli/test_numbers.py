"""What `run --dump` writes, against attention written a second time in NumPy."""
import numpy as np
import pytest

from attention import backward, dropout_factors, forward


@pytest.fixture
def dumped(fovea, tmp_path):
    """dumped(line) runs it on the reference engine and gives back every array as double."""

    def run_and_read(line):
        fovea("run", line, "--engine", "reference", "--dump", tmp_path)
        arrays = {path.stem: np.load(path) for path in tmp_path.glob("*.npy")}
        for name, array in arrays.items():
            if array.dtype == np.uint16:  # bf16: the upper half of an f32
                arrays[name] = (array.astype(np.uint32) << 16).view(np.float32)
        return {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in arrays.items()}

    return run_and_read


def close(got, expected, limit=2e-6):
    assert got.shape == expected.shape
    norm = np.linalg.norm(expected)
    assert np.linalg.norm(got - expected) <= limit * norm, np.linalg.norm(got - expected) / norm


def positions(queries, keys):
    return np.arange(queries)[:, None], np.arange(keys)[None, :]


def test_plain_attention_forward_and_backward(dumped):
    a = dumped("b=2 h=3 sq=9 skv=14 d=5 dv=7 direction=both")
    assert set(a) == {"q", "k", "v", "o", "lse", "do", "dq", "dk", "dv"}
    assert a["o"].shape == (2, 3, 9, 7)
    for b in range(2):
        for h in range(3):
            q, k, v = (a[name][b, h] for name in "qkv")
            result = forward(q, k, v, lambda s: s, True, 5**-0.5)
            close(a["o"][b, h], result[0])
            close(a["lse"][b, h], result[1])
            dq, dk, dv, _ = backward(q, k, v, np.ones_like, 5**-0.5, result, a["do"][b, h])
            close(a["dq"][b, h], dq, 6e-6)
            close(a["dk"][b, h], dk, 6e-6)
            close(a["dv"][b, h], dv, 6e-6)


def test_softcap_with_slopes_sinks_and_shared_heads(dumped):
    a = dumped('b=2 h=4 hkv=2 sq=11 d=6 layout=bshd mask=causal sink=1 dlse=1 scale=0.9 '
               'mod="cap*tanh(score/cap) + slopes[h]*(k-q)" scalar="cap=2" tensor="slopes:f32[H]" '
               "grads=q,k,v,slopes,cap,sink direction=both")
    i, j = positions(11, 11)
    cap, totals = 2.0, {name: np.zeros_like(a[name]) for name in ("dk", "dv", "d_slopes", "d_cap", "d_sink")}
    for b in range(2):
        for h in range(4):
            g = h // 2
            q, k, v = a["q"][b, :, h], a["k"][b, :, g], a["v"][b, :, g]
            result = forward(q, k, v, lambda s: cap * np.tanh(s / cap) + a["slopes"][h] * (j - i), i >= j,
                             float(np.float32(0.9)), a["sink"][h])
            o, lse, raw, _ = result
            close(a["o"][b, :, h], o)
            close(a["lse"][b, h], lse)
            do, dlse = a["do"][b, :, h], a["dlse"][b, h]
            dq, dk, dv, ds = backward(q, k, v, lambda s: 1 - np.tanh(s / cap) ** 2, float(np.float32(0.9)), result,
                                      do, dlse)
            close(a["dq"][b, :, h], dq, 6e-6)
            t = raw / cap
            totals["dk"][b, :, g] += dk
            totals["dv"][b, :, g] += dv
            totals["d_slopes"][h] += (ds * (j - i)).sum()
            totals["d_cap"] += (ds * (np.tanh(t) - t * (1 - np.tanh(t) ** 2))).sum()
            totals["d_sink"][h] += (np.exp(a["sink"][h] - lse) * (dlse - (do * o).sum(axis=1))).sum()
    for name, expected in totals.items():
        close(a[name], expected, 6e-6)


def test_dropout_is_the_portable_philox(dumped):
    a = dumped("b=2 h=2 sq=6 skv=10 d=4 dropout=0.3 seed=12345678901 offset=9 b_offset=1 direction=both")
    for b in range(2):
        for h in range(2):
            factors = dropout_factors(0.3, 12345678901, 9, (b + 1) * 2 + h, 6, 10)
            q, k, v = (a[name][b, h] for name in "qkv")
            result = forward(q, k, v, lambda s: s, True, 0.5, factors=factors)
            close(a["o"][b, h], result[0])
            dq, dk, dv, _ = backward(q, k, v, np.ones_like, 0.5, result, a["do"][b, h], factors=factors)
            close(a["dq"][b, h], dq, 6e-6)
            close(a["dk"][b, h], dk, 6e-6)
            close(a["dv"][b, h], dv, 6e-6)


def test_packed_sequences_with_padding(dumped):
    a = dumped("h=2 d=4 layout=thd cu_q=0,5,12 cu_k=0,4,11 qlens=3,7 klens=4,0 mask=causal_bottom_right direction=both")
    assert a["o"].shape == (12, 2, 4) and a["lse"].shape == (2, 12)
    i, j = positions(3, 4)
    for h in range(2):
        q, k, v = a["q"][:3, h], a["k"][:4, h], a["v"][:4, h]
        result = forward(q, k, v, lambda s: s, i + 1 >= j, 0.5)
        close(a["o"][:3, h], result[0])
        close(a["lse"][h, :3], result[1])
        dq, dk, dv, _ = backward(q, k, v, np.ones_like, 0.5, result, a["do"][:3, h])
        close(a["dq"][:3, h], dq, 6e-6)
        close(a["dk"][:4, h], dk, 6e-6)
        close(a["dv"][:4, h], dv, 6e-6)
    for name in ("o", "dq"):  # padding, and a sequence without keys
        assert not a[name][3:].any()
    assert not a["dk"][4:].any() and not a["dv"][4:].any()
    assert (a["lse"][:, 3:] == -np.inf).all()


@pytest.mark.parametrize("dtype, limit", [("bf16", 6e-3), ("f16", 8e-4)])
def test_half_precision_is_rounded_once(dumped, dtype, limit):
    a = dumped(f"h=2 sq=9 d=8 dtype={dtype} layout=sbhd klens=6 row_max=1 max_logit=1 direction=both")
    for h in range(2):
        q, k, v = (a[name][:, 0, h] for name in "qkv")
        keep = np.arange(9)[None, :] < 6
        o, lse, raw, _ = forward(q, k, v, lambda s: s, keep, 8**-0.5)
        close(a["o"][:, 0, h], o, limit)
        close(a["lse"][0, h], lse)
        close(a["row_max"][0, h], raw[:, :6].max(axis=1))
        assert a["max_logit"][h] == a["row_max"][0, h].max()
        assert not a["dk"][6:, 0, h].any()


def test_captured_data_are_what_the_declaration_asks_for(dumped):
    a = dumped('b=2 h=3 sq=40 d=2 mask="doc[b,q]==doc[b,k]" mod="score + t[h,i[k]] + u[q]" tensor="doc:i32[B,Sq]=docs(4)" '
               'tensor="t:f32[H,6]=uniform(2,3)" tensor="i:i64[Skv]" tensor="u:f16[Sq]=normal(0.01)"')
    assert (np.diff(a["doc"]) >= 0).all() and a["doc"].max() <= 3 and a["doc"].dtype == np.int32
    assert (a["t"] >= 2).all() and (a["t"] < 3).all()
    assert a["i"].min() >= 0 and 3 <= a["i"].max() <= 5  # below the extent that it indexes
    assert 0.003 < a["u"].std() < 0.03


def test_data_can_come_from_a_file(dumped, tmp_path):
    bias = np.random.default_rng(1).normal(size=(9, 9)).astype(np.float32)
    np.save(tmp_path / "given.npy", bias)
    a = dumped(f'sq=9 d=4 mod="score + bias[q,k]" tensor="bias:f32[Sq,Skv]={tmp_path}/given.npy" lse=1')
    assert (a["bias"] == bias).all()
    q, k, v = (a[name][0, 0] for name in "qkv")
    close(a["o"][0, 0], forward(q, k, v, lambda s: s + bias, True, 0.5)[0])
