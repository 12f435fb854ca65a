"""What is remembered of modifiers: the same as tracing them again, whatever has changed since; and what is never
remembered, because it cannot be compared."""

import gc
import weakref

import dense
import pytest
import torch
from memory_changes import CHANGES, MOD, NEVER, A, Thing, changing_parameters, in_space

import fovea
from fovea.torch import and_masks, attention, create_block_mask, flex_attention, front, memory, modifiers, or_masks
from fovea.torch.modifiers import formulas

LIKE = torch.zeros(1, 4, 8, 8)
TRACED = modifiers.traced


@pytest.fixture
def traces(monkeypatch):
    """Counts how often a modifier is traced."""
    count = []
    monkeypatch.setattr(modifiers, "traced", lambda *args: count.append(1) or TRACED(*args))
    fovea.cache_clear()
    return count


def same(mod, mask=None):
    """What formulas() gives is what a fresh trace gives: texts, uses, and the very tensors."""
    found = formulas(mod, mask, like=LIKE)
    fresh, _ = TRACED(mod, mask, None, None, None, LIKE)
    assert found.text() == fresh.text()
    assert len(found.tensors) == len(fresh.tensors)
    for x, y in zip(found.tensors, fresh.tensors):
        assert x is y or (x.dtype == y.dtype and torch.equal(x, y))  # converted ones are new each time
    return found.text()


@pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__)
def test_what_changed_is_seen(make, traces):
    """After each change, and back again, memory gives what a trace gives; in between it traces nothing."""
    mod, steps = make()
    texts = [same(mod)]
    for step in [lambda: None, *steps]:
        step()
        texts.append(same(mod))
        before = len(traces)
        formulas(mod, like=LIKE)
        assert len(traces) == before, "not remembered"
    assert len(set(texts)) > 1 or make is changing_parameters


@pytest.mark.parametrize("make", NEVER, ids=lambda make: make.__name__)
def test_what_cannot_be_compared_is_traced(make, traces):
    mod, change = make()
    for _ in range(3):
        before = len(traces)
        formulas(mod, like=LIKE)
        flex_attention(LIKE, LIKE, LIKE, mod)
        assert len(traces) == before + 2
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
def test_what_people_write_is_remembered(name, traces):
    """The second call neither traces nor prepares, with gradients and without."""
    mod, mask = published()[name]
    block = mask and create_block_mask(mask, None, None, 8, 8)
    for grad in (False, True):
        tensors = [torch.randn(2, 4, 8, 8, requires_grad=grad) for _ in range(3)]
        first = flex_attention(*tensors, mod, block)
        before, ready = len(traces), len(front.READY)
        assert torch.equal(flex_attention(*tensors, mod, block), first)
        assert len(traces) == before and len(front.READY) == ready
        ref, _ = dense.attention(*(x.double() for x in tensors), mod, mask)
        dense.assert_close("o", first, ref, torch.float32)


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


def test_modes_around_a_call(traces):
    """A default device changes nothing of a formula; other modes may, and are let do so at every call."""
    mod = lambda s, b, h, q, k: s * torch.ones((4,))[h]
    plain = lambda s, b, h, q, k: s * 3.0
    formulas(plain, like=LIKE)
    with torch.device("cpu"):
        before = len(traces)
        formulas(plain, like=LIKE)
        assert len(traces) == before
    tensors = [torch.randn(1, 4, 8, 8) for _ in range(3)]
    expected = [flex_attention(*tensors, mod), flex_attention(*tensors, lambda s, b, h, q, k: -s)]
    with Negated():
        assert torch.equal(flex_attention(*tensors, mod), expected[1])
        before = len(traces)
        formulas(plain, like=LIKE)
        assert len(traces) == before + 1
    assert torch.equal(flex_attention(*tensors, mod), expected[0])


def test_a_scale_in_a_tensor_may_change():
    scale, tensors = torch.tensor(0.5), [torch.randn(1, 2, 8, 8) for _ in range(3)]
    for _ in range(2):
        o = attention(*tensors, scale=scale)
        assert torch.equal(o, attention(*tensors, scale=float(scale)))
        scale.mul_(2.0)


def test_nothing_of_the_callers_is_kept():
    """Neither functions nor tensors nor code: a dead function's record goes with it."""
    tensors = [torch.randn(1, 4, 8, 8) for _ in range(3)]
    table, thing = torch.randn(4), Thing(table=torch.randn(4), scale=2.0)
    mod, space = in_space(MOD + "s + table[h] + thing.table[h]", table=table, thing=thing)
    flex_attention(*tensors, mod), flex_attention(*tensors, mod)
    refs = [weakref.ref(x) for x in (mod, mod.__code__, table, thing, thing.table)]
    del mod, table, thing
    space.clear()
    gc.collect()
    assert not any(ref() for ref in refs)


def test_memory_is_bounded_and_cleared():
    for i in range(memory.REMEMBERED._limit + 20):
        formulas(lambda s, b, h, q, k: s + i, like=LIKE)
    assert len(memory.REMEMBERED) == memory.REMEMBERED._limit
    fovea.cache_clear()
    assert len(memory.REMEMBERED) == 0 and len(front.READY) == 0
