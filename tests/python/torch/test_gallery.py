"""The functions of docs/gallery.md for PyTorch compute what its formulas do, gradients too."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from gallery_entries import ENTRIES, Sizes

from fovea.torch import attention


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
