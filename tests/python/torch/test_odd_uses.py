"""Uses that are rare and were once wrong, or could be: tensors whose memory is not their values, packed batches that differ
in nothing but the number of sequences, transforms of torch.func, devices without memory."""

import subprocess
import sys

import dense
import pytest
import torch

import fovea
from fovea.torch import attention, call_cache, flex_attention, runtime
from fovea.torch.call import PLAIN, VIEWER, AskingViewer


def negated(*shape):
    """Its memory is that of a complex tensor, its values the imaginary parts with the other sign."""
    x = torch.randn(*shape, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    return x


def test_tensors_whose_memory_has_another_sign():
    q, k, v, table = negated(2, 4, 5, 8), torch.randn(2, 4, 7, 8), negated(2, 4, 7, 8), negated(4)
    k.requires_grad_()
    mod = lambda s, b, h, i, j: s * table[h]
    for _ in range(3):  # the plain tensors of the same strides in between must not be taken for them
        for one in (q, q.resolve_neg()):
            o = flex_attention(one, k, v, mod)
            ref, _ = dense.attention(q.double(), k.double(), v.double(), mod)
            dense.assert_close("o", o, ref, torch.float32)
            grad_o = negated(2, 4, 5, 8)
            found, wanted = (torch.autograd.grad(x, k, grad_o.to(x.dtype))[0] for x in (o, ref))
            dense.assert_close("dk", found, wanted, torch.float32, gradient=True)
    sinks = negated(4)
    o = attention(q, k, v, sinks=sinks)
    assert torch.equal(o, attention(q, k, v, sinks=sinks.resolve_neg()))


def test_packed_batches_of_other_numbers_of_sequences():
    """The same tensors and the same longest sequence: the number of sequences is part of what a plan is made for."""
    q, k, v = (torch.randn(6, 2, 8, requires_grad=True) for _ in range(3))
    for starts in ([0, 3, 6], [0, 3, 3, 6], [0, 3], [0, 3, 4, 5, 6], [0, 3, 6]):
        o = attention(q, k, v, layout="thd", cu_seqlens=torch.tensor(starts), max_seqlen=3)
        ref = torch.zeros(6, 2, 8, dtype=torch.float64)
        for a, b in zip(starts, starts[1:]):
            if a < b:
                one = [x[None, a:b].transpose(1, 2).double() for x in (q, k, v)]
                ref[a:b] = dense.attention(*one)[0][0].transpose(0, 1)
        dense.assert_derived(o, (q, k, v), ref, (q, k, v))


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_numbers_as_sequences_and_sinks_as_heads(count):
    """The library reads one per sequence, or head: one fewer would be another's memory. Known calls are checked, too."""
    q, numbers = torch.randn(2, 2, 4, 8), torch.ones(count, dtype=torch.int64)
    attention(q, q, q, seq_lens=torch.tensor([3, 4]), q_offset=torch.tensor([0, 1]))
    attention(q, q, q, sinks=torch.zeros(2))
    with pytest.raises(fovea.InvalidArgument, match=rf"sinks: shape \[{count}\]; must be \[2\]"):
        attention(q, q, q, sinks=torch.zeros(count))
    for name in ("seq_lens", "q_offset", "k_offset"):
        with pytest.raises(fovea.InvalidArgument, match=rf"{name}: shape \[{count}\]; must be \[2\]"):
            attention(q, q, q, **{name: numbers})
    packed = torch.randn(6, 2, 8)
    with pytest.raises(fovea.InvalidArgument, match=rf"seq_lens: shape \[{count}\]; must be \[2\]"):
        attention(packed, packed, packed, layout="thd", cu_seqlens=[0, 3, 6], seq_lens=numbers)


def test_lengths_as_lists():
    q = torch.randn(2, 2, 4, 8)
    by_tensor = attention(q, q, q, seq_lens=torch.tensor([3, 4]))
    assert torch.equal(attention(q, q, q, seq_lens=[3, 4]), by_tensor)
    assert torch.equal(attention(q, q, q, seq_lens=([3, 4], [3, 4])), by_tensor)
    assert torch.equal(attention(q[:1], q[:1], q[:1], seq_lens=[3]), by_tensor[:1])


def test_no_heads():
    q = torch.randn(2, 0, 4, 8, requires_grad=True)
    o = flex_attention(q, q, q)
    o.sum().backward()
    assert o.shape == q.grad.shape == (2, 0, 4, 8)


def test_jacobian_by_reverse_mode():
    """vmap over the backward alone: the output and lse are the same for all of it."""
    q, k = torch.randn(1, 1, 3, 4), torch.randn(2, 2, 3, 4)
    for x in (q, k):
        found = torch.func.jacrev(lambda x: flex_attention(x, x, x))(x)
        wanted = torch.func.jacrev(lambda x: dense.attention(x, x, x)[0])(x.double())
        dense.assert_close("the jacobian", found, wanted, torch.float32, gradient=True)


def test_beside_a_transform():
    """Inside torch.func.grad, on tensors that it does not wrap."""
    w, x = torch.randn(2, 4, 5, 8, requires_grad=True), torch.randn(2, 4, 5, 8)
    o = flex_attention(w, w, w)
    grad = torch.func.grad(lambda x: (x * flex_attention(w, w, w)).sum())(x)
    assert torch.equal(grad, o)


def test_meta_tensors_have_shapes():
    q = torch.randn(2, 3, 4, 8, device="meta").transpose(1, 2).requires_grad_()
    o, lse = flex_attention(q, q, q, lambda s, b, h, i, j: s + h, return_lse=True)
    assert o.is_meta and o.shape == q.shape and o.stride() == torch.empty_like(q).stride()
    assert lse.shape == (2, 4, 3)
    o.sum().backward()
    assert q.grad.is_meta and q.grad.shape == q.shape


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jit_trace_sees_the_operator():
    """What was computed while it looked is no constant."""
    function = lambda q: q + flex_attention(q, q, q, lambda s, b, h, i, j: s * 2)
    q, other = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8)
    function(q)
    traced = torch.jit.trace(function, (q,))
    assert "fovea::attention" in str(traced.graph)
    assert torch.equal(traced(other), function(other))


def test_direct_calls_and_others_of_the_same_tensors():
    """Calls that run without Python beside those that want more: each gives what the long way gives."""
    q, table = torch.randn(2, 4, 5, 8), torch.randn(4)
    mod = lambda s, b, h, i, j: s * table[h]
    call = lambda **options: flex_attention(q, q, q, mod, **options)
    fovea.cache_clear()
    first = call(scale=0.3)
    for _ in range(3):
        o = call(scale=0.3)
        assert torch.equal(o, first) and not o.requires_grad
        assert torch.equal(call(scale=0.3, return_lse=True)[0], first)
        table.requires_grad_()
        assert call(scale=0.3).requires_grad
        with torch.no_grad():
            assert torch.equal(call(scale=0.3), first)
        table.requires_grad_(False)
        with torch.inference_mode():
            assert call(scale=0.3).is_inference()
    table.mul_(2)
    assert not torch.equal(call(scale=0.3), first)
    assert all(kept.direct is not None for kept in call_cache.TABLE.values.values())


def test_a_learned_scale_gets_its_gradient():
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    scale = torch.tensor(0.5, requires_grad=True)
    exact = scale.detach().double().requires_grad_()
    mod = lambda s, b, h, i, j: torch.tanh(s) + (i - j) * 0.1
    for score_mod in (None, mod):
        ref, _ = dense.attention(q.double(), k.double(), v.double(), score_mod, None, exact)
        (wanted,) = torch.autograd.grad(ref.square().sum(), exact)
        for call in (flex_attention, attention, torch.compile(attention, fullgraph=True, backend="aot_eager")):
            for _ in range(2):
                o = call(q, k, v, score_mod=score_mod, scale=scale)
                dense.assert_close("o", o, ref, torch.float32)
                (got,) = torch.autograd.grad(o.square().sum(), scale)
                dense.assert_close("dscale", got, wanted, torch.float32, gradient=True)
            torch.testing.assert_close(call(q, q, q, scale=scale.detach()), call(q, q, q, scale=0.5))
    with pytest.raises(fovea.InvalidArgument, match="scale: a learned one goes with a score_mod that is a function"):
        attention(q, k, v, score_mod="score + 1", scale=scale)


def test_both_viewers_tell_the_same_tensors_apart():
    x = torch.randn(4, 6)
    pairs = [x, x.clone(), x.t(), x[::2], x[:, 1:], x.half(), x.int(), x.expand(2, 4, 6), torch.tensor(1.0)]
    pairs += [torch.nn.Parameter(x), x.clone().requires_grad_()]
    assert VIEWER is not AskingViewer, "this version of torch has DLPack's table"
    for with_gradients in (False, True):
        ours, asking = ([view([y], with_gradients) for y in pairs] for view in (VIEWER.signature, AskingViewer.signature))
        for i in range(len(pairs)):
            for j in range(len(pairs)):
                assert (ours[i] == ours[j]) == (asking[i] == asking[j]), (i, j)
    for view in (VIEWER.signature, AskingViewer.signature):
        assert view([x, x], False) != view([x, x.clone()], False)
        for refused in (negated(3), x.to_sparse(), x.as_subclass(type("T", (torch.Tensor,), {}))):
            assert view([x, refused], False) is None
    assert type(x) in PLAIN


def test_without_the_table_calls_go_the_long_way(monkeypatch):
    q, table = torch.randn(2, 4, 5, 8), torch.randn(4)
    mod = lambda s, b, h, i, j: s + table[h]
    fast = [flex_attention(q, q, q, mod) for _ in range(2)]
    monkeypatch.setattr(call_cache, "find", None)
    monkeypatch.setattr(runtime, "VIEWER", AskingViewer)
    for _ in range(2):
        assert torch.equal(flex_attention(q, q, q, mod), fast[1])
        assert torch.equal(attention(q, q, q, score_mod=mod), fast[0])


def test_a_direct_call_with_a_workspace_of_its_own(monkeypatch):
    """As on a GPU, where torch allocates it: the call and its backward give the same bits."""
    q, table = torch.randn(2, 4, 5, 8, requires_grad=True), torch.randn(4, requires_grad=True)
    mod = lambda s, b, h, i, j: s + table[h]

    def results():
        o, lse = attention(q, q, q, score_mod=mod, return_lse=True)
        return o, lse, *torch.autograd.grad(o.square().sum(), (q, table))

    expected = results()
    call_cache.TABLE.clear()
    made = []

    def with_workspace(prepare):
        def prepared(*arguments):
            made.append(prepare(*arguments))
            made[-1].workspace = made[-1].plan.workspace() + 64
            return made[-1]

        return prepared

    for name in ("prepare_forward", "prepare_backward"):
        monkeypatch.setattr(runtime, name, with_workspace(getattr(runtime, name)))
    for _ in range(3):  # the first one looks for a plan, the others are direct
        for x, wanted in zip(results(), expected):
            assert torch.equal(x, wanted)
    assert len(made) == 2 and all(prepared.direct is not None for prepared in made)
    call_cache.TABLE.clear()


# --- Processes: the workers of a DataLoader, forked after their parent has called, call too, forward and backward ---


# In a process of its own, whose end the test can bring about: a child that hangs would hold up its parent for ever.
LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

from fovea.torch import attention, flex_attention

slopes = torch.linspace(0.1, 0.4, 4)


def results(number):
    q, k, v = torch.randn(3, 1, 4, 70, 32, generator=torch.Generator().manual_seed(number)).unbind()
    q.requires_grad_()
    o = flex_attention(q, k, v, lambda s, b, h, i, j: s + slopes[h] * (j - i))
    o = o + attention(q, k, v, score_mod="20 * tanh(score / 20)", is_causal=True)
    return torch.stack([o.detach(), *torch.autograd.grad(o.square().sum(), q)])


class Results(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, number):
        return results(number)


wanted = [results(number) for number in range(6)]
for _ in range(2):  # the second round's workers are forked after the first's have ended
    loader = DataLoader(Results(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=240)
    assert all(torch.equal(got, want) for got, want in zip(loader, wanted, strict=True)), "a worker's result differs"
assert torch.equal(results(0), wanted[0])
print("all the same")
"""


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="torch's own backward does not run in a forked process if CUDA is there"
)
def test_workers_that_are_forked_call_on():
    done = subprocess.run([sys.executable, "-c", LOADER], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all the same\n"
