"""The examples run, and show what they say: losses that fall, and are those of torch's own attention."""
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


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
