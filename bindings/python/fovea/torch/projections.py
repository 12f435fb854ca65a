"""The linear layers and norms round attention, as Transformer Engine names their parameters."""
from typing import Callable, Optional

import torch
import torch.nn.functional as F

from .te_arguments import one_of


class Linear(torch.nn.Linear):
    def __init__(self, width_in, width_out, *, bias=True, device=None, dtype=None, init_method: Optional[Callable] = None):
        super().__init__(width_in, width_out, bias=bias, device=device, dtype=dtype)
        if init_method is None:
            torch.nn.init.normal_(self.weight, mean=0.0, std=0.023)  # Transformer Engine's
        else:
            init_method(self.weight)
        if bias:
            torch.nn.init.zeros_(self.bias)

    def forward(self, x, with_bias=True):
        return F.linear(x, self.weight, self.bias if with_bias else None)


class LayerNormLinear(Linear):
    """A norm, then a projection; gives both."""

    def __init__(self, width_in, width_out, norm, **options):
        super().__init__(width_in, width_out, **options)
        one_of("normalization", norm["kind"], ("LayerNorm", "RMSNorm"))
        self.norm, made = norm, {"device": options.get("device"), "dtype": options.get("dtype")}
        start = torch.zeros if norm["zero_centered"] else torch.ones
        self.layer_norm_weight = torch.nn.Parameter(start(width_in, **made))
        self.layer_norm_bias = torch.nn.Parameter(torch.zeros(width_in, **made)) if norm["kind"] == "LayerNorm" else None

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
