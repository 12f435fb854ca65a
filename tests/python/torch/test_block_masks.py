"""Block masks: ours, which hold no blocks, and torch's own in every form."""

import functools

import dense
import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

import fovea
from fovea.torch import and_masks, block_tables, create_block_mask, create_mask, flex_attention, noop_mask, or_masks

S = 96


@pytest.fixture
def tensors():
    return [torch.randn(2, 4, S, 16) for _ in range(3)]


def right(o, tensors, mask):
    dense.assert_right(o, tensors, None, mask)


def needs_tables(block_mask):
    """Of a mask that has run: did its tables become part of it?"""
    names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
    tables = [getattr(block_mask, name) for name in names]
    (found,) = block_tables.known_of([x for x in tables if x is not None]).values()
    return found != (None, None)


def causal(b, h, q, k):
    return q >= k


def near(b, h, q, k):
    return (q - k).abs() < 9


@pytest.mark.parametrize("block", [16, 32, (16, 48), 128])
def test_torchs_block_masks_by_their_function(tensors, block):
    for mask in (
        causal,
        near,
        and_masks(causal, near),
        or_masks(causal, near),
        torch_flex.and_masks(causal, near),
        torch_flex.or_masks(causal, near),
    ):
        theirs = torch_flex.create_block_mask(mask, None, None, S, S, device="cpu", BLOCK_SIZE=block)
        o = flex_attention(*tensors, block_mask=theirs)
        assert not needs_tables(theirs)
        right(o, tensors, mask)
        assert torch.equal(o, flex_attention(*tensors, block_mask=create_block_mask(mask, None, None, S, S)))


def test_torchs_function_takes_our_masks():
    """and_masks, or_masks and noop_mask of ours are ordinary functions of tensors too."""
    mask = and_masks(causal, or_masks(near, noop_mask))
    ours = torch_flex.create_mask(mask, 1, 1, S, S, device="cpu")
    theirs = torch_flex.create_mask(
        torch_flex.and_masks(causal, torch_flex.or_masks(near, torch_flex.noop_mask)), 1, 1, S, S, device="cpu"
    )
    assert torch.equal(ours, theirs)


def bare(batch, heads, block, full=False):
    """A BlockMask of random indices alone: no function says what they mean."""
    blocks = S // block
    kept = torch.rand(batch, heads, blocks, blocks) < 0.5
    counts = kept.sum(-1).to(torch.int32)
    indices = torch.argsort(kept.int(), dim=-1, descending=True, stable=True).to(torch.int32)
    rest = {"full_kv_num_blocks": counts, "full_kv_indices": indices} if full else {}
    empty = torch.zeros_like(counts), indices
    mask = torch_flex.BlockMask.from_kv_blocks(
        *(empty if full else (counts, indices)), **rest, BLOCK_SIZE=block, seq_lengths=(S, S)
    )
    return mask, lambda b, h, q, k: kept[b if batch > 1 else 0, h if heads > 1 else 0, q // block, k // block]


@pytest.mark.parametrize("batch,heads", [(1, 1), (2, 1), (1, 4), (2, 4)])
@pytest.mark.parametrize("full", [False, True])
def test_bare_indices_are_captured_tables(tensors, batch, heads, full):
    block_mask, mask = bare(batch, heads, 16, full)
    right(flex_attention(*tensors, block_mask=block_mask), tensors, mask)


def test_tables_that_say_less_than_their_function(tensors):
    """Some blocks of a causal mask, chosen by someone else (a router, say): both count."""
    block_mask, listed = bare(2, 4, 16)
    both = torch_flex.BlockMask.from_kv_blocks(
        block_mask.kv_num_blocks, block_mask.kv_indices, BLOCK_SIZE=16, mask_mod=causal, seq_lengths=(S, S)
    )
    right(flex_attention(*tensors, block_mask=both), tensors, lambda b, h, q, k: listed(b, h, q, k) & (q >= k))
    assert needs_tables(both)


def diagonal(mask_mod):
    """Only the blocks of the diagonal are listed, whatever else the function keeps."""
    indices = torch.zeros(1, 1, 6, 6, dtype=torch.int32)
    indices[0, 0, :, 0] = torch.arange(6)
    return torch_flex.BlockMask.from_kv_blocks(
        torch.ones(1, 1, 6, dtype=torch.int32), indices, BLOCK_SIZE=16, mask_mod=mask_mod, seq_lengths=(S, S)
    )


def few(b, h, q, k):
    """The diagonal, and one score of every block."""
    return (q == k) | ((q % 16 == 5) & (k % 16 == 3))


def few_of_the_diagonal(b, h, q, k):
    return few(b, h, q, k) & (q // 16 == k // 16)


def ways_to_run():
    call = lambda q, k, v, block_mask: flex_attention(q, k, v, block_mask=block_mask)
    yield call
    yield torch.compile(call, fullgraph=True, backend="aot_eager")

    def counted(*given):
        with FlopCounterMode(display=False):
            return call(*given)

    yield counted

    def checkpointed(*given):
        keep_all = functools.partial(
            create_selective_checkpoint_contexts, lambda *_, **__: CheckpointPolicy.MUST_SAVE
        )
        return checkpoint(call, *given, use_reentrant=False, context_fn=keep_all)

    yield checkpointed


@pytest.mark.parametrize("way", range(4))
def test_a_function_that_keeps_more_than_the_tables_list(tensors, way):
    """Seen in a few places of a block, the function would agree with the tables."""
    run = list(ways_to_run())[way]
    tensors = [x.requires_grad_() for x in tensors]
    right(run(*tensors, diagonal(few)), tensors, few_of_the_diagonal)
    agreed = torch_flex.create_block_mask(causal, None, None, S, S, device="cpu", BLOCK_SIZE=16)
    right(run(*tensors, agreed), tensors, causal)
    assert not needs_tables(agreed)
    agreed.mask_mod = lambda b, h, q, k: q >= k - 20  # the tables stay
    o = run(*tensors, agreed)
    right(o, tensors, lambda b, h, q, k: q // 16 >= k // 16)
    grads = torch.autograd.grad(o.sum(), tensors)
    plain = dense.doubled(tensors)
    expected, _ = dense.attention(*plain, None, lambda b, h, q, k: q // 16 >= k // 16)
    for name, got, wanted in zip("qkv", grads, torch.autograd.grad(expected.sum(), plain)):
        dense.assert_close("d" + name, got, wanted, torch.float32)


def test_tables_go_with_an_exported_program(tensors):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block_mask = diagonal(few)

        def forward(self, q, k, v):
            return flex_attention(q, k, v, block_mask=self.block_mask)

    program = torch.export.export(Model(), tuple(tensors))
    right(program.module()(*tensors), tensors, few_of_the_diagonal)


def test_tables_that_change_and_captured_values_that_change(tensors):
    """Tables are what they are when the call runs; a function of captured values never makes them superfluous."""
    mask = diagonal(causal)
    right(flex_attention(*tensors, block_mask=mask), tensors, lambda b, h, q, k: causal(b, h, q, k) & (q // 16 == k // 16))
    mask.kv_indices[0, 0, 5, 0] = 2
    moved = lambda b, h, q, k: (q >= k) & (k // 16 == torch.where(q // 16 == 5, 2, q // 16))
    right(flex_attention(*tensors, block_mask=mask), tensors, moved)
    doc = torch.arange(S) // 32
    same = lambda b, h, q, k: doc[q] == doc[k]
    theirs = torch_flex.create_block_mask(same, None, None, S, S, device="cpu", BLOCK_SIZE=16)
    right(flex_attention(*tensors, block_mask=theirs), tensors, same)
    doc.zero_()  # torch's tables know nothing of it
    before = lambda b, h, q, k: q // 32 == k // 32
    right(flex_attention(*tensors, block_mask=theirs), tensors, before)


def test_torchs_mask_that_keeps_all(tensors):
    """Made for any lengths, with one huge block."""
    empty = torch_flex._create_empty_block_mask(*tensors[:2])
    right(flex_attention(*tensors, block_mask=empty), tensors, None)


def test_a_sliced_mask_as_torch_takes_it(tensors):
    """A row of blocks, with the function moved by hand; without that it is torch's error."""
    whole = torch_flex.create_block_mask(causal, None, None, S, S, device="cpu", BLOCK_SIZE=16)
    part = whole[:, :, torch.tensor([2])]
    part.seq_lengths = (16, S)
    one = [tensors[0][:, :, 32:48], *tensors[1:]]
    with pytest.raises(RuntimeError, match="Cannot use mask_mod from a sliced BlockMask"):
        flex_attention(*one, block_mask=part)
    part.mask_mod = lambda b, h, q, k: q + 32 >= k
    right(flex_attention(*one, block_mask=part), one, lambda b, h, q, k: q + 32 >= k)
    short = [x[:, :, :48] for x in tensors]  # whole blocks: torch 2.11 counts no others
    right(flex_attention(*short, block_mask=whole._adjust(48, 48)), short, causal)


@pytest.mark.parametrize("q_len,kv_len", [(48, S), (S, 48), (S + 8, S), (S, S + 8)])
def test_masks_of_other_lengths_are_refused_as_torch_does(q_len, kv_len):
    q, k = torch.randn(2, 4, q_len, 16), torch.randn(2, 4, kv_len, 16)
    for make in (torch_flex.create_block_mask, create_block_mask):
        mask = make(causal, None, None, S, S, device="cpu", BLOCK_SIZE=16)
        with pytest.raises(ValueError, match="block_mask was created for block_mask.shape="):
            flex_attention(q, k, k, block_mask=mask)


def test_torchs_mask_with_a_batch_and_heads(tensors):
    doc = torch.randint(4, (2, S)).sort(-1).values
    mask = lambda b, h, q, k: (doc[b, q] == doc[b, k]) & (q - k < 10 * (h + 1))
    theirs = torch_flex.create_block_mask(mask, 2, 4, S, S, device="cpu", BLOCK_SIZE=32)
    right(flex_attention(*tensors, block_mask=theirs), tensors, mask)


def test_a_block_mask_is_small_at_any_length():
    mask = create_block_mask(causal, None, None, 1 << 24, 1 << 24)
    assert mask.shape == (1, 1, 1 << 24, 1 << 24) and "causal" in str(mask.to("cpu")) and mask.tables is None


def test_masks_are_traced_when_they_are_made():
    with pytest.raises(fovea.torch.TraceError, match="a Python branch"):
        create_block_mask(lambda b, h, q, k: True if q > k else False, None, None, 8, 8)
    with pytest.raises(TypeError, match="no argument 'BLOCKS'"):
        create_block_mask(causal, None, None, 8, 8, BLOCKS=3)
    assert create_block_mask(
        causal, None, None, 8, 8, device="cpu", BLOCK_SIZE=(64, 32), _compile=True
    ).BLOCK_SIZE == (64, 32)


def test_a_mask_changes_after_it_was_made(tensors):
    """The function is asked at every call, so its closure may change, and what it captures in place."""
    doc = torch.randint(3, (S,))
    mask = create_block_mask(lambda b, h, q, k: doc[q] == doc[k], None, None, S, S)
    right(flex_attention(*tensors, block_mask=mask), tensors, lambda b, h, q, k: doc[q] == doc[k])
    doc = torch.randint(5, (S,))
    right(flex_attention(*tensors, block_mask=mask), tensors, lambda b, h, q, k: doc[q] == doc[k])
    doc.copy_(torch.arange(S) % 3)
    right(flex_attention(*tensors, block_mask=mask), tensors, lambda b, h, q, k: doc[q] == doc[k])


@pytest.mark.parametrize("sizes", [(None, None), (2, 4)])
def test_ours_have_what_people_use_of_torchs(tensors, sizes):
    """Tables are made when they are asked for, and are torch's."""
    mask = lambda b, h, q, k: (q >= k) & (q - k < 20 * (h + 1))
    given = (mask, *sizes, S, S)
    ours = create_block_mask(*given, device="cpu", BLOCK_SIZE=16)
    theirs = torch_flex.create_block_mask(*given, device="cpu", BLOCK_SIZE=16)
    assert isinstance(ours, torch_flex.BlockMask) and ours.shape == theirs.shape and ours.numel() == theirs.numel()
    names = [f"{kind}_{what}" for kind in ("kv", "full_kv", "q", "full_q") for what in ("num_blocks", "indices")]
    assert all(torch.equal(getattr(ours, name), getattr(theirs, name)) for name in names)
    assert torch.equal(ours.to_dense(), theirs.to_dense()) and ours.sparsity() == theirs.sparsity()
    assert ours.to_string() == theirs.to_string() and str(ours) == str(theirs) and len(ours.as_tuple()) == len(theirs.as_tuple())
    part, wanted = ours[:, :, torch.tensor([1])], theirs[:, :, torch.tensor([1])]
    assert torch.equal(part.kv_indices, wanted.kv_indices)
    assert torch.equal(create_mask(mask, *sizes, S, S, device="cpu"), torch_flex.create_mask(mask, *sizes, S, S, device="cpu"))
    small = [x[:, :, :40] for x in tensors]
    right(flex_attention(*small, block_mask=ours._adjust(40, 40)), small, mask)


def test_ours_in_the_place_of_torchs(tensors, monkeypatch):
    """People put our function into torch's module; tables are still made by torch's own."""
    monkeypatch.setattr(torch_flex, "create_block_mask", create_block_mask)
    mask = torch_flex.create_block_mask(causal, None, None, S, S, device="cpu", BLOCK_SIZE=16)
    assert torch.equal(mask.to_dense()[0, 0], torch.ones(6, 6, dtype=torch.int32).tril())
    right(flex_attention(*tensors, block_mask=mask), tensors, causal)


def test_torchs_function_takes_our_block_masks(tensors):
    ours = create_block_mask(causal, None, None, S, S, device="cpu", BLOCK_SIZE=16)
    o = torch.compile(torch_flex.flex_attention, backend="aot_eager")(*tensors, block_mask=ours)
    right(o, tensors, causal)
    tables = type(ours).from_kv_blocks(ours.kv_num_blocks, ours.kv_indices, BLOCK_SIZE=16, seq_lengths=(S, S))
    assert isinstance(tables, torch_flex.BlockMask)
