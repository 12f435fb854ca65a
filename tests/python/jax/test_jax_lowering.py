"""What is lowered for a GPU, read without one: the problem line of the custom call and its operands."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax_cases import B, H, S, causal, softcap
from jax_definition import close
from jax_setup import seed

from fovea import _core
from fovea.jax import attention, context_attention
from fovea.jax._call import CallBuilder
from fovea.jax._modifiers import GivenModifiers
from fovea.jax._primitive import call_p
from fovea.jax._rewrite import without_b_offset


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
    """With values=device engine cudnn would bake literals into its graphs, so lines say that only if there are such values."""
    slopes = jnp.arange(H) * 0.1
    for more in ({"mask_mod": causal}, {"score_mod": lambda s, b, h, q, k: 0.5 * s + slopes[h]}):
        line, _ = lowered(lambda *a: attention(*a, **more), *qkv)
        assert "values=device" not in line and "offset=" not in line


def test_the_first_sequence_is_a_scalar_of_the_formulas(qkv):
    """Engines for GPUs take no b_offset from there; the formulas that are lowered instead mean the same."""
    table = jnp.linspace(0.5, 1.5, 8)
    call = CallBuilder("bshd", *qkv)
    call.modify(GivenModifiers(score_mod=lambda s, b, h, q, k: s * table[b] + b, mask_mod=lambda b, h, q, k: k <= q + b))
    call.offsets(b=jnp.int32(3))
    spec, arrays = call.finished()
    moved = without_b_offset(spec)
    assert "b_offset" in spec.operands and "b_offset" not in moved.operands
    (got,) = call_p.bind(*arrays, spec=moved, direction="forward")
    (want,) = call_p.bind(*arrays, spec=spec, direction="forward")
    np.testing.assert_array_equal(got, want)
    line, operands = lowered(lambda q, k, v: attention(q, k, v, score_mod="score + b", b_offset=3), *qkv)
    assert "scalar:first_b" in operands and "(b + first_b)" in line and "b_offset" not in operands


def test_captured_arrays_keep_their_types(qkv):
    """Masks and small integers are read where they lie."""
    rng = np.random.default_rng(seed())
    kept, table = jnp.asarray(rng.random((S, S)) < 0.6), jnp.asarray(rng.integers(0, 3, S), jnp.uint8)
    line, _ = lowered(lambda *a: attention(*a, dense_mask=kept[None, None]), *qkv)
    assert 'mask="a0[0, 0, q, k]"' in line and "a0:bool[1,1,Sq,Skv]" in line, line
    line, _ = lowered(lambda *a: attention(*a, mask_mod=lambda b, h, q, k: table[q] == table[k]), *qkv)
    assert ":u8[" in line, line


def test_results_keep_their_types(qkv):
    """A ring merges in float32 what its parts give, whatever the type of q."""
    half = [x.astype(jnp.bfloat16) for x in qkv]
    part = jax.shard_map(
        lambda *a: context_attention(*a, axis_name="s", mask_mod=causal),
        mesh=Mesh(np.array(jax.devices()[:1]), ("s",)),
        in_specs=(P(),) * 3,
        out_specs=P(),
        check_vma=False,
    )
    text = jax.jit(part).trace(*half).lower(lowering_platforms=("cuda",)).as_text()
    lines = re.findall(r'problem = "(.*?)", results', text)
    assert lines and all(" dtype=bf16" in line and "o_dtype=f32" in line for line in lines), lines


def modified_by_tables(table, gate, q, k, v):
    return attention(q, k, v, score_mod=lambda s, b, h, i, j: s * table[h] * gate[b, h])


def mapped_line(sequences: int, qkv) -> str:
    """Of three examples of so many sequences, in which all but k and v is mapped."""
    arrays = jnp.ones((3, H)), jnp.ones((3, sequences, H)), jnp.stack([qkv[0][:sequences]] * 3)
    keys = [x[:sequences] for x in qkv[1:]]
    line, operands = lowered(jax.vmap(modified_by_tables, (0, 0, 0, None, None)), *arrays, *keys)
    assert f" b={3 * sequences} " in line and operands == "q,k,v,tensor:a0,tensor:a1"
    return line.replace(" ", "")


def test_a_mapped_axis_joins_the_batch(qkv):
    """vmap is one call of a larger batch; what is captured and mapped is indexed by example or sequence."""
    line = mapped_line(B, qkv)
    assert f"a0[(b//{B}),h]" in line and "a1[b,h]" in line and "tensor=a1:f32[B,H]" in line, line


def test_examples_of_one_sequence_are_indexed_by_b(qkv):
    """As most examples are: engines for GPUs load by b."""
    line = mapped_line(1, qkv)
    assert "a0[b,h]" in line and "a1[b,h]" in line and "tensor=a0:f32[B,H]" in line, line


@pytest.mark.parametrize("wanted", [(0, 1, 2), (0, 1, 2, 3, 4)], ids=("of q, k, v", "of all"))
def test_examples_of_one_sequence(wanted, qkv):
    """Values and gradients of that form, against one call after the other."""
    q, k, v = (x[:, None] for x in qkv)
    arrays = (q, k, v, jnp.linspace(0.5, 1.5, B * H).reshape(B, H), jnp.linspace(0.1, 1.0, B))

    def loss(q, k, v, table, cap):
        o = attention(q, k, v, score_mod=lambda s, b, h, i, j: cap * jnp.tanh(s * table[h] / cap) + 0.1 * b)
        return jnp.sum(o.astype(jnp.float32) ** 2)

    run = jax.value_and_grad(loss, argnums=wanted)
    alone = [run(*(x[i] for x in arrays)) for i in range(B)]
    close(jax.vmap(run)(*arrays), jax.tree.map(lambda *x: jnp.stack(x), *alone), 1e-4)
