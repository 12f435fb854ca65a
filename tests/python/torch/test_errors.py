"""What fovea.torch alone refuses: each error names the argument, its value and the rule. Mistakes that NumPy and JAX can make,
too: tests/python/core/test_py_request.py."""

import pytest
import torch

import fovea
from fovea.torch import (
    DotProductAttention,
    MultiheadAttention,
    and_masks,
    attention,
    create_block_mask,
    flex_attention,
)


@pytest.fixture
def q():
    return torch.randn(2, 4, 12, 8)


def refused(kind, pattern, function, *args, **options):
    with pytest.raises(kind, match=pattern):
        function(*args, **options)


def test_tensors(q):
    refused(ValueError, r"key: torch.float16; must be torch.float32, as query is", attention, q, q.half(), q)
    refused(ValueError, r"value: on meta, but the query is on cpu", attention, q, q, q.to("meta"))
    refused(ValueError, r"query: 3 dimensions", flex_attention, q[0], q, q)
    refused(ValueError, r"key: 2 heads.*enable_gqa=True", flex_attention, q, q[:, :2], q[:, :2])
    refused(ValueError, r"key: 2 sequences, the query has 3", flex_attention, torch.cat([q, q[:1]]), q, q)
    refused(ValueError, r"query: torch.int32 must be float32", attention, q.int(), q.int(), q.int())


def test_values(q):
    for scale in (float("nan"), float("inf"), "0.1", b"1", [1, 2]):
        refused(ValueError, r"scale=.*must be a finite number", attention, q, q, q, scale=scale)
        refused(ValueError, r"scale=.*must be a finite number", flex_attention, q, q, q, scale=scale)
    refused(ValueError, r"window_size=\(3,\)", attention, q, q, q, window_size=(3,))
    refused(ValueError, r"is_causal='left'", attention, q, q, q, is_causal="left")
    refused(ValueError, r"seq_lens: must be one integer per sequence", attention, q, q, q, seq_lens=torch.zeros(2))
    refused(ValueError, r"seq_lens\[1\]=13 of queries: must lie in 0", attention, q, q, q, seq_lens=torch.tensor([1, 13]))
    starts = {"layout": "thd", "cu_seqlens": torch.tensor([1, 12])}
    refused(ValueError, r"cu_seqlens\[0\]=1 of queries: the first start", attention, *[q[0].transpose(0, 1)] * 3, **starts)
    refused(ValueError, r"cu_seqlens: goes with layout='thd'", attention, q, q, q, cu_seqlens=torch.tensor([0, 1]))
    refused(ValueError, r"cu_seqlens: layout thd needs the starts", attention, q[0], q[0], q[0], layout="thd")
    refused(ValueError, r"q_offset=1.5", attention, q, q, q, q_offset=1.5)
    refused(ValueError, r"seed and generator", attention, q, q, q, dropout_p=0.1, seed=1, generator=torch.Generator())
    refused(fovea.Error, r"engine", attention, q, q, q, engine="turbo")


def test_trap_9_companions_without_their_modifier(q):
    """What belongs to a modifier that is not there is one clear error."""
    refused(ValueError, r"tensors: given without a modifier", attention, q, q, q, tensors={"a": q})
    refused(ValueError, r"scalars: given without a modifier", attention, q, q, q, scalars={"a": 1.0})
    function = lambda s, b, h, i, j: s  # captures by itself
    refused(ValueError, r"tensors: given without a modifier", attention, q, q, q, score_mod=function, tensors={"a": q})
    refused(ValueError, r"scalars: given without a modifier", attention, q, q, q, mask_mod=lambda *at: True, scalars={"a": 1.0})
    refused(ValueError, r"tensors: must be a dict of names", attention, q, q, q, score_mod="score", tensors=[q])
    module = DotProductAttention(4, 8, qkv_format="bshd")
    x = q.transpose(1, 2)
    callback = {"score_mod": lambda graph, score, tensors: score, "score_mod_tensors": {1: torch.ones(1, 1, 1, 1)}}
    refused(ValueError, r"tensors: the key 1 is a int; it must be a name", module, x, x, x, **callback)
    for name in ("score_mod_bprop", "score_mod_tensors", "score_mod_bprop_tensors"):
        refused(ValueError, f"{name}: given without score_mod", module, x, x, x, **{name: {}})
    refused(
        ValueError,
        r"score_mod_bprop_tensors: given without score_mod_bprop",
        module,
        x,
        x,
        x,
        score_mod=lambda graph, score, tensors: score,
        score_mod_bprop_tensors={},
    )
    refused(ValueError, r"unknown name 'slope'", attention, q, q, q, score_mod="score * slope")
    refused(
        ValueError,
        r"scalars\['a'\]: must be a Python number",
        attention,
        q,
        q,
        q,
        score_mod="score * a",
        scalars={"a": torch.tensor(1.0)},
    )
    refused(ValueError, r"the captured name '_a'", attention, q, q, q, score_mod="score", tensors={"_a": q})


def test_names_of_captured_tensors(q):
    with pytest.raises(ValueError, match="the captured name 'v': stands for an operand"):
        attention(q, q, q, score_mod="score * v[h]", tensors={"v": torch.ones(4)})


def test_devices_of_captured_tensors(q):
    table = torch.randn(4, device="meta")
    refused(
        ValueError,
        r"captured tensor .table. of shape \[4\] is on meta, the query on cpu",
        flex_attention,
        q,
        q,
        q,
        lambda s, b, h, i, j: s + table[h],
    )


def test_block_masks(q):
    mask = create_block_mask(lambda b, h, i, j: i >= j, 3, None, 12, 12)
    refused(ValueError, r"block_mask: made for B=3, but the query has 2", flex_attention, q, q, q, block_mask=mask)
    refused(
        ValueError,
        r"block_mask: must be a BlockMask, got function",
        flex_attention,
        q,
        q,
        q,
        block_mask=lambda b, h, i, j: i >= j,
    )
    refused(ValueError, r"Q_LEN=-1", create_block_mask, lambda b, h, i, j: i >= j, None, None, -1, 12)
    refused(ValueError, r"and_masks: takes one mask or more", and_masks)


def test_engines_without_what_is_asked(q):
    """float64 runs on the reference engine when it is named, and nowhere else."""
    x = q.double()
    with pytest.raises(fovea.Unsupported) as refusal:
        attention(x, x, x)
    for engine in fovea.engines():
        assert engine in str(refusal.value)
    assert attention(x, x, x, engine="reference").dtype == torch.float64


def test_arguments_of_transformer_engine():
    unsupported = fovea.Unsupported
    refused(ValueError, r"num_attention_heads=4: must be a multiple of tp_size=3", DotProductAttention, 4, 8, tp_size=3)
    refused(ValueError, r"tp_size=2: goes with set_parallel_mode=True", MultiheadAttention, 32, 4, tp_size=2)
    refused(ValueError, r"cp_comm_type='p2q': must be one of", DotProductAttention, 4, 8, cp_comm_type="p2q")
    refused(TypeError, "no_such", DotProductAttention, 4, 8, no_such=1)
    refused(
        ValueError, r"attn_mask_type='diagonal': must be one of", DotProductAttention, 4, 8, attn_mask_type="diagonal"
    )
    refused(ValueError, r"num_gqa_groups=3: must divide", DotProductAttention, 4, 8, num_gqa_groups=3)
    refused(unsupported, r"ub_overlap_ag=True is not supported", MultiheadAttention, 32, 4, ub_overlap_ag=True)
    module, x = DotProductAttention(4, 8), torch.randn(12, 2, 4, 8)
    refused(unsupported, r"inference_params=.*key/value cache", module, x, x, x, inference_params=object())
    refused(unsupported, r"fp8_output=True is not supported", module, x, x, x, fp8_output=True)
    refused(TypeError, "no_such", module, x, x, x, no_such=1)
    refused(ValueError, r"query_layer: shape .* must end in \[4, 8\]", module, x[..., :4], x, x)
    refused(ValueError, r"needs cu_seqlens_q", module, x, x, x, attn_mask_type="padding")
    refused(ValueError, r"attention_mask: .*'arbitrary' needs", module, x, x, x, attn_mask_type="arbitrary")
