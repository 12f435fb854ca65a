"""docs/jax.md, block by block; the functions of docs/gallery.md, which compute what its formulas do; the example."""

import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_setup import DEVICE, HURRY, ROOT, environment

import fovea.jax

sys.path.insert(0, str(ROOT / "tools"))
from gallery_entries import ENTRIES, Sizes


def test_every_snippet_of_the_guide(eight_devices):
    pytest.importorskip("flax", reason="the guide ends with the Flax module, which needs flax")
    text = (ROOT / "docs" / "jax.md").read_text()
    scope: dict = {}
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) >= 10
    for block in blocks:
        line = text[: block.start()].count("\n") + 1
        code = compile("\n" * line + block.group(1), str(ROOT / "docs" / "jax.md"), "exec")
        exec(code, scope)


@pytest.mark.parametrize("flags", ((), ("--flax",)), ids=("plain", "flax"))
def test_the_example_learns(flags):
    if flags:
        pytest.importorskip("flax", reason="--flax needs flax, which is not installed")
    command = [sys.executable, str(ROOT / "examples" / "python" / "train_jax.py"), "--steps", "80", *flags]
    variables = environment()
    if DEVICE == "cpu":
        variables["XLA_FLAGS"] = HURRY
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr
    losses = [float(x) for x in re.findall(r"loss (\S+)", done.stdout)]
    # A guess costs log(16) = 2.77: only attention that looks at the right distance gets below.
    assert losses[-1] < 0.2, done.stdout
    assert "the largest bias is that of distance 5" in done.stdout


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_function_is_its_formula(entry):
    sizes = Sizes(entry.length)
    q, k, v = (jax.random.normal(key, (sizes.b, sizes.s, sizes.h, 8)) for key in jax.random.split(jax.random.key(0), 3))
    captured = {name: jnp.asarray(make(sizes)) for name, _, make in entry.tensors}
    space = {"jnp": jnp, **captured}
    exec(entry.source("jax"), space)
    functions = {name: space[name] for name in ("score_mod", "mask_mod") if name in space}
    texts = {}
    for name, text in (("score_mod", entry.mod), ("mask_mod", entry.mask)):
        if text:
            texts[name] = text
            texts[name + "_tensors"] = {x: value for x, value in captured.items() if f"{x}[" in text}
    got = fovea.jax.attention(q, k, v, **functions)
    expected = fovea.jax.attention(q, k, v, **texts)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(got - fovea.jax.attention(q, k, v)).max() > 1e-3
