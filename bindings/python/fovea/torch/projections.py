"""The linear layers and norms round attention, as Transformer Engine names their parameters."""

from typing import Callable, Optional

import torch
import torch.nn.functional as F

from .._request import one_of


class Linear(torch.nn.Linear):
    """`region` is set for a layer of tensor parallelism, `row` if it is the one that leaves the region; widths are then this
    rank's."""

    def __init__(
        self,
        width_in,
        width_out,
        *,
        bias=True,
        device=None,
        dtype=None,
        init_method: Optional[Callable] = None,
        region=None,
        row=False,
    ):
        super().__init__(width_in, width_out, bias=bias, device=device, dtype=dtype)
        if init_method is None:
            torch.nn.init.normal_(self.weight, mean=0.0, std=0.023)  # Transformer Engine's
        else:
            init_method(self.weight)
        if bias:
            torch.nn.init.zeros_(self.bias)

        self.region, self.row = region, row

    def forward(self, x, with_bias=True):
        bias = self.bias if with_bias else None
        if self.region is None:
            return F.linear(x, self.weight, bias)
        if not self.row:
            return F.linear(self.region.enter(x), self.weight, bias)
        out = self.region.leave(F.linear(x, self.weight))  # the bias is added once
        return out if bias is None else out + bias


class LayerNormLinear(Linear):
    """A norm, then a projection; gives both."""

    def __init__(self, width_in, width_out, norm, **options):
        super().__init__(width_in, width_out, **options)
        one_of("normalization", norm["kind"], ("LayerNorm", "RMSNorm"))
        self.norm, made = norm, {"device": options.get("device"), "dtype": options.get("dtype")}
        start = torch.zeros if norm["zero_centered"] else torch.ones
        self.layer_norm_weight = torch.nn.Parameter(start(width_in, **made))
        self.layer_norm_bias = (
            torch.nn.Parameter(torch.zeros(width_in, **made)) if norm["kind"] == "LayerNorm" else None
        )

    def forward(self, x):
        weight = self.layer_norm_weight + 1 if self.norm["zero_centered"] else self.layer_norm_weight
        if self.norm["kind"] == "LayerNorm":
            normed = F.layer_norm(x, x.shape[-1:], weight, self.layer_norm_bias, self.norm["eps"])
        else:
            normed = F.rms_norm(x, x.shape[-1:], weight, self.norm["eps"])
        return super().forward(normed), normed


class L2Normalization(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + self.eps)


def head_norm(kind, channels, eps, made):
    """The norm of each head's queries or keys."""
    one_of("qk_norm_type", kind, (None, "L2Normalization", "RMSNorm", "LayerNorm"))
    if kind is None:
        return torch.nn.Identity()
    if kind == "L2Normalization":
        return L2Normalization(eps)
    norm = torch.nn.RMSNorm if kind == "RMSNorm" else torch.nn.LayerNorm
    return norm(channels, eps=eps, device=made["device"], dtype=made["dtype"])
