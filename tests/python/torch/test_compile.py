"""torch.compile without a graph break, export, operators, checkpointing, DDP, vmap."""

import os
import tempfile

import dense
import pytest
import torch
import torch.utils.checkpoint
from torch._dynamo.testing import CompileCounterWithBackend

from fovea.torch import DotProductAttention, attention, create_block_mask, flex_attention, ops
from fovea.torch.call import Call
from fovea.torch.modifiers import traced

S = 20


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.fixture
def tensors():
    return [torch.randn(2, 4, S, 16, requires_grad=True) for _ in range(3)]


class Relative(torch.nn.Module):
    """Closures, a parameter, a buffer, a global and a block mask, as a model has them."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(4, 2 * S - 1))
        self.register_buffer("doc", torch.arange(S) // 7)
        self.cap = torch.nn.Parameter(torch.tensor(5.0))

    def mod(self, score, b, h, q_idx, kv_idx):
        return self.cap * torch.tanh(score / self.cap) + self.table[h, q_idx - kv_idx + S - 1]

    def forward(self, q, k, v):
        mask = create_block_mask(lambda b, h, i, j: (i >= j) & (self.doc[i] == self.doc[j]), None, None, S, S)
        return flex_attention(q, k, v, self.mod, mask)


def gradients(module, function, inputs, grad):
    o = function(*inputs)
    return [o, *torch.autograd.grad(o, [*inputs, *module.parameters()], grad)]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_without_a_graph_break(tensors, backend):
    module, grad = Relative(), torch.randn(2, 4, S, 16)
    plain = gradients(module, module, tensors, grad)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    for _ in range(2):
        assert all(torch.equal(x, y) for x, y in zip(plain, gradients(module, compiled, tensors, grad)))
    assert counter.frame_count == 1
    with torch.no_grad():
        module.table.add_(1.0)  # captured tensors are inputs of the graph: new values need no new one
    assert torch.equal(compiled(*tensors), module(*tensors)) and counter.frame_count == 1


def test_compiled_closures_are_guarded(tensors):
    """A changed number of the closure is seen, float or int. (Dynamo can't compare an object of ours with an int that
    changed, so the int is not in a comparison.)"""
    cap, width = 2.0, 3
    mod = lambda s, b, h, i, j: torch.where(i // width > j, cap * torch.tanh(s / cap), s)
    run = torch.compile(lambda q, k, v: flex_attention(q, k, v, mod), fullgraph=True, backend="aot_eager")
    for cap, width in ((2.0, 3), (3.0, 3), (4.0, 5), (5.0, 7)):
        assert torch.equal(run(*tensors), flex_attention(*tensors, mod))


def test_compiled_attention_with_everything(tensors):
    sinks = torch.randn(4, requires_grad=True)
    lengths = torch.tensor([S, 11])

    def run(q, k, v):
        o, lse = attention(
            q,
            k,
            v,
            is_causal=True,
            window_size=(9, 0),
            sinks=sinks,
            seq_lens=lengths,
            scale=0.3,
            return_lse=True,
            score_mod="score * a",
            scalars={"a": 1.5},
        )
        return o.sum() + lse[:, :, :11].sum()

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    inputs = [*tensors, sinks]
    for x, y in zip(torch.autograd.grad(run(*tensors), inputs), torch.autograd.grad(compiled(*tensors), inputs)):
        torch.testing.assert_close(x, y)


def test_compiled_with_other_sizes():
    table = torch.randn(4)
    run = lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + table[h] * (i - j))
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=counter)
    for batch, length in ((2, 9), (3, 12), (5, 30)):
        x = [torch.randn(batch, 4, length, 16) for _ in range(3)]
        assert torch.equal(run(*x), compiled(*x))
    assert counter.frame_count == 1


def test_torchs_block_masks_with_other_sizes():
    """With dynamic=True the block size is a symbol, too."""
    from torch.nn.attention.flex_attention import create_block_mask as torchs

    counter = CompileCounterWithBackend("aot_eager")
    run = lambda q, k, v, mask: flex_attention(q, k, v, block_mask=mask)
    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=counter)
    for batch, length in ((2, 90), (3, 120), (5, 300)):
        x = [torch.randn(batch, 4, length, 16) for _ in range(3)]
        mask = torchs(lambda b, h, i, j: i >= j, 1, 1, length, length, device="cpu", BLOCK_SIZE=32)
        assert torch.equal(run(*x, mask), compiled(*x, mask))
    assert counter.frame_count == 1


def test_our_block_masks_with_other_sizes():
    """With dynamic=True the lengths of the mask and of the tensors are symbols of their own, which are found to be equal."""
    counter = CompileCounterWithBackend("inductor")
    run = lambda query, key, value, **kw: flex_attention(query, key, value, **kw)
    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=counter)
    for batch, length in ((2, 48), (3, 60)):
        x = [torch.randn(batch, 4, length, 16, requires_grad=True) for _ in range(3)]
        mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, length, length)
        o, wanted = (attend(*x, block_mask=mask) for attend in (compiled, run))
        assert torch.equal(o, wanted)
        grads = [torch.autograd.grad(out.square().sum(), x) for out in (o, wanted)]
        assert all(torch.equal(*pair) for pair in zip(*grads))
    assert counter.frame_count == 1


def test_compiled_with_block_masks_as_arguments(tensors):
    """Ours, torch's by its function, and torch's by bare tables."""
    from torch.nn.attention import flex_attention as torch_flex

    near = lambda b, h, i, j: (i - j).abs() < 5
    theirs = torch_flex.create_block_mask(near, None, None, S, S, device="cpu", BLOCK_SIZE=4)
    tables = theirs.kv_num_blocks, theirs.kv_indices
    bare = torch_flex.BlockMask.from_kv_blocks(*tables, BLOCK_SIZE=4, seq_lengths=(S, S))
    run = torch.compile(
        lambda q, k, v, mask: flex_attention(q, k, v, block_mask=mask), fullgraph=True, backend="aot_eager"
    )
    for mask in (create_block_mask(near, None, None, S, S), theirs, bare):
        torch._dynamo.reset()
        assert torch.equal(run(*tensors, mask), flex_attention(*tensors, block_mask=mask))


def test_compiled_dropout_draws_from_torchs_generator(tensors):
    compiled = torch.compile(lambda q, k, v: attention(q, k, v, dropout_p=0.5), fullgraph=True, backend="aot_eager")
    torch.manual_seed(1)
    first, second = compiled(*tensors), compiled(*tensors)
    torch.manual_seed(1)
    assert torch.equal(compiled(*tensors), first) and not torch.equal(first, second)


def test_compiled_module_with_a_callback(tensors):
    cap = torch.full((1, 1, 1, 1), 2.0)
    module = DotProductAttention(4, 16, qkv_format="bshd")

    def softcap(graph, score, tensors):
        return graph.mul(graph.tanh(graph.div(score, tensors["cap"])), tensors["cap"])

    x = [t.transpose(1, 2) for t in tensors]
    run = lambda q, k, v: module(q, k, v, score_mod=softcap, score_mod_tensors={"cap": cap})
    assert torch.equal(torch.compile(run, fullgraph=True, backend="aot_eager")(*x), run(*x))


def test_compiled_errors_keep_their_text(tensors):
    run = torch.compile(
        lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: torch.lgamma(s)), fullgraph=True
    )
    with pytest.raises(Exception, match=r"a modifier can't use torch\.lgamma"):
        run(*tensors)


@pytest.mark.parametrize("strict", [False, True], ids=["non_strict", "strict"])
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")
def test_export(tensors, strict):
    module = Relative()
    program = torch.export.export(module, tuple(x.detach() for x in tensors), strict=strict)
    assert torch.equal(program.module()(*tensors), module(*tensors))
    assert any(node.target == torch.ops.fovea.attention.default for node in program.graph.nodes)


class Operators(torch.nn.Module):
    """Every operator between a traced value and a tensor of rank 0, which Dynamo hands over as functions of `operator`."""

    def __init__(self):
        super().__init__()
        self.x = torch.nn.Parameter(torch.tensor(1.5))
        self.register_buffer("n", torch.tensor(3))
        self.register_buffer("flag", torch.tensor(True))

    def mod(self, s, b, h, i, j):
        x, n = self.x, self.n
        y = s + x - s * x + x / (1 + s * s) + (i // n) * 0.1 + (i % n) * 0.1 + (x + 1) ** h + (n << h) * 0.01
        kept = ((i > n) & self.flag) | ((j <= n) ^ self.flag)
        y += x
        return torch.where(kept | (n != h), y, -y) + (x - s) * 0.1 + ((i & n) | (j >> n)) * 0.01

    def forward(self, q, k, v):
        return flex_attention(q, k, v, self.mod)


def test_operators_beside_tensors(tensors):
    module, plain = Operators(), [x.detach() for x in tensors]
    assert torch.equal(torch.compile(module, fullgraph=True, backend="aot_eager")(*plain), module(*plain))
    program = torch.export.export(module, tuple(plain), strict=True)
    assert torch.equal(program.module()(*plain), module(*plain))


def test_parts_of_captured_tensors(tensors):
    """table[b] of which the other indices come later, and rows as vectors."""
    bias, points = torch.randn(2, 4, S), torch.randn(S, 3)
    mod = lambda s, b, h, i, j: s + bias[b][h][i] - (points[i] - points[j]).pow(2).sum(-1).sqrt()
    run = lambda q, k, v: flex_attention(q, k, v, mod)
    assert torch.equal(torch.compile(run, fullgraph=True, backend="aot_eager")(*tensors), run(*tensors))


def test_operators_are_sound(tensors):
    """torch's own check of schema, fake kernels, autograd registration and ahead-of-time dispatch."""
    slopes = torch.rand(4, requires_grad=True)
    found = traced(lambda s, b, h, i, j: s + slopes[h] * (i - j), like=tensors[0])
    call = Call(found.text(), wants="q,k,v,_c0", outputs=("lse",))
    torch.library.opcheck(torch.ops.fovea.attention, (*tensors, None, [slopes], *call.tensors(), *ops.texts_of(call)))


def test_fake_tensors_have_the_right_strides(tensors):
    from torch._subclasses import FakeTensorMode

    q = torch.randn(2, S, 4, 16).transpose(1, 2)
    v = torch.randn(2, 4, S, 24)
    real, lse = attention(q, q, v, return_lse=True)
    with FakeTensorMode() as mode:
        fake, fake_lse = attention(mode.from_tensor(q), mode.from_tensor(q), mode.from_tensor(v), return_lse=True)
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)
    assert (fake_lse.shape, fake_lse.dtype) == (lse.shape, lse.dtype)


def test_activation_checkpointing(tensors):
    """Also with dropout: the recomputed forward draws the same seed."""
    table = torch.randn(4, requires_grad=True)
    run = lambda q, k, v: attention(q, k, v, score_mod=lambda s, b, h, i, j: s + table[h] * (i - j), dropout_p=0.3)
    inputs, grad = [*tensors, table], torch.randn(2, 4, S, 16)
    torch.manual_seed(2)
    plain = torch.autograd.grad(run(*tensors), inputs, grad)
    for reentrant in (False, True):
        torch.manual_seed(2)
        o = torch.utils.checkpoint.checkpoint(run, *tensors, use_reentrant=reentrant)
        if reentrant:  # which sees only its arguments
            o.backward(grad)
            assert all(torch.equal(x.grad, y) for x, y in zip(tensors, plain))
        else:
            assert all(torch.equal(x, y) for x, y in zip(torch.autograd.grad(o, inputs, grad), plain))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_distributed_data_parallel():
    """One process of gloo: gradients of captured parameters go through DDP's hooks."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "gloo", init_method=f"file://{os.path.join(folder, 'rendezvous')}", rank=0, world_size=1
        )
        try:
            module = Relative()
            x = [torch.randn(2, 4, S, 16) for _ in range(3)]
            module(*x).square().sum().backward()
            plain = [p.grad.clone() for p in module.parameters()]
            module.zero_grad()
            DistributedDataParallel(module)(*x).square().sum().backward()
            for p, y in zip(module.parameters(), plain):
                torch.testing.assert_close(p.grad, y)
        finally:
            dist.destroy_process_group()


def test_an_array_of_numpys_is_a_tensor():
    """Dynamo has both as one; in eager mode it is refused by its name."""
    q, slopes = torch.randn(2, 4, S, 16), torch.rand(4)
    array = slopes.numpy()
    run = lambda q, slopes: flex_attention(q, q, q, lambda s, b, h, i, j: s * slopes[h])
    compiled = torch.compile(lambda q: run(q, array), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q), run(q, slopes))


def test_vmap_over_more_batches():
    """The batch index of a modifier is the one inside an example."""
    q, k, v = (torch.randn(3, 2, 4, S, 16) for _ in range(3))
    table = torch.randn(2, 4)
    run = lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s * table[b, h] + b)
    one_by_one = torch.stack([run(*x) for x in zip(q, k, v)])
    assert torch.equal(torch.func.vmap(run)(q, k, v), one_by_one)
    moved = torch.func.vmap(run, in_dims=(0, None, 1), out_dims=1)(q, k[0], v.transpose(0, 1))
    assert torch.equal(moved, torch.stack([run(x, k[0], y) for x, y in zip(q, v)], 1))


def test_vmap_over_anything_else():
    """Examples are computed one by one: captured tensors, lengths, packed sequences, gradients of what all share."""
    q, k, v = (torch.randn(3, 2, 4, S, 16) for _ in range(3))
    table, lengths, shared = torch.randn(3, 4), torch.tensor([[3, S], [S, 5], [0, 1]]), torch.rand(4, requires_grad=True)
    stacked = lambda run, *given: torch.stack([run(*x) for x in zip(*given)])
    scaled = lambda q, t: flex_attention(q, q, q, lambda s, b, h, i, j: s * t[h])
    assert torch.equal(torch.func.vmap(scaled)(q, table), stacked(scaled, q, table))
    padded = lambda q, n: attention(q, q, q, seq_lens=n)
    assert torch.equal(torch.func.vmap(padded)(q, lengths), stacked(padded, q, lengths))
    starts = torch.tensor([0, 5, S])
    packed = lambda q: attention(q, q, q, layout="thd", cu_seqlens=starts, max_seqlen=S)
    rows = q[:, 0].transpose(1, 2).contiguous()
    assert torch.equal(torch.func.vmap(packed)(rows), stacked(packed, rows))
    slope = torch.func.grad(lambda t, q: scaled(q, t).square().sum())
    by_example = torch.func.vmap(slope, in_dims=(None, 0))(table[0], q)
    torch.testing.assert_close(by_example, torch.stack([slope(table[0], x) for x in q]))
    loss = lambda x: attention(x, k[0], v[0], score_mod=lambda s, b, h, i, j: s.tanh() * shared[h]).square().sum()
    x = q[0, :, :, :2].contiguous()
    found, wanted = torch.func.hessian(loss)(x), torch.autograd.functional.hessian(loss, x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_gradients_by_torch_func():
    q, k, v = (torch.randn(3, 2, 4, S, 16) for _ in range(3))
    loss = lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s.tanh() + b).square().sum()
    leaf = q[0].clone().requires_grad_()
    (plain,) = torch.autograd.grad(loss(leaf, k[0], v[0]), leaf)
    assert torch.equal(torch.func.grad(loss)(q[0], k[0], v[0]), plain)
    assert torch.equal(torch.func.vmap(torch.func.grad(loss))(q, k, v)[0], plain)
    table = torch.randn(4)
    by_table = torch.func.grad(
        lambda t: flex_attention(q[0], k[0], v[0], lambda s, b, h, i, j: s * t[h]).square().sum()
    )
    leaf = table.clone().requires_grad_()
    o = flex_attention(q[0], k[0], v[0], lambda s, b, h, i, j: s * leaf[h])
    assert torch.equal(by_table(table), torch.autograd.grad(o.square().sum(), leaf)[0])


def test_compiled_on_the_device(device):
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    q, k, v = (torch.randn(2, 4, 128, 64).to(device, dtype).requires_grad_() for _ in range(3))
    cap = lambda s, b, h, i, j: 20.0 * torch.tanh(s / 20.0)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device=device)
    run = torch.compile(lambda q, k, v: flex_attention(q, k, v, cap, mask), fullgraph=True)
    o = run(q, k, v)
    exact = dense.doubled((q, k, v))
    dense.assert_derived(o, (q, k, v), dense.attention(*exact, cap, lambda b, h, i, j: i >= j)[0], exact)
