"""Other processes: programs that were exported elsewhere, and what comes first in one."""

import re
import subprocess
import sys

import jax
import jax.numpy as jnp
from jax_cases import causal
from jax_definition import close
from jax_setup import DEVICE, HURRY, ROOT, environment
import numpy as np
import pytest
from test_jax_values import IDS, expected

import fovea.jax


in_a_process_of_its_own = pytest.mark.skipif(DEVICE != "cpu", reason="a second process would share the GPU's memory")


def run_elsewhere(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


RUN = """
import pathlib, sys
import jax, numpy as np
import fovea.jax

folder = pathlib.Path(sys.argv[1])
qkv = [np.load(folder / f"{name}.npy") for name in "qkv"]
fovea.jax.register()
exported = jax.export.deserialize(bytearray((folder / "exported").read_bytes()))
np.save(folder / "o.npy", exported.call(*qkv))
np.save(folder / "dq.npy", jax.grad(lambda *a: exported.call(*a).sum())(*qkv))
"""


@in_a_process_of_its_own
def test_an_exported_program_runs_in_another_process(tmp_path):
    pytest.importorskip("flatbuffers", reason="jax.export serialises with flatbuffers, which is not installed")
    qkv = expected(IDS.index("causal"))[0][:3]
    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in fovea.jax.custom_call_targets()]

    def attend(q, k, v):
        return fovea.jax.attention(q, k, v, mask_mod=causal)

    exported = jax.export.export(jax.jit(attend), disabled_checks=checks)(*qkv)
    (tmp_path / "exported").write_bytes(exported.serialize(vjp_order=1))
    for name, x in zip("qkv", qkv):
        np.save(tmp_path / f"{name}.npy", x)
    run_elsewhere(RUN, str(tmp_path))
    close(np.load(tmp_path / "o.npy"), attend(*qkv))
    close(np.load(tmp_path / "dq.npy"), jax.grad(lambda *a: attend(*a).sum())(*qkv), 1e-4)


FIRST = """
import threading
import jax, jax.numpy as jnp, numpy as np
import fovea.jax

shape = jax.ShapeDtypeStruct((2, 8, 2, 16), jnp.float32)
print(jax.eval_shape(fovea.jax.attention, shape, shape, shape).shape)  # before JAX has a backend
x = jnp.ones(shape.shape)
results = []
start = threading.Barrier(4)

def work(n):
    start.wait()
    results.append(fovea.jax.attention(x, x, x, score_mod=f"score * {n}.0"))

threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(results), all(np.allclose(r, 1.0) for r in results))
"""


@in_a_process_of_its_own
def test_shapes_first_then_threads():
    """Tracing without an array lets JAX start its backend later; first calls may come from many threads."""
    assert run_elsewhere(FIRST).splitlines() == ["(2, 8, 2, 16)", "4 True"]


# --- docs/jax.md, block by block; the functions of docs/gallery.md, which compute what its formulas do; the example ---


sys.path.insert(0, str(ROOT / "tools"))
from gallery import ENTRIES, Sizes


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
