"""What fovea.torch alone refuses: each error names the argument, its value and the rule. Mistakes that NumPy and JAX can make,
too: tests/python/core/test_py_request.py."""

import pytest
import torch

import fovea
from fovea.torch import DotProductAttention, MultiheadAttention, and_masks, attention, create_block_mask, flex_attention


@pytest.fixture
def q():
    return torch.randn(2, 4, 12, 8)


def refused(kind, pattern, function, *args, **options):
    with pytest.raises(kind, match=pattern):
        function(*args, **options)


def test_tensors(q):
    refused(ValueError, r"value: on meta, but the query is on cpu", attention, q, q, q.to("meta"))
    refused(ValueError, r"query: 3 dimensions", flex_attention, q[0], q, q)
    refused(ValueError, r"key: 2 heads.*enable_gqa=True", flex_attention, q, q[:, :2], q[:, :2])
    refused(ValueError, r"key: 2 sequences, the query has 3", flex_attention, torch.cat([q, q[:1]]), q, q)
    for wrong in (None, 1, torch.eye(3).to_sparse()):
        for function in (flex_attention, attention):
            refused(ValueError, "key: .*must be", function, q, wrong, q)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), "0.1", b"1", [1, 2]])
def test_scales(q, scale):
    for function in (flex_attention, attention):
        refused(ValueError, r"scale=.*must be a finite number", function, q, q, q, scale=scale)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"window_size": (3,)}, r"window_size=\(3,\)"),
        ({"window_size": (3, 1.5)}, r"window_size=\(3, 1.5\): must be"),
        ({"is_causal": "left"}, "is_causal='left'"),
        ({"q_offset": 1.5}, r"q_offset: must be one integer per sequence, got torch.float32 \[\]"),
        ({"dropout_p": "a"}, "dropout_p='a'"),
        ({"dropout_p": 0.1, "seed": 1.5}, "seed=1.5: must be an integer"),
        ({"dropout_p": 0.1, "seed": 1, "generator": torch.Generator()}, "seed and generator"),
        ({"sinks": [0.0, 1.0]}, "sinks: must be a torch.Tensor, got list"),
        ({"engine": 3}, "engine=3"),
        ({"seq_lens": 4}, "seq_lens: must be one integer per sequence"),
        ({"seq_lens": ["a"]}, "seq_lens=.*must be one integer per sequence"),
        ({"seq_lens": torch.tensor([1, 13])}, r"seq_lens\[1\]=13 of queries: must lie in 0"),
        ({"score_mod": lambda s, b: s}, r"score_mod: takes \(s, b\); must take \(score, b, h, q_idx, kv_idx\)"),
        ({"mask_mod": lambda s, b, h, q, k: s}, r"mask_mod: takes .* must take \(b, h, q_idx, kv_idx\)"),
        ({"scalars": {"a": 1.0}}, "scalars: given without a modifier"),
        ({"score_mod": "score * slope"}, "unknown name 'slope'"),
        ({"score_mod": "score * a", "scalars": {"a": torch.tensor(1.0)}}, r"scalars\['a'\]: must be a number, got tensor"),
        ({"score_mod": "score", "tensors": {"_a": torch.ones(1)}}, "the captured name '_a'"),
    ],
)
def test_other_arguments(q, options, words):
    refused(ValueError, words, attention, q, q, q, **options)


def test_starts(q):
    packed = [q[0].transpose(0, 1)] * 3
    starts = {"layout": "thd", "cu_seqlens": torch.tensor([1, 12])}
    refused(ValueError, r"cu_seqlens\[0\]=1 of queries: the first start", attention, *packed, **starts)


def test_companions_without_their_modifier(q):
    """What belongs to a modifier that is not there is one clear error."""
    function = lambda s, b, h, i, j: s  # captures by itself
    refused(ValueError, r"tensors: 'a' is captured by no formula", attention, q, q, q, score_mod=function, tensors={"a": q})
    refused(ValueError, r"scalars: 'a' is captured by", attention, q, q, q, mask_mod=lambda *at: True, scalars={"a": 1.0})
    refused(ValueError, r"tensors: must be a dict of names", attention, q, q, q, score_mod="score", tensors=[q])
    module = DotProductAttention(4, 8, qkv_format="bshd")
    x = q.transpose(1, 2)
    callback = {"score_mod": lambda graph, score, tensors: score, "score_mod_tensors": {1: torch.ones(1, 1, 1, 1)}}
    refused(ValueError, r"tensors: the key 1 is a int; must be a name", module, x, x, x, **callback)
    for name in ("score_mod_bprop", "score_mod_tensors", "score_mod_bprop_tensors"):
        refused(ValueError, f"{name}: given without score_mod", module, x, x, x, **{name: {}})
    given = {"score_mod": lambda graph, score, tensors: score, "score_mod_bprop_tensors": {}}
    refused(ValueError, "score_mod_bprop_tensors: given without score_mod_bprop", module, x, x, x, **given)


def test_devices_of_captured_tensors(q):
    table = torch.randn(4, device="meta")
    words = r"captured tensor .table. of shape \[4\] is on meta, the query on cpu"
    refused(ValueError, words, flex_attention, q, q, q, lambda s, b, h, i, j: s + table[h])


def test_block_masks(q):
    causal = lambda b, h, i, j: i >= j
    mask = create_block_mask(causal, 3, None, 12, 12)
    refused(ValueError, r"block_mask: made for B=3, but the query has 2", flex_attention, q, q, q, block_mask=mask)
    refused(ValueError, r"block_mask: must be a BlockMask, got function", flex_attention, q, q, q, block_mask=causal)
    refused(ValueError, r"engine='turbo': must be one of", flex_attention, q, q, q, kernel_options={"engine": "turbo"})
    refused(ValueError, r"Q_LEN=-1", create_block_mask, causal, None, None, -1, 12)
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
    refused(ValueError, r"attn_mask_type='diag': must be one of", DotProductAttention, 4, 8, attn_mask_type="diag")
    refused(ValueError, r"num_gqa_groups=3: must divide", DotProductAttention, 4, 8, num_gqa_groups=3)
    refused(unsupported, r"ub_overlap_ag=True is not supported", MultiheadAttention, 32, 4, ub_overlap_ag=True)
    module, x = DotProductAttention(4, 8), torch.randn(12, 2, 4, 8)
    refused(unsupported, r"inference_params=.*key/value cache", module, x, x, x, inference_params=object())
    refused(unsupported, r"fp8_output=True is not supported", module, x, x, x, fp8_output=True)
    refused(TypeError, "no_such", module, x, x, x, no_such=1)
    refused(ValueError, r"query_layer: shape .* must end in \[4, 8\]", module, x[..., :4], x, x)
    refused(ValueError, r"needs cu_seqlens_q", module, x, x, x, attn_mask_type="padding")
    refused(ValueError, r"attention_mask: .*'arbitrary' needs", module, x, x, x, attn_mask_type="arbitrary")
