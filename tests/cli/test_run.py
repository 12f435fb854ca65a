"""What `run` takes and leaves: every formula of examples/formulas.txt in every verb, and the arrays that `--dump` writes."""
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).resolve().parent.parent.parent / "examples/formulas.txt"


def formulas():
    """(name, line): a comment `# name: what it does` stands above each line."""
    name, found = "", []
    for text in FILE.read_text().splitlines():
        if text.startswith("#"):
            name = text[1:].split(":")[0].strip()
        elif text:
            found.append(pytest.param(text, id=name.replace(" ", "_")))
    return found


def small(line):
    for words, fewer in (("b=2", "b=1"), ("h=8", "h=2"), ("sq=256", "sq=40"), ("skv=256", "skv=40"), ("d=64", "d=8")):
        line = line.replace(words, fewer)
    return line


def test_there_are_at_least_ten():
    assert len(formulas()) >= 10


@pytest.mark.parametrize("line", formulas())
def test_every_verb_takes_it(fovea, refused, line, tmp_path):
    fovea("show", line, "-o", tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000
    assert fovea("show", line).stdout.count("\n") > 10
    if "mod=" in line:
        assert "d mod / d score\n" in fovea("diff", line).stdout
    else:
        assert "a mask has no derivative" in refused("diff", line)
    fovea("run", small(line) + " direction=both", "--engine", "reference", "--check")


# --- arrays: the numbers themselves are compared with NumPy in tests/python/core ---


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


def forward(q, k, v, bias=0.0):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5 + bias
    lse = np.log(np.exp(s).sum(-1))
    return np.exp(s - lse[..., None]) @ v, lse


@pytest.mark.parametrize("dtype, limit", [("f32", 2e-6), ("bf16", 6e-3), ("f16", 8e-4)])
def test_every_input_and_output_is_written(dumped, dtype, limit):
    a = dumped(f"b=2 h=3 sq=9 skv=14 d=5 dv=7 dtype={dtype} row_max=1 sink=1 dlse=1 direction=both grads=q,k,v,sink")
    outputs = {"o", "lse", "row_max", "dq", "dk", "dv", "d_sink"}
    assert set(a) == {"q", "k", "v", "do", "dlse", "sink"} | outputs
    assert a["o"].shape == (2, 3, 9, 7) and a["lse"].shape == (2, 3, 9) and a["dq"].shape == a["q"].shape
    a = dumped(f"b=2 h=3 sq=9 skv=14 d=5 dv=7 dtype={dtype} lse=1")
    o, lse = forward(a["q"], a["k"], a["v"])
    assert np.linalg.norm(a["o"] - o) <= limit * np.linalg.norm(o)
    assert np.linalg.norm(a["lse"] - lse) <= 2e-6 * np.linalg.norm(lse)


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
    o, _ = forward(a["q"], a["k"], a["v"], bias)
    assert np.linalg.norm(a["o"] - o) <= 2e-6 * np.linalg.norm(o)
