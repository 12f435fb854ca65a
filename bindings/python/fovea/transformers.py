"""Fovea for Hugging Face transformers: importing this module registers attn_implementation="fovea".

    import fovea.transformers
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="fovea")

Masks are formulas, so nothing of the size of the scores is made: causal, sliding and chunked windows, padding on either
side, packed sequences. Keys and values keep their own heads. Soft caps, sinks, position biases (T5, Swin) and dropout are
part of the same call, and learned ones get their gradients. docs/pytorch.md has the details."""

import sys
import warnings

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function, eager_mask, prepare_padding_mask

from . import _written_out
from ._core import InvalidArgument
from ._written_out import NAME
from .torch import attention

__all__ = ["attend", "make_mask"]


class Mask(_written_out.Opaque):
    """A mask function for queries and keys of these lengths."""

    ndim = 4

    def __init__(self, mask_mod, shape):
        super().__init__(shape)
        self.mask_mod = mask_mod


def make_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, *, config=None, device=None, **options):
    """transformers calls this for a mask, once for all layers that share it. None if is_causal, or no mask, is enough; a
    tensor [B, 1, 1, Skv] for single queries; otherwise a Mask. Models whose layers contain the attention itself get it
    wrapped."""
    lengths = (batch_size, q_length, kv_length, q_offset, kv_offset)
    if calls_attend(type(config)):
        return mask_of(*lengths, device=device, **options)
    if _written_out.looks_attention_up(config):
        return _written_out.Wrapped(mask_of(*lengths, device=device, **options), (batch_size, 1, q_length, kv_length))
    warnings.warn(
        f"this {type(config).__name__} is of a model that computes attention in its own code, so that Fovea has no part in "
        f"it: from_pretrained and from_config, with attn_implementation={NAME!r}, make one that asks Fovea",
        stacklevel=2,
    )
    return eager_mask(*lengths, device=device, **options)


def mask_of(
    batch_size,
    q_length,
    kv_length,
    q_offset,
    kv_offset,
    mask_function=causal_mask_function,
    attention_mask=None,
    allow_is_causal_skip=False,
    allow_is_bidirectional_skip=False,
    local_size=None,
    device=None,
    **options,
):
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None and not torch.compiler.is_compiling() and bool(padding.all()):
        padding = None
    is_local = local_size is not None and kv_length >= local_size
    if padding is None and not is_local:
        if allow_is_bidirectional_skip or (allow_is_causal_skip and (q_length == 1 or q_length == kv_length)):
            return None

    def mask_mod(b, h, q, k):
        kept = mask_function(b, h, q, k)
        return kept if padding is None else kept & padding[b, k]

    if q_length == 1:
        kept = single_query(mask_mod, batch_size, q_offset, kv_length, kv_offset, device)
        # A window's cache holds no more than the window. On a GPU asking would wait for it.
        can_be_asked = allow_is_causal_skip and kept.is_cpu and not torch.compiler.is_compiling()
        return None if can_be_asked and bool(kept.all()) else kept
    # Tensors, since numbers would be part of the formula. Copied, since static caches change theirs in place.
    first_q = None if type(q_offset) is int and q_offset == 0 else torch.as_tensor(q_offset, device=device).clone()
    first_k = None if kv_offset == 0 else torch.as_tensor(kv_offset, device=device)

    def shifted(b, h, q, k):
        return mask_mod(b, h, q if first_q is None else q + first_q, k if first_k is None else k + first_k)

    return Mask(shifted, (batch_size, 1, q_length, kv_length))


def calls_attend(config_class) -> bool:
    """Do models of this configuration look attention up by its name? Those that contain it add a mask of floats to their
    scores."""
    module = sys.modules.get(config_class.__module__.replace(".configuration_", ".modeling_"))
    return not hasattr(module, "PreTrainedModel") or hasattr(module, "ALL_ATTENTION_FUNCTIONS")


def single_query(mask_mod, batch_size, q_offset, kv_length, kv_offset, device):
    """The mask's only row, made at once: every layer then reads one small tensor, whatever the mask's formula."""
    b = torch.arange(batch_size, device=device)[:, None, None, None]
    h = torch.zeros((1, 1, 1, 1), dtype=torch.int64, device=device)
    k = torch.arange(kv_length, device=device)[None, None, None] + kv_offset
    kept = mask_mod(b, h, h + q_offset, k)
    return kept.expand(batch_size, 1, 1, kv_length)


def attend(
    module,
    query,
    key,
    value,
    attention_mask,
    dropout=0.0,
    scaling=None,
    is_causal=None,
    softcap=None,
    s_aux=None,
    position_bias=None,
    deterministic=None,
    **options,
):
    """What transformers calls for attention: query [B, H, Sq, D] to ([B, Sq, H, Dv], None)."""
    refuse(options)
    mask_mod = bias = None
    if isinstance(attention_mask, Mask):
        mask_mod = attention_mask.mask_mod
    elif attention_mask is not None:
        check_mask(attention_mask)
        if attention_mask.dtype == torch.bool:
            mask_mod = indexed(attention_mask)
        else:
            bias = indexed(attention_mask)
    elif query.shape[2] > 1:
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    o = attention(
        query,
        key,
        value,
        score_mod=modifier(softcap, bias, position_bias),
        mask_mod=mask_mod,
        is_causal=attention_mask is None and query.shape[2] > 1 and bool(is_causal),
        scale=scaling,
        sinks=s_aux,
        dropout_p=dropout,
        deterministic=deterministic or None,  # None: as torch.use_deterministic_algorithms says
    )
    return o.transpose(1, 2).contiguous(), None


def refuse(options):
    if options.get("output_attentions"):
        raise InvalidArgument(
            'output_attentions: attn_implementation="fovea" never has the probabilities; '
            'model.set_attn_implementation("eager") gives them'
        )
    if options.get("cache") is not None:
        raise InvalidArgument(
            'cache: attn_implementation="fovea" has no paged caches (generate_batch); "sdpa" and "paged|eager" have'
        )


def check_mask(mask):
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4:
        found = f"{mask.dim()} dimensions" if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise InvalidArgument(
            f"attention_mask: {found}; must be a tensor that broadcasts to [B, H, Sq, Skv], or a mask of fovea.transformers"
        )


def indexed(tensor):
    """The element of a tensor that broadcasts to [B, H, Sq, Skv] as a function of positions."""
    fixed = [extent == 1 for extent in tensor.shape]

    def element(*positions):
        return tensor[tuple([0 if is_one else position for is_one, position in zip(fixed, positions)])]

    return element


def modifier(softcap, bias, position_bias):
    if position_bias is not None:
        position_bias = indexed(position_bias)
    added = [x for x in (position_bias, bias) if x is not None]
    if softcap is None and not added:
        return None

    def score_mod(score, b, h, q, k):
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        for element in added:
            score = score + element(b, h, q, k)
        return score

    return score_mod


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, make_mask)
_written_out.register()
