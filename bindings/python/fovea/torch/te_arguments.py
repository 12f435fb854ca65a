"""The arguments of Transformer Engine's modules: what Fovea does not have is an error that says so, never ignored."""

from .._core import Unsupported
from .._request import one_of

_ALIASES = {
    "padding,causal": "padding_causal",
    "causal,padding": "padding_causal",
    "causal_padding": "padding_causal",
    "padding,causal_bottom_right": "padding_causal_bottom_right",
}
MASK_TYPES = (
    "no_mask",
    "padding",
    "causal",
    "padding_causal",
    "causal_bottom_right",
    "padding_causal_bottom_right",
    "arbitrary",
)

# Why an argument is refused if it is not at its default.
_REASONS = {
    "fp8": "there is no fp8 in this version",
    "kv": "there is no key/value cache: pass the cached keys and values, and q_offset, to fovea.torch.attention",
    "gemm": "projections are torch.nn.Linear",
    "splits": "engines choose how they split keys",
}
_WHY = {
    "inference_params": "kv",
    "fp8_output": "fp8",
    "bf16_backward": "fp8",
    "num_splits": "splits",
    "fuse_wgrad_accumulation": "gemm",
    "ub_overlap_ag": "gemm",
    "ub_overlap_rs": "gemm",
    "ub_overlap_rs_dgrad": "gemm",
    "ub_bulk_dgrad": "gemm",
    "ub_bulk_wgrad": "gemm",
}


def refuse_others(owner: str, **given):
    """given: name=(value, the default, which is all that Fovea has)."""
    for name, (value, default) in given.items():
        if value is not default and value != default:
            raise Unsupported(f"{owner}: {name}={value!r} is not supported: {_REASONS[_WHY[name]]}")


def mask_type_of(name: str) -> str:
    name = _ALIASES.get(name, name)
    return one_of("attn_mask_type", name, MASK_TYPES)
