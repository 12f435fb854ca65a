"""A modifier is what it computes. These would fail with a cache that is keyed by Python objects."""

import functools
import threading

import dense
import pytest
import torch
from dense import assert_right

import fovea
from fovea.torch import attention, create_block_mask, flex_attention


@pytest.fixture
def tensors():
    return [torch.randn(2, 4, 21, 16) for _ in range(3)]


def builds():
    return fovea.cache_stats()["builds"]


def test_addresses_are_reused(tensors):
    """A new function at the address of a dead one is another function."""
    seen = set()
    for number in range(60):
        mod = eval(f"lambda s, b, h, q, k: s * {1 + number * 0.25} + h")
        seen.add(id(mod))
        assert_right(flex_attention(*tensors, mod), tensors, mod)
        del mod
    assert len(seen) < 60, "no address was used twice: the test shows nothing"


def test_a_redefined_function(tensors):
    """The same name, the same place in the source, another body."""
    space = {"torch": torch}
    for body in ("s + h", "s - h", "torch.tanh(s)"):
        exec(f"def mod(s, b, h, q, k):\n    return {body}\n", space)
        assert_right(flex_attention(*tensors, space["mod"]), tensors, space["mod"])


def test_lambdas_of_one_module(tensors):
    first, second = (lambda s, b, h, q, k: s + 1.0 * h), (lambda s, b, h, q, k: s - 1.0 * h)
    assert first.__qualname__ == second.__qualname__
    assert_right(flex_attention(*tensors, first), tensors, first)
    assert_right(flex_attention(*tensors, second), tensors, second)


class Slope:
    def __init__(self, value):
        self.value = value

    def mod(self, s, b, h, q, k):
        return s + self.value * (k - q)

    def __call__(self, s, b, h, q, k):
        return self.mod(s, b, h, q, k)


def with_slope(slope, s, b, h, q, k):
    return s + slope * (k - q)


def test_closures_partials_and_methods_share_one_plan(tensors):
    """Each call makes a new object; none of them builds anything after the first."""
    make = [
        lambda x: lambda s, b, h, q, k: s + x * (k - q),
        lambda x: Slope(x).mod,
        Slope,
        lambda x: functools.partial(with_slope, x),
    ]
    flex_attention(*tensors, make[0](0.5))
    before = builds()
    for _ in range(3):
        for maker in make:
            mod = maker(0.5)
            assert_right(flex_attention(*tensors, mod), tensors, mod)
    assert builds() == before


def test_other_data_of_the_same_shape(tensors):
    before = None
    for _ in range(3):
        bias = torch.randn(4, 21, 21)
        mod = lambda s, b, h, q, k: s + bias[h, q, k]
        assert_right(flex_attention(*tensors, mod), tensors, mod)
        before = builds() if before is None else before
    assert builds() == before


def test_changed_in_place_before_the_backward(tensors):
    q = tensors[0].requires_grad_()
    table = torch.randn(4, requires_grad=True)
    o = flex_attention(*tensors, lambda s, b, h, q, k: s + table[h] * s)
    with torch.no_grad():
        table.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(o.sum(), q)


class Stateful:
    """Its backward needs what its forward stored, as Transformer Engine's examples do it."""

    def forward(self, graph, score, tensors):
        self.tanh = graph.tanh(graph.div(score, tensors["cap"]))
        return graph.mul(self.tanh, tensors["cap"])

    def backward(self, graph, grad, tensors):
        return graph.mul(grad, graph.sub(tensors["one"], graph.mul(self.tanh, self.tanh)))


def test_stateful_objects_in_any_order(tensors):
    """Two forwards before two backwards, and the other way round."""
    one, caps = torch.ones(1, 1, 1, 1), [torch.full((1, 1, 1, 1), x) for x in (0.5, 3.0)]
    modifier = Stateful()
    inputs = [x.requires_grad_() for x in tensors]
    outs = [
        attention(
            *inputs,
            score_mod=modifier.forward,
            score_mod_bprop=modifier.backward,
            tensors={"cap": cap},
            bprop_tensors={"one": one},
        )
        for cap in caps
    ]
    for o, cap in ((outs[0], 0.5), (outs[1], 3.0)):
        exact = dense.doubled(inputs)
        ref, _ = dense.attention(*exact, lambda s, b, h, q, k: cap * torch.tanh(s / cap))
        dense.assert_derived(o, inputs, ref, exact)


def test_new_numbers_build_nothing(tensors):
    """Floats in closures, scalars of texts, tensors of one element: new values, no new plan."""
    cap = torch.tensor(2.0)

    def run(x):
        mod = lambda s, b, h, q, k: x * torch.tanh(s / x) + 0.1 * x * h
        assert_right(flex_attention(*tensors, mod), tensors, mod)
        attention(*tensors, score_mod="score * a + n", scalars={"a": x, "n": int(x)})
        cap.fill_(x)
        flex_attention(*tensors, lambda s, b, h, q, k: cap * torch.tanh(s / cap))

    run(3.5)
    before = builds()
    for i in range(10):
        run(5.25 + i)
    assert builds() == before


def test_lengths_and_scales_build_nothing(tensors):
    attention(*tensors, scale=0.5, q_offset=1, is_causal=True)
    before = builds()
    for i in range(5):
        attention(*tensors, scale=0.1 * i + 0.2, q_offset=i, is_causal=True)
    assert builds() == before


def test_many_threads(tensors):
    """The interpreter's lock is released while attention runs, and every thread gets its own result."""
    expected = [flex_attention(*tensors, lambda s, b, h, q, k: s * (1.0 + i)) for i in range(4)]
    wrong = []

    def work(i):
        for _ in range(20):
            if not torch.equal(flex_attention(*tensors, lambda s, b, h, q, k: s * (1.0 + i)), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_smaller_last_batch(tensors):
    """Another batch and other lengths share the plan, captured tensors of that batch included."""

    def run(batch, length):
        q, k, v = (torch.randn(batch, 4, length, 16) for _ in range(3))
        doc = torch.randint(3, (batch, length))
        slopes = torch.rand(batch, 4)
        mask = create_block_mask(lambda b, h, i, j: doc[b, i] == doc[b, j], None, None, length, length)
        mod = lambda s, b, h, i, j: s * slopes[b, h]
        assert_right(flex_attention(q, k, v, mod, mask), (q, k, v), mod, lambda b, h, i, j: doc[b, i] == doc[b, j])

    run(4, 24)
    before = builds()
    run(3, 24)
    run(1, 17)
    assert builds() == before


def test_gradients_that_are_zero(tensors):
    """A captured tensor that no formula reads, a score that is ignored, a captured number."""
    q, k, v = (x.requires_grad_() for x in tensors)
    unused, table = torch.randn(3, requires_grad=True), torch.randn(4, 21, requires_grad=True)
    o = attention(q, k, v, score_mod="table[h, k]", tensors={"table": table, "unused": unused})
    grads = torch.autograd.grad(o.square().sum(), (q, k, v, unused, table))
    assert all(torch.equal(g, torch.zeros_like(g)) for g in (grads[0], grads[1], grads[3]))
    assert grads[4].abs().sum() > 0 and grads[2].abs().sum() > 0
    number = torch.tensor(1.5, requires_grad=True)
    (grad,) = torch.autograd.grad(flex_attention(q, k, v, lambda s, b, h, i, j: s * number).square().sum(), number)
    assert grad.shape == () and grad.abs() > 0


def test_deterministic_bit_by_bit(tensors):
    tensors = [x.requires_grad_() for x in tensors]
    table = torch.randn(5, requires_grad=True)
    grad = torch.randn(2, 4, 21, 16)

    def run():
        mod = lambda s, b, h, i, j: s + table[(i - j).abs() % 5]
        o = attention(*tensors, score_mod=mod, deterministic=True)
        return [o, *torch.autograd.grad(o, [*tensors, table], grad)]

    first = run()
    for _ in range(3):
        assert all(torch.equal(x, y) for x, y in zip(first, run()))


def test_gradients_of_any_strides(tensors):
    tensors = [x.requires_grad_() for x in tensors]
    o = attention(*tensors)
    base = torch.randn(21, 16, 4, 2)
    for grad in (
        torch.ones(()).expand(o.shape),
        torch.randn(1, 1, 21, 1).expand(o.shape),
        base.permute(3, 2, 0, 1),
        torch.randn(2, 4, 42, 32)[:, :, ::2, ::2],
    ):
        found = torch.autograd.grad(o, tensors, grad, retain_graph=True)
        dense_grads = torch.autograd.grad(o, tensors, grad.contiguous(), retain_graph=True)
        assert all(torch.equal(x, y) for x, y in zip(found, dense_grads))
    o.sum().backward()  # whose gradient has strides of zero


def test_autocast_is_obeyed(tensors):
    tensors = [x.requires_grad_() for x in tensors]
    with torch.amp.autocast("cpu", dtype=torch.bfloat16):
        o = attention(*tensors)
        assert flex_attention(*tensors).dtype == o.dtype == torch.bfloat16
        sdpa = torch.nn.functional.scaled_dot_product_attention(*tensors)
        assert sdpa.dtype == o.dtype
        assert (
            attention(tensors[0].bfloat16(), *tensors[1:]).dtype == torch.bfloat16
        )  # mixed before, one type after
    o.sum().backward()
    assert all(x.grad.dtype == torch.float32 for x in tensors)
    with pytest.raises(ValueError, match="as query is"):
        attention(tensors[0].bfloat16(), *tensors[1:])


def test_nothing_of_the_size_of_the_scores():
    """A length whose scores would need 16 GiB: forward and backward, with a block mask, in little memory."""
    import resource

    length = 65536
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 64), None, None, length, length)
    q = torch.randn(1, 1, length, 16, requires_grad=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flex_attention(q, q, q, block_mask=mask).sum().backward()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 1024, f"{grown:.0f} MiB"


def test_one_formula_one_plan(tensors):
    """A function, a text and a Program of the same formula are the same."""
    mod = lambda s, b, h, q, k: 2.5 * torch.tanh(s / 2.5)
    one = flex_attention(*tensors, mod)
    before = builds()
    two = attention(*tensors, score_mod="2.5 * tanh(score / 2.5)")
    three = attention(*tensors, score_mod=fovea.formula("2.5 * tanh(score / 2.5)"))
    assert torch.equal(one, two) and torch.equal(one, three) and builds() == before
