"""Every Python block of docs/pytorch.md runs, in order, as a reader would type it; the functions of docs/gallery.md compute
what its formulas do, gradients too; the examples show what they say."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs/pytorch.md"
sys.path.insert(0, str(ROOT / "tools"))
from gallery import ENTRIES, Sizes

from fovea.torch import attention


def blocks():
    text = DOCUMENT.read_text()
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, found.start()) + 2, found[1]


def test_every_snippet_runs(capsys):
    torch._dynamo.reset()
    space, count = {"__name__": "docs"}, 0
    for line, source in blocks():
        try:
            exec(compile("\n" * (line - 1) + source, str(DOCUMENT), "exec"), space)
        except Exception as error:
            pytest.fail(f"docs/pytorch.md, the block at line {line}: {type(error).__name__}: {error}")
        count += 1
    assert count >= 11 and "chosen" in capsys.readouterr().out


def results(q, k, v, **modifiers):
    o = attention(q, k, v, **modifiers)
    return o, *torch.autograd.grad((o * torch.linspace(-1, 1, o.numel()).reshape(o.shape)).sum(), (q, k, v))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_function_is_its_formula(entry):
    sizes = Sizes(entry.length)
    q, k, v = (torch.randn(sizes.b, sizes.h, sizes.s, 8, requires_grad=True) for _ in range(3))
    made = {name: np.asarray(make(sizes)) for name, _, make in entry.tensors}
    captured = {name: torch.tensor(x, dtype=torch.float32 if x.dtype == np.float64 else None) for name, x in made.items()}
    space = {"torch": torch, **captured}
    exec(entry.source("torch"), space)
    modifiers = {name: space[name] for name in ("score_mod", "mask_mod") if name in space}
    assert modifiers.keys() == {name for name, text in (("score_mod", entry.mod), ("mask_mod", entry.mask)) if text}
    functions = results(q, k, v, **modifiers)
    texts = results(q, k, v, score_mod=entry.mod or None, mask_mod=entry.mask or None, tensors=captured)
    for got, expected in zip(functions, texts):
        assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()
    plain = attention(q, k, v)  # and it does something
    assert (plain - functions[0]).abs().max() > 1e-3


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"examples/python/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def runs():
    example = load("train_gpt")
    config = example.Config(steps=20)
    return {kind: example.train(kind, config) for kind in example.KINDS}


@pytest.mark.parametrize("kind", ["flex", "te"])
def test_a_small_gpt_learns_as_with_torchs_attention(runs, kind):
    ours, theirs = runs[kind], runs["torch"]
    assert ours[-1] < 0.75 * ours[0], f"the loss went from {ours[0]:.3f} to {ours[-1]:.3f}"
    apart = max(abs(a - b) for a, b in zip(ours, theirs))
    assert apart < 2e-3, f"losses differ by {apart:.1e} from those with torch's attention"
