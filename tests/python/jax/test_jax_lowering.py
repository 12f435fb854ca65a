"""What is lowered for a GPU, read without one: the problem line of the custom call and its operands."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import H, causal, softcap
from test_jax_values import IDS, expected

from fovea import _core
from fovea.jax import attention
from fovea.jax._call import Call
from fovea.jax._modifiers import Given
from fovea.jax._primitive import call_p, without_b_offset


@pytest.fixture
def qkv():
    return expected(IDS.index("causal"))[0][:3]


def lowered(function, *args) -> tuple[str, str]:
    """The problem line and the operands of the one call in function(*args), for CUDA."""
    text = jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()
    (line,) = re.findall(r'problem = "(.*?)", results', text)
    (operands,) = re.findall(r'operands = "(.*?)"', text)
    line = line.replace(r"\22", '"')
    _core.Problem(line)
    return line, operands


VALUES = {
    "scale": ({"scale": 0.3}, ()),
    "a number": ({"score_mod": softcap(2.5)}, ()),
    "offsets": ({"mask_mod": causal, "q_offset": 4, "kv_offset": 2}, ("q_offset=1", "k_offset=1")),
    "heads": ({"score_mod": "alibi", "h_offset": 2, "global_heads": 2 * H}, ("h_offset=1",)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_lie_on_the_gpu(name, qkv):
    """XLA has every operand there: the plan must read scalars there, too."""
    arguments, words = VALUES[name]
    line, _ = lowered(lambda *a: attention(*a, **arguments), *qkv)
    assert {"values=device", *words} <= set(line.split())


def test_a_line_without_values_stays_as_it_is(qkv):
    """Engine cudnn bakes literals into graphs whose values lie on the device: only where there are such."""
    slopes = jnp.arange(H) * 0.1
    for more in ({"mask_mod": causal}, {"score_mod": lambda s, b, h, q, k: 0.5 * s + slopes[h]}):
        line, _ = lowered(lambda *a: attention(*a, **more), *qkv)
        assert "values=device" not in line and "offset=" not in line


def test_the_first_sequence_is_a_scalar_of_the_formulas(qkv):
    """Engines for GPUs take no b_offset from the device; the formulas that are lowered instead mean the same."""
    table = jnp.linspace(0.5, 1.5, 8)
    call = Call("bshd", *qkv)
    call.modify(Given(score_mod=lambda s, b, h, q, k: s * table[b] + b, mask_mod=lambda b, h, q, k: k <= q + b))
    call.values(b_offset=jnp.int32(3))
    spec, arrays = call.finished()
    moved = without_b_offset(spec)
    assert "b_offset" in spec.operands and "b_offset" not in moved.operands
    (got,) = call_p.bind(*arrays, spec=moved, direction="forward")
    (want,) = call_p.bind(*arrays, spec=spec, direction="forward")
    np.testing.assert_array_equal(got, want)
    line, operands = lowered(lambda q, k, v: attention(q, k, v, score_mod="score + b", b_offset=3), *qkv)
    assert "scalar:first_b" in operands and "(b + first_b)" in line and "b_offset" not in operands
