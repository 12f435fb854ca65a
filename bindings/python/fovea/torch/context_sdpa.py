"""torch's own context_parallel with Fovea inside. That manager offers no hook for other kernels: it hands what is given to
scaled_dot_product_attention on as DTensors that are cut along the sequence, and these are caught here."""

import torch
from torch.overrides import TorchFunctionMode

from .._core import Unsupported
from .._request import one_of
from .context_parallel import ORDERS, STRATEGIES, context_parallel


class ContextParallelSDPA(TorchFunctionMode):
    """Inside, `torch.nn.functional.scaled_dot_product_attention` of DTensors that are cut along their sequence is
    fovea.torch.context_parallel; everything else is left to torch.

        with torch.distributed.tensor.experimental.context_parallel(mesh, buffers=..., buffer_seq_dims=...):
            with fovea.torch.ContextParallelSDPA():
                loss = model(x).sum()
                loss.backward()

    order        how rows are dealt out: torch's manager does it as zigzag; contiguous is what a DTensor says by itself.
    strategy     as context_parallel has it.
    """

    def __init__(self, strategy="ring", order="zigzag"):
        super().__init__()
        self.options = {
            "strategy": one_of("strategy", strategy, STRATEGIES[:3]),
            "order": one_of("order", order, ORDERS),
        }

    def __torch_function__(self, function, types, args=(), kwargs=None):
        # By its private name: the manager puts a wrapper in the place of the public one.
        if function is torch._C._nn.scaled_dot_product_attention and is_cut(args[0] if args else kwargs["query"]):
            return self.attend(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    def attend(
        self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
    ):
        if attn_mask is not None:
            raise Unsupported(
                "attn_mask: a rank has its rows only; fovea.torch.context_parallel takes a mask_mod of the whole"
            )
        if key.placements != query.placements or value.placements != query.placements:
            raise Unsupported(f"key, value: placed {key.placements} and {value.placements}, the query {query.placements}")
        if not enable_gqa and key.shape[1] != query.shape[1]:
            raise Unsupported(f"key: {key.shape[1]} heads, the query has {query.shape[1]}; say enable_gqa=True")
        mesh = query.device_mesh
        o = context_parallel(
            *[x.to_local() for x in (query, key, value)],
            group=mesh.get_group(),
            seq_len=(query.shape[2], key.shape[2]),
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            **self.options,
        )
        return type(query).from_local(o, mesh, query.placements, run_check=False)


def is_cut(x) -> bool:
    """Is this a DTensor [B, H, S, D] whose sequence one dimension of a mesh cuts?"""
    if type(x).__name__ != "DTensor" or x.dim() != 4 or len(x.placements) != 1:
        return False
    return x.placements[0].is_shard(2) or x.placements[0].is_shard(-2)
