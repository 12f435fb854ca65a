"""What only a GPU has: streams, graphs, memory of torch's allocator, several devices. FOVEA_TEST_DEVICE=cuda."""

import dense
import pytest
import torch
from dense import assert_right

import fovea
from fovea.torch import attention, create_block_mask, flex_attention


@pytest.fixture(autouse=True)
def only_on_a_gpu(device):
    if device.type != "cuda":
        pytest.skip("needs FOVEA_TEST_DEVICE=cuda")


def draw(device, requires_grad=False, length=256):
    return [
        torch.randn(2, 4, length, 64, device=device, dtype=torch.bfloat16, requires_grad=requires_grad)
        for _ in range(3)
    ]


def softcap(s, b, h, q, k):
    return 20.0 * torch.tanh(s / 20.0)


def test_the_current_stream_is_used(device):
    """Work that another stream prepares slowly is waited for, since it is enqueued behind it."""
    tensors = draw(device)
    flex_attention(*tensors, softcap)  # built before
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late = [x * 2 for x in tensors]
        o = flex_attention(*late, softcap)
    torch.cuda.current_stream().wait_stream(stream)
    assert_right(o, late, softcap)


def test_graph_capture_of_a_forward(device):
    tensors = draw(device)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device=device)
    run = lambda: flex_attention(*tensors, softcap, mask)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = run()
    for _ in range(2):
        for x in tensors:
            x.copy_(torch.randn_like(x))
        graph.replay()
        assert_right(o, tensors, softcap, lambda b, h, q, k: q >= k)


def test_graph_capture_of_a_training_step(device):
    tensors = draw(device, True)
    grad = torch.randn_like(tensors[0])
    run = lambda: torch.autograd.grad(flex_attention(*tensors, softcap), tensors, grad)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    with torch.no_grad():
        for x in tensors:
            x.copy_(torch.randn_like(x))
    graph.replay()
    for x, y in zip(captured, run()):
        torch.testing.assert_close(x, y)


def test_nothing_is_built_while_a_graph_is_captured(device):
    """Refused before anything is enqueued: what else is captured stays whole."""
    tensors = draw(device, True, 384)
    other = torch.zeros(8, device=device)
    rare = lambda s, b, h, q, k: 7.0 * torch.sigmoid(s / 7.0) - 1.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        other += 1
        with pytest.raises(fovea.DeviceError, match="captured into a CUDA graph, and the plan is not built"):
            flex_attention(*tensors, rare)
        other += 1
    graph.replay()
    assert torch.equal(other, torch.full_like(other, 2.0))
    assert_right(flex_attention(*tensors, rare), tensors, rare)


def test_workspace_comes_from_torchs_allocator(device):
    tensors = draw(device, True, 2048)
    o = flex_attention(*tensors, softcap)
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    torch.autograd.grad(o.sum(), tensors)
    torch.cuda.synchronize()
    reserved = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    released = torch.cuda.mem_get_info()[0] - free
    assert released >= 0 or torch.cuda.memory_reserved() < reserved


def test_captured_tensors_must_be_there(device):
    tensors, table = draw(device), torch.randn(4)
    with pytest.raises(fovea.InvalidArgument, match="is on cpu, the query on cuda"):
        flex_attention(*tensors, lambda s, b, h, q, k: s + table[h])
    with pytest.raises(fovea.InvalidArgument, match="key.device: cpu"):
        flex_attention(tensors[0], tensors[1].cpu(), tensors[2])


def test_a_number_on_the_cpu_may_meet_a_gpu(device):
    """As torch lets it: a tensor of rank 0 goes along."""
    tensors, cap = draw(device), torch.tensor(20.0)
    o = flex_attention(*tensors, lambda s, b, h, q, k: cap * torch.tanh(s / cap))
    assert_right(o, tensors, softcap)


def test_dropout_on_the_device(device):
    tensors = draw(device)
    torch.manual_seed(4)
    first = attention(*tensors, dropout_p=0.3)
    torch.manual_seed(4)
    assert torch.equal(first, attention(*tensors, dropout_p=0.3))
    assert not torch.equal(first, attention(*tensors, dropout_p=0.3))
    # The output is linear in v: its gradient shows what the backward dropped.
    q, k, v = (*tensors[:2], tensors[2].detach().abs().requires_grad_())
    o = attention(q, k, v, dropout_p=0.3, seed=5)
    (grad,) = torch.autograd.grad(o, v, torch.ones_like(o))
    total = o.double().sum()
    assert abs(((grad.double() * v.double()).sum() - total) / total) < 0.003
    assert abs(total / attention(q, k, v).double().sum() - 1) < 0.1


def test_fp32_is_right_and_fp64_is_refused(device):
    tensors = [x.float() for x in draw(device)]
    dense.assert_close("o", attention(*tensors), dense.attention(*(x.double() for x in tensors))[0], torch.float32)
    with pytest.raises(fovea.Unsupported) as refusal:
        attention(*(x.double() for x in tensors))
    for engine in fovea.engines():
        assert engine in str(refusal.value), f"the refusal does not say why {engine} can't"


def test_one_seed_drops_the_same_on_every_device(device):
    tensors = [x.float() for x in draw(device, length=70)]
    here = attention(*tensors, dropout_p=0.3, seed=11, is_causal=True)
    there = attention(*(x.cpu() for x in tensors), dropout_p=0.3, seed=11, is_causal=True)
    dense.assert_close("o", here.cpu(), there, torch.float32, slack=2.0)


def test_captured_tensors_of_every_type_are_read_in_place(device):
    """None is converted: what the plan was bound to are the tensors themselves."""
    tensors = draw(device, True, 128)
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        doc = (torch.arange(128, device=device) // 64).to(dtype)
        mask = lambda b, h, q, k: doc[q] == doc[k]
        o = flex_attention(*tensors, None, create_block_mask(mask, None, None, 128, 128, device=device))
        assert_right(o, tensors, None, mask)
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        with torch.no_grad():
            flex_attention(*tensors, None, create_block_mask(mask, None, None, 128, 128, device=device))
        assert torch.cuda.memory_stats()["allocation.all.allocated"] - before <= 3  # o, lse, a workspace


def test_deterministic_backward_gives_the_same_bits(device):
    tensors = draw(device, True, 300)
    table = torch.randn(4, 17, device=device, requires_grad=True)
    mod = lambda s, b, h, q, k: s + table[h, torch.clamp(q - k, -8, 8) + 8]
    grad = torch.randn_like(tensors[0])

    def step():
        o = attention(*tensors, score_mod=mod, deterministic=True)
        return [o, *torch.autograd.grad(o, [*tensors, table], grad)]

    first = step()
    for _ in range(3):
        for x, y in zip(first, step()):
            assert torch.equal(x, y)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_plans_belong_to_their_device():
    for index in (0, 1, 0):
        tensors = draw(torch.device("cuda", index))
        o = flex_attention(*tensors, softcap)
        assert o.device.index == index
        assert_right(o, tensors, softcap)
