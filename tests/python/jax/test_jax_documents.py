"""docs/jax.md, block by block; the example."""

import re
import subprocess
import sys

import pytest
from jax_setup import DEVICE, HURRY, ROOT, environment


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
