"""Modifiers are run at every call and looked up by what they did: a call uses what they read now, whatever has changed
since, and one that does what was done before replays and prepares nothing."""

import gc
import weakref

import dense
import numpy as np
import pytest
import torch
from changing_modifiers import CHANGES, MOD, STATEFUL, A, Thing, changing_parameters, in_space

import fovea
from fovea.torch import TraceError, and_masks, attention, call_cache, create_block_mask, flex_attention, or_masks, runtime
from fovea.torch.call import BoundCall, Call
from fovea.torch.call_cache import TABLE
from fovea.torch.modifiers import traced
from fovea.torch.steps import formulas_of, written

LIKE = torch.zeros(1, 4, 8, 8)


@pytest.fixture
def replays(monkeypatch):
    """Counts how often steps are replayed because no such call was made before."""
    count = []
    monkeypatch.setattr(call_cache, "formulas_of", lambda *args: count.append(1) or formulas_of(*args))
    fovea.cache_clear()
    return count


def same(mod, mask=None):
    """What replayed steps give is what a trace gives: texts, uses, and the very tensors."""
    found = formulas_of(written((mod, mask), LIKE), (mod, mask))
    fresh = traced(mod, mask, like=LIKE)
    assert found.text() == fresh.text()
    assert len(found.tensors) == len(fresh.tensors)
    for x, y in zip(found.tensors, fresh.tensors):
        assert x is y or (x.dtype == y.dtype and torch.equal(x, y))  # converted ones are new each time
    return found.text()


@pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__)
def test_what_changed_is_seen(make, replays):
    """After each change, and back again, steps give what a trace gives; a second call replays nothing."""
    mod, steps = make()
    texts = [same(mod)]
    for step in [lambda: None, *steps]:
        step()
        texts.append(same(mod))
        first = flex_attention(LIKE, LIKE, LIKE, mod)
        before = len(replays)
        assert torch.equal(flex_attention(LIKE, LIKE, LIKE, mod), first)
        assert len(replays) == before, "looked up in vain"
    assert len(set(texts)) > 1 or make is changing_parameters


@pytest.mark.parametrize("make", STATEFUL, ids=lambda make: make.__name__)
def test_what_each_run_does_is_computed(make, monkeypatch):
    """A call computes what its own run of the modifier did, and runs it once."""
    mod, change = make()
    runs = []
    monkeypatch.setattr(call_cache, "written", lambda *args: runs.append(written(*args)) or runs[-1])
    tensors = [torch.randn(1, 4, 8, 8) for _ in range(3)]
    for i in range(4):
        o = flex_attention(*tensors, mod)
        assert len(runs) == i + 1
        found = formulas_of(runs[-1], (mod, None))
        assert torch.equal(o, runtime.forward(BoundCall(Call(found.text()), *tensors, None, found.tensors))[0])
        change()


def published():
    table, doc, slopes = torch.randn(4, 8, 8), torch.arange(8) // 3, torch.rand(4)
    causal = lambda b, h, q, k: q >= k
    window = lambda b, h, q, k: q - k < 3
    return {
        "softcap": ((lambda s, b, h, q, k: 20.0 * torch.tanh(s / 20.0)), None),
        "alibi": ((lambda s, b, h, q, k: s + torch.exp2(-8.0 * (h + 1) / 4) * (k - q)), None),
        "slopes": ((lambda s, b, h, q, k: s + slopes[h] * (k - q)), causal),
        "bias": ((lambda s, b, h, q, k: s + table[h, q, k]), None),
        "sliding": (None, lambda b, h, q, k: (q >= k) & (q - k < 4)),
        "documents": (None, lambda b, h, q, k: doc[q] == doc[k]),
        "both": (None, and_masks(causal, window)),
        "either": (None, or_masks(and_masks(causal, window), lambda b, h, q, k: k < 2)),
        "negated": (lambda s, b, h, q, k: torch.where(doc[q] == doc[k], s, -float("inf")), causal),
    }


@pytest.mark.parametrize("name", published())
def test_what_people_write_is_found_again(name, replays):
    """The second call neither replays nor prepares, with gradients and without."""
    mod, mask = published()[name]
    block = mask and create_block_mask(mask, None, None, 8, 8)
    for grad in (False, True):
        tensors = [torch.randn(2, 4, 8, 8, requires_grad=grad) for _ in range(3)]
        first = flex_attention(*tensors, mod, block)
        before, kept = len(replays), len(TABLE)
        assert torch.equal(flex_attention(*tensors, mod, block), first)
        assert len(replays) == before and len(TABLE) == kept
        dense.assert_right(first, tensors, mod, mask)


def test_other_things_that_say_which_call_it_is(monkeypatch):
    """One modifier; strides, types, gradients, options and the environment change between calls."""
    table = torch.randn(4)
    mod = lambda s, b, h, q, k: s + table[h] * (k - q)

    def check(tensors, **options):
        o = flex_attention(*tensors, mod, **options)
        ref, _ = dense.attention(*(x.detach().double() for x in tensors), mod, scale=options.get("scale"))
        dense.assert_close("o", o, ref, o.dtype)
        return o

    tensors = [torch.randn(2, 4, 8, 8) for _ in range(3)]
    for _ in range(2):
        check(tensors)
        check([x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors])
        check([x.to(torch.bfloat16) for x in tensors])
        check([x[:1] for x in tensors])
        check(tensors, scale=0.25)
        check(tensors, scale=1)
        trained = check([x.clone().requires_grad_() for x in tensors])
        assert trained.requires_grad and not check(tensors).requires_grad
        with torch.no_grad():
            assert not check([x.clone().requires_grad_() for x in tensors]).requires_grad
        table.requires_grad_()
        assert torch.autograd.grad(check(tensors).sum(), table)[0].shape == (4,)
        table.requires_grad_(False)
        o, lse = flex_attention(*tensors, mod, return_lse=True)
        assert torch.equal(o, check(tensors)) and lse.shape == (2, 4, 8)
        with torch.amp.autocast("cpu", dtype=torch.bfloat16):
            assert flex_attention(*tensors, mod).dtype == torch.bfloat16
        monkeypatch.setenv("FOVEA_ENGINE", "no such engine")
        with pytest.raises(fovea.Error, match="no such engine"):
            flex_attention(*tensors, mod)
        monkeypatch.delenv("FOVEA_ENGINE")


def test_what_a_modifier_does_not_ask_for_is_not_computed():
    """An attribute of a branch that is not taken: a property is not run, one that is not there is no error."""

    class Lazy:
        off, asked = True, 0

        @property
        def table(self):
            self.asked += 1
            return A

        def __getattr__(self, name):
            raise RuntimeError(f"{name} is not ready")

    lazy = Lazy()
    for mod in (
        lambda s, b, h, q, k: s if lazy.off else s + lazy.table[h],
        lambda s, b, h, q, k: s if lazy.off else s + lazy.missing[h],
    ):
        for _ in range(2):
            same(mod)
    assert lazy.asked == 0


class Negated(torch.overrides.TorchFunctionMode):
    """A mode of the caller's that sees what a modifier does."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return -out if func is torch.ones else out


def test_modes_around_a_call(replays):
    """A default device changes nothing of a formula; other modes may, and are let do so at every call."""
    mod = lambda s, b, h, q, k: s * torch.ones((4,))[h]
    plain = lambda s, b, h, q, k: s * 3.0
    tensors = [torch.randn(1, 4, 8, 8) for _ in range(3)]
    tripled = flex_attention(*tensors, plain)
    with torch.device("cpu"):
        before = len(replays)
        assert torch.equal(flex_attention(*tensors, plain), tripled)
        assert len(replays) == before
    expected = [flex_attention(*tensors, mod), flex_attention(*tensors, lambda s, b, h, q, k: -s)]
    with Negated():
        assert torch.equal(flex_attention(*tensors, mod), expected[1])
    assert torch.equal(flex_attention(*tensors, mod), expected[0])


def test_a_scale_in_a_tensor_may_change():
    scale, tensors = torch.tensor(0.5), [torch.randn(1, 2, 8, 8) for _ in range(3)]
    for _ in range(2):
        o = attention(*tensors, scale=scale)
        assert torch.equal(o, attention(*tensors, scale=float(scale)))
        scale.mul_(2.0)


def test_nothing_of_the_callers_is_kept():
    """Neither functions nor tensors nor code."""
    tensors = [torch.randn(1, 4, 8, 8) for _ in range(3)]
    table, thing = torch.randn(4), Thing(table=torch.randn(4), scale=2.0)
    mod, space = in_space(MOD + "s + table[h] + thing.table[h]", table=table, thing=thing)
    flex_attention(*tensors, mod), flex_attention(*tensors, mod)
    lengths, sinks = torch.tensor([7], dtype=torch.int32), torch.randn(4)
    attention(*tensors, score_mod=mod, seq_lens=lengths, sinks=sinks, q_offset=lengths)
    refs = [weakref.ref(x) for x in (mod, mod.__code__, table, thing, thing.table, lengths, sinks)]
    del mod, table, thing, lengths, sinks
    space.clear()
    gc.collect()
    assert not any(ref() for ref in refs)


def test_the_table_is_bounded_and_cleared():
    for i in range(TABLE._limit + 20):
        TABLE.put(i, i)
    assert len(TABLE) == TABLE._limit
    fovea.cache_clear()
    assert len(TABLE) == 0


@pytest.mark.parametrize(
    "mod",
    [
        lambda s, b, h, q, k: s.to(s.dtype) * s.new_tensor(2.0) if s.dtype == torch.float32 else -s,
        lambda s, b, h, q, k: s + (h * 2).to(torch.float32).abs() if (h * 2).dtype == torch.int32 else -s,
        lambda s, b, h, q, k: s + A[h] + np.float32(1.5) - np.float64(0.25),
        lambda s, b, h, q, k: s * torch.tensor(0.5) + torch.full((), 3) - torch.ones(()),
        lambda s, b, h, q, k: torch.clamp(s, min=-1.0, max=2) + F.softplus(s, beta=2),
        lambda s, b, h, q, k: s + sum(x * 2 for x in PAIRS[h]) + len(PAIRS[h]) + PAIRS[h].sum(),
        lambda s, b, h, q, k: s + torch.dot(PAIRS[h], PAIRS[b]) * PAIRS[h].shape[0],
        lambda s, b, h, q, k: torch.where((STARTS <= q).any(), s, 2 ** 40 * 1.0),
        lambda s, b, h, q, k: s + ONE + ONE.reshape(1, 1)[0, 0] * h,
        lambda s, b, h, q, k: divmod(7, 2)[0] + 1.0 / (2.0 + abs(s)) - (-s) % 3 + (q << 1) + (k >> 1) ** 2,
        lambda s, b, h, q, k: s * (~(q >= k) | ((q ^ k) == 1)) + (+q // 2),
    ],
)
def test_what_symbols_are_asked(mod, replays):
    """Types, lengths, items, numbers of NumPy: as a trace answers them."""
    same(mod)
    tensors = [torch.randn(1, 4, 8, 8) for _ in range(3)]
    first, before = flex_attention(*tensors, mod), len(replays)
    assert torch.equal(flex_attention(*tensors, mod), first) and len(replays) == before
    assert torch.equal(attention(*tensors, score_mod=mod), first)


F = torch.nn.functional
PAIRS, STARTS, ONE = torch.randn(4, 2), torch.tensor([0, 3, 6]), torch.tensor([1.5])


def test_an_error_that_a_modifier_catches():
    """Half of a step must not stay behind."""
    thing = object()

    def mod(s, b, h, q, k):
        try:
            return s + thing
        except Exception:
            return s * 2.0

    tensors = [torch.randn(1, 4, 8, 8) for _ in range(3)]
    for _ in range(2):
        assert torch.equal(flex_attention(*tensors, mod), flex_attention(*tensors, lambda s, b, h, q, k: s * 2.0))


def test_errors_name_the_line_of_the_modifier():
    tensors = [torch.randn(1, 4, 8, 8) for _ in range(3)]

    def late(s, b, h, q, k):
        rows = PAIRS[h]
        return rows

    def mixed(s, b, h, q, k):
        odd = torch.fft.fft(s)
        return odd

    for mod, words in ((late, r"a result of shape \[2\]"), (mixed, "fft.*odd = torch.fft.fft")):
        with pytest.raises(TraceError, match=words):
            flex_attention(*tensors, mod)
    with pytest.raises(TraceError, match="a Python branch on a traced value.*if q > k"):
        flex_attention(*tensors, lambda s, b, h, q, k: s if q > k else -s)


def test_one_memory_for_a_number_and_its_tensor():
    """A tensor of one element that is taken for a number: its value is read when the call runs, its gradient arrives."""
    tensors = [torch.randn(1, 4, 8, 8) for _ in range(3)]
    cap = torch.tensor([2.0], requires_grad=True)
    for value in (2.0, 3.0, 0.5):
        with torch.no_grad():
            cap.fill_(value)
        o = flex_attention(*tensors, lambda s, b, h, q, k: cap * torch.tanh(s / cap))
        assert torch.equal(o, flex_attention(*tensors, lambda s, b, h, q, k: value * torch.tanh(s / value)))
        assert torch.autograd.grad(o.sum(), cap)[0].shape == (1,)


def test_a_number_on_the_host_meets_a_query_elsewhere():
    """As on a GPU: the formula has it as a number."""
    like, cap = torch.empty(1, 2, 3, 4, device="meta"), torch.tensor(20.0)
    modifiers = (lambda s, b, h, q, k: cap * torch.tanh(s / cap), None)
    texts = []
    for value in (20.0, 20.0, 5.0):
        cap.fill_(value)
        formulas = formulas_of(written(modifiers, like), modifiers)
        assert not formulas.tensors
        texts.append(formulas.mod)
    assert texts[0] == texts[1] != texts[2]
