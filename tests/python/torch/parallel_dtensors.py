"""What the processes of test_parallel.py run on DTensors, as parallel_cases.py has the rest."""

import torch
import torch.distributed as dist
from parallel_cases import ALL, DEVICE, DTYPE, B, D, H, compare, inputs, refusal
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask

import fovea.torch as ft
from fovea._request import AXES


def mesh_of_four():
    return init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("first", "second"))


def dtensors(groups, *, cut, layout, flex=False):
    """attention and flex_attention on DTensors, beside the call on whole tensors."""
    mesh = mesh_of_four()
    axes = dict(zip(("batch", "heads", "sequence"), AXES[layout]))
    placements = [Replicate() if word is None else Shard(axes[word]) for word in cut]
    *whole, grad = inputs(layout, 24, 3)
    document = (torch.arange(24)[None] // torch.tensor([[5], [9]])).to(torch.int32)
    slopes = torch.linspace(0.1, 0.5, B * H).reshape(B, H).requires_grad_()
    leaves = [slopes]
    score = lambda s, b, h, q, k: s + slopes[b, h] * (k - q)
    keep = lambda b, h, q, k: (q >= k) & (document[b, q] == document[b, k])
    if flex:
        block_mask = ft.create_block_mask(keep, B, H, 24, 24)
        options = {"enable_gqa": True, "return_aux": AuxRequest(lse=True, max_scores=True)}
        attend = lambda *x: ft.flex_attention(*x, score, block_mask, **options)
    else:
        leaves.append(torch.linspace(-1, 1, H).requires_grad_())
        more = {"dropout_p": 0.2, "seed": 7, "layout": layout, "sinks": leaves[1], **ALL}
        if "sequence" not in cut:
            more["seq_lens"] = torch.tensor([24, 17])
        attend = lambda *x: ft.attention(*x, score_mod=score, mask_mod=keep, **more)
    results = []
    for place in (lambda x: x, lambda x: distribute_tensor(x, mesh, placements)):
        tensors = [place(x.clone()).requires_grad_() for x in whole]
        o, *others = attend(*tensors)
        grads = torch.autograd.grad(o, [*tensors, *leaves], place(grad))
        results.append([o, *(others[0] if flex else others), *grads])
    for i, (wanted, got) in enumerate(zip(*results)):
        if i < len(results[0]) - len(leaves):
            assert isinstance(got, DTensor) and got.shape == wanted.shape, f"result {i}: {type(got)} {got.shape}"
            got, wanted = local_parts(got, wanted)
        compare(f"result {i}", got, wanted, DTYPE, factor=6)


def local_parts(got, wanted):
    """This rank's part of a DTensor and of what it should be. Not full_tensor(), which gloo has no collective for on CUDA."""
    local, placements = got.to_local().detach().clone(), list(got.placements)
    for dim, placement in enumerate(placements):
        if placement.is_partial():
            dist.all_reduce(local, getattr(dist.ReduceOp, placement.reduce_op.upper()), group=got.device_mesh.get_group(dim))
            placements[dim] = Replicate()
    return local, distribute_tensor(wanted.detach(), got.device_mesh, placements).to_local()


def dtensors_refused(groups):
    mesh, (q, k, v, _) = mesh_of_four(), inputs("bhsd", 24, 3)
    place = lambda x, *placements: distribute_tensor(x, mesh, placements)
    whole, cut = [Replicate(), Replicate()], [Shard(2), Replicate()]
    placed = lambda *placements: [place(x, *placements) for x in (q, k, v)]
    refusal(lambda: ft.attention(place(q, *whole), k, v), "key", "distribute_tensor")
    refusal(lambda: ft.attention(place(q, *cut), place(k, *whole), place(v, *whole)), "key", "redistribute", "Shard(dim=2)")
    refusal(lambda: ft.attention(*placed(Shard(2), Shard(1))), "Shard(dim=1)", "the sequence and something else")
    refusal(lambda: ft.attention(*placed(Shard(3), Replicate())), "Shard(dim=3)", "full_tensor")
    refusal(lambda: ft.attention(*placed(Shard(0), Shard(0))), "Shard(dim=0)", "one dimension of the mesh")
    odd = [place(torch.randn(B, 3, 8, D), Shard(1), Replicate()) for _ in range(3)]
    refusal(lambda: ft.attention(*odd), "3 heads", "evenly")
    bias = place(torch.zeros(24), *whole)
    refusal(lambda: ft.attention(*placed(*whole), score_mod=lambda s, b, h, q, k: s + bias[k]), "captures a DTensor")
    torchs = create_block_mask(lambda b, h, q, k: q >= k, None, None, 24, 24, device=DEVICE)
    refusal(lambda: ft.flex_attention(*placed(*whole), block_mask=torchs, enable_gqa=True), "create_block_mask")
    refusal(lambda: ft.context_parallel(*placed(*cut)), "to_local")


def torchs_manager(groups, *, strategy):
    """torch's own context_parallel, whose SDPA Fovea computes."""
    mesh = init_device_mesh(DEVICE, (4,))
    heads = 4  # an all-to-all deals them out
    whole = [torch.randn(B, heads, 32, D, generator=torch.Generator(DEVICE).manual_seed(i)).to(DTYPE) for i in range(4)]
    leaves = [x.clone().requires_grad_() for x in whole[:3]]
    sdpa = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    o = sdpa(*leaves)
    grads = torch.autograd.grad(o, leaves, whole[3])
    buffers = [x.clone() for x in whole]
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 4), ft.ContextParallelSDPA(strategy):
        mine = [x.clone().requires_grad_() for x in buffers[:3]]
        got = sdpa(*mine)
        found = torch.autograd.grad(got, mine, buffers[3].clone())
        refusal(lambda: torch.nn.functional.scaled_dot_product_attention(*mine, attn_mask=torch.zeros(1, 1, 8, 8)), "mask_mod")
    deal = lambda x: ft.shard_sequence(x, 4, dist.get_rank(), order="zigzag")
    for name, x, y in zip("oqkv", (got, *found), (o, *grads)):
        compare(name, x, deal(y), DTYPE)
