"""Other processes: programs that were exported elsewhere, and what comes first in one."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from jax_cases import causal
from jax_definition import close
from jax_setup import DEVICE, environment
from test_jax_values import IDS, expected

import fovea.jax

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="a second process would share the GPU's memory")


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


def test_an_exported_program_runs_in_another_process(tmp_path):
    pytest.importorskip(
        "flatbuffers", reason="jax.export serialises with flatbuffers, which is not installed"
    )
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


def test_shapes_first_then_threads():
    """Tracing without an array lets JAX start its backend later; first calls may come from many threads."""
    assert run_elsewhere(FIRST).splitlines() == ["(2, 8, 2, 16)", "4 True"]
