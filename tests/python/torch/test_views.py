"""Tensors that are views, of inputs and of what is captured: read where they lie, with the same results as dense ones."""

import pytest
import torch

from fovea.torch import attention
from fovea.torch.call_cache import TABLE


def packed_qkv(device, dtype):
    """Views of one packed tensor: the same as three dense ones, and no copy is made of them."""
    qkv = torch.randn(2, 30, 3, 4, 16).to(device, dtype).requires_grad_()
    o = attention(*qkv.unbind(2), layout="bshd", is_causal=True, deterministic=True)
    (grad,) = torch.autograd.grad(o.float().square().sum(), qkv)
    apart = [x.detach().contiguous().requires_grad_() for x in qkv.unbind(2)]
    other = attention(*apart, layout="bshd", is_causal=True, deterministic=True)
    assert torch.equal(o, other)
    others = torch.autograd.grad(other.float().square().sum(), apart)
    assert torch.equal(grad, torch.stack(others, 2))


def test_packed_qkv_views(device):
    packed_qkv(device, torch.float32 if device.type == "cpu" else torch.bfloat16)


VIEWS = {
    "every_other": lambda n: torch.randn([2 * x for x in n])[tuple(slice(None, None, 2) for _ in n)],
    "reversed_order": lambda n: torch.randn(list(reversed(n))).permute(list(reversed(range(len(n))))),
    "part": lambda n: torch.randn([x + 3 for x in n])[tuple(slice(1, x + 1) for x in n)],
    "one_for_all": lambda n: torch.randn([1, *n[1:]]).expand(n),
    "rotated": lambda n: torch.randn([*n[2:], *n[:2]]).permute([len(n) - 2, len(n) - 1, *range(len(n) - 2)]),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("layout", ["bhsd", "bshd", "sbhd", "thd"])
def test_views_are_read_in_place(name, layout, device):
    """Whatever the strides: the same bits as of dense tensors, forward and backward."""
    if device.type != "cpu":
        pytest.skip("the same on every device: run on the CPU")
    shape = {"bhsd": [2, 3, 10, 8], "bshd": [2, 10, 3, 8], "sbhd": [10, 2, 3, 8], "thd": [10, 3, 8]}[layout]
    options = {"cu_seqlens": torch.tensor([0, 4, 10])} if layout == "thd" else {}
    views = [VIEWS[name](shape).requires_grad_() for _ in range(3)]
    plain = [x.detach().contiguous().requires_grad_() for x in views]
    o, ref = (attention(*x, layout=layout, is_causal=True, **options) for x in (views, plain))
    assert torch.equal(o, ref)
    grad = VIEWS[name](shape)
    for x, y in zip(torch.autograd.grad(o, views, grad), torch.autograd.grad(ref, plain, grad)):
        assert torch.equal(x, y)


# Captured tables as models have them, none of them dense: [H, S, S] of what is made in another order or size.
TABLES = {
    "permuted": lambda h, s: torch.randn(s, s, h).permute(2, 0, 1),  # T5: an embedding by (query, key)
    "transposed": lambda h, s: torch.randn(h, s, s).transpose(1, 2),
    "one_for_all_heads": lambda h, s: torch.randn(1, s, s).expand(h, s, s),
    "one_row_for_all": lambda h, s: torch.randn(h, 1, s).expand(h, s, s),
    "part_of_a_longer_one": lambda h, s: torch.randn(h, 2 * s, 2 * s)[:, :s, :s],
    "every_other_row": lambda h, s: torch.randn(h, 2 * s, s)[:, ::2],
    "heads_inside": lambda h, s: torch.randn(s, h, s).transpose(0, 1),
}


def captured_view(name, device, dtype, learns):
    """The same as with a dense copy, forward and backward, and the table is read where it lies."""
    q, k, v = (torch.randn(2, 4, 64, 64).to(device, dtype).requires_grad_() for _ in range(3))
    with device:  # .to(device) would make a dense copy of some
        view = TABLES[name](4, 64)
    assert not view.is_contiguous()
    grad = torch.randn(2, 4, 64, 64).to(device, dtype)

    def run(table):
        inputs = [q, k, v, *([table] if learns else [])]
        o = attention(q, k, v, score_mod=lambda s, b, h, i, j: s + table[h, i, j], is_causal=True)
        return [o, *torch.autograd.grad(o, inputs, grad)]

    found = run(view.detach().requires_grad_(learns))
    dense_one = view.detach().clone(memory_format=torch.contiguous_format).requires_grad_(learns)
    for x, y in zip(found, run(dense_one)):
        close = 0 if device.type == "cpu" else 2e-2  # gradients are added up in any order
        torch.testing.assert_close(x, y, rtol=close, atol=close)
    kept = [known for known in TABLE.values.values() if known.captured]
    assert any(known.captured[0][3] == view.stride() for known in kept), "a copy was bound"


@pytest.mark.parametrize("learns", [False, True], ids=["fixed", "learned"])
@pytest.mark.parametrize("name", TABLES)
def test_captured_views_are_read_in_place(name, learns, device):
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    captured_view(name, device, dtype, learns)
