"""Block masks: ours, which hold no blocks, and torch's own in every form."""
import dense
import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

import fovea
from fovea.torch import and_masks, create_block_mask, flex_attention, noop_mask, or_masks
from fovea.torch.block_tables import tables_agree

S = 96


@pytest.fixture
def tensors():
    return [torch.randn(2, 4, S, 16) for _ in range(3)]


def right(o, tensors, mask):
    ref, _ = dense.attention(*(x.double() for x in tensors), None, mask)
    dense.assert_close("o", o, ref, torch.float32)


def causal(b, h, q, k):
    return q >= k


def near(b, h, q, k):
    return (q - k).abs() < 9


@pytest.mark.parametrize("block", [16, 32, (16, 48), 128])
def test_torchs_block_masks_by_their_function(tensors, block):
    for mask in (causal, near, and_masks(causal, near), or_masks(causal, near), torch_flex.and_masks(causal, near),
                 torch_flex.or_masks(causal, near)):
        theirs = torch_flex.create_block_mask(mask, None, None, S, S, device="cpu", BLOCK_SIZE=block)
        assert tables_agree(theirs)
        o = flex_attention(*tensors, block_mask=theirs)
        right(o, tensors, mask)
        assert torch.equal(o, flex_attention(*tensors, block_mask=create_block_mask(mask, None, None, S, S)))


def test_torchs_function_takes_our_masks():
    """and_masks, or_masks and noop_mask of ours are ordinary functions of tensors too."""
    mask = and_masks(causal, or_masks(near, noop_mask))
    ours = torch_flex.create_mask(mask, 1, 1, S, S, device="cpu")
    theirs = torch_flex.create_mask(torch_flex.and_masks(causal, torch_flex.or_masks(near, torch_flex.noop_mask)), 1, 1, S, S,
                                    device="cpu")
    assert torch.equal(ours, theirs)


def bare(batch, heads, block, full=False):
    """A BlockMask of random indices alone: no function says what they mean."""
    blocks = S // block
    kept = torch.rand(batch, heads, blocks, blocks) < 0.5
    counts = kept.sum(-1).to(torch.int32)
    indices = torch.argsort(kept.int(), dim=-1, descending=True, stable=True).to(torch.int32)
    rest = {"full_kv_num_blocks": counts, "full_kv_indices": indices} if full else {}
    empty = torch.zeros_like(counts), indices
    mask = torch_flex.BlockMask.from_kv_blocks(*(empty if full else (counts, indices)), **rest, BLOCK_SIZE=block,
                                               seq_lengths=(S, S))
    return mask, lambda b, h, q, k: kept[b if batch > 1 else 0, h if heads > 1 else 0, q // block, k // block]


@pytest.mark.parametrize("batch,heads", [(1, 1), (2, 1), (1, 4), (2, 4)])
@pytest.mark.parametrize("full", [False, True])
def test_bare_indices_are_captured_tables(tensors, batch, heads, full):
    block_mask, mask = bare(batch, heads, 16, full)
    right(flex_attention(*tensors, block_mask=block_mask), tensors, mask)


def test_tables_that_say_less_than_their_function(tensors):
    """Some blocks of a causal mask, chosen by someone else (a router, say): both count."""
    block_mask, listed = bare(2, 4, 16)
    both = torch_flex.BlockMask.from_kv_blocks(block_mask.kv_num_blocks, block_mask.kv_indices, BLOCK_SIZE=16, mask_mod=causal,
                                               seq_lengths=(S, S))
    assert not tables_agree(both)
    right(flex_attention(*tensors, block_mask=both), tensors, lambda b, h, q, k: listed(b, h, q, k) & (q >= k))


def test_torchs_mask_with_a_batch_and_heads(tensors):
    doc = torch.randint(4, (2, S)).sort(-1).values
    mask = lambda b, h, q, k: (doc[b, q] == doc[b, k]) & (q - k < 10 * (h + 1))
    theirs = torch_flex.create_block_mask(mask, 2, 4, S, S, device="cpu", BLOCK_SIZE=32)
    right(flex_attention(*tensors, block_mask=theirs), tensors, mask)


def test_a_block_mask_is_small_at_any_length():
    mask = create_block_mask(causal, None, None, 1 << 24, 1 << 24)
    assert mask.shape == (1, 1, 1 << 24, 1 << 24) and mask.to("cpu") is mask and "causal" in repr(mask)


def test_masks_are_traced_when_they_are_made():
    with pytest.raises(fovea.torch.TraceError, match="a Python branch"):
        create_block_mask(lambda b, h, q, k: True if q > k else False, None, None, 8, 8)
    with pytest.raises(TypeError, match="no argument 'BLOCKS'"):
        create_block_mask(causal, None, None, 8, 8, BLOCKS=3)
    assert create_block_mask(causal, None, None, 8, 8, device="cpu", BLOCK_SIZE=(64, 32), _compile=True).BLOCK_SIZE == (64, 32)


def test_a_mask_changes_after_it_was_made(tensors):
    """The function is asked at every call, so its closure may change."""
    doc = torch.randint(3, (S,))
    mask = create_block_mask(lambda b, h, q, k: doc[q] == doc[k], None, None, S, S)
    right(flex_attention(*tensors, block_mask=mask), tensors, lambda b, h, q, k: doc[q] == doc[k])
    doc = torch.randint(5, (S,))
    right(flex_attention(*tensors, block_mask=mask), tensors, lambda b, h, q, k: doc[q] == doc[k])
