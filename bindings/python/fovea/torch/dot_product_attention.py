"""DotProductAttention with Transformer Engine's constructor and forward arguments."""

import math
from typing import TYPE_CHECKING, Callable, Dict, Optional, Tuple, Union

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .._core import InvalidArgument
from .._options import RETURNS, Options, filled, takes
from .._request import check_modifiers, module_window, one_of
from .attention import attention
from .biases import bias_of, with_bias
from .context_parallel import context_parallel
from .flex import warn_once
from .projections import Region
from .transformer_engine import mask_type_of, outside, padding, refuse_others, sizes_of_call, without_extra_state

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DotProductAttention(torch.nn.Module):
    """Scaled dot product attention over query, key and value layers in `qkv_format` sbhd, bshd or thd; the output has
    its heads merged. Transformer Engine's documentation describes the arguments. `score_mod` and its companions may be
    callbacks that build a graph, as there, or anything that fovea.torch.attention takes, and work with every mask, bias,
    window, format, dropout and softmax type. `options` (engine, verify ...) are passed to every call."""

    @takes(without=RETURNS, deterministic=None)
    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: Union[int, Tuple[int, int]],
        num_gqa_groups: Optional[int] = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        window_size: Optional[Tuple[int, int]] = None,
        bottom_right_diagonal: Optional[bool] = None,
        sequence_parallel: bool = False,
        tp_size: int = 1,
        get_rng_state_tracker: Optional[Callable] = None,
        tp_group=None,
        layer_number: Optional[int] = None,
        attention_type: str = "self",
        cp_group=None,
        cp_global_ranks=None,
        cp_stream=None,
        cp_comm_type: str = "p2p",
        softmax_scale: Optional[float] = None,
        softmax_type: str = "vanilla",
        return_max_logit: Optional[bool] = False,
        name: Optional[str] = None,
        **options: "Unpack[Options]",
    ):
        super().__init__()
        self.options = filled(DotProductAttention.__init__, options)
        self.region = Region(tp_group, tp_size, sequence_parallel)
        self.set_context_parallel_group(cp_group, cp_global_ranks, cp_stream, cp_comm_type)
        one_of("attention_type", attention_type, ("self", "cross"))
        self.qkv_format = one_of("qkv_format", qkv_format, ("sbhd", "bshd", "thd"))
        self.num_attention_heads = self.region.part("num_attention_heads", num_attention_heads)  # of this rank
        self.num_gqa_groups = self.region.part("num_gqa_groups", num_gqa_groups or num_attention_heads)
        if self.num_attention_heads % self.num_gqa_groups:
            raise InvalidArgument(f"num_gqa_groups={num_gqa_groups}: must divide the {num_attention_heads} heads")
        self.channels = (kv_channels, kv_channels) if isinstance(kv_channels, int) else tuple(kv_channels)
        self.attention_dropout, self.attn_mask_type = attention_dropout, mask_type_of(attn_mask_type)
        self.window_size, self.bottom_right_diagonal = window_size, bottom_right_diagonal
        self.softmax_scale = 1 / math.sqrt(self.channels[0]) if softmax_scale is None else softmax_scale
        self.softmax_type = one_of("softmax_type", softmax_type, ("vanilla", "off-by-one", "learnable"))
        self.return_max_logit, self.layer_number = bool(return_max_logit), layer_number
        self.rng_tracker = None if get_rng_state_tracker is None else get_rng_state_tracker()
        self.register_load_state_dict_pre_hook(without_extra_state)
        self.softmax_offset = None
        if softmax_type == "learnable":
            self.softmax_offset = torch.nn.Parameter(torch.zeros(self.num_attention_heads))

    def set_tensor_parallel_group(self, tp_group):
        """The ranks of the group share the heads; h in modifiers counts the heads of this rank."""
        self.region.set_group(tp_group)

    def set_context_parallel_group(self, cp_group, cp_global_ranks=None, cp_stream=None, cp_comm_type="p2p"):
        """From now on sequences are split over the ranks of cp_group, in Transformer Engine's order (zigzag); None: they are
        not. With cp_comm_type "a2a+p2p" it is a pair of groups, for all-to-alls and for the ring. cp_global_ranks must be the
        ranks of the group."""
        self.cp_group, self.cp_stream = cp_group, cp_stream
        self.cp_strategy = COMMUNICATION[one_of("cp_comm_type", cp_comm_type, COMMUNICATION)]
        if cp_group is not None:
            check_global_ranks(cp_group, cp_global_ranks)

    def forward(
        self,
        query_layer: Optional[Tensor] = None,
        key_layer: Optional[Tensor] = None,
        value_layer: Optional[Tensor] = None,
        attention_mask=None,
        qkv_format: Optional[str] = None,
        cu_seqlens_q: Optional[Tensor] = None,
        cu_seqlens_kv: Optional[Tensor] = None,
        cu_seqlens_q_padded: Optional[Tensor] = None,
        cu_seqlens_kv_padded: Optional[Tensor] = None,
        max_seqlen_q: Optional[int] = None,
        max_seqlen_kv: Optional[int] = None,
        attn_mask_type: Optional[str] = None,
        window_size: Optional[Tuple[int, int]] = None,
        bottom_right_diagonal: Optional[bool] = None,
        checkpoint_core_attention: bool = False,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias: Optional[Tensor] = None,
        alibi_slopes: Optional[Tensor] = None,
        fast_zero_fill: bool = True,  # how Transformer Engine fills its output; Fovea's engines write all of it
        inference_params=None,
        pad_between_seqs: Optional[bool] = None,
        fp8_output: Optional[bool] = False,
        bf16_backward: Optional[bool] = False,
        num_splits: Optional[int] = 1,
        score_mod=None,
        score_mod_bprop=None,
        score_mod_tensors: Optional[Dict[str, Tensor]] = None,
        score_mod_bprop_tensors: Optional[Dict[str, Tensor]] = None,
        qkv_layer: Optional[Tensor] = None,
        kv_layer: Optional[Tensor] = None,
        qkv_interleave_dim: int = -3,
    ):
        refuse_others(
            "DotProductAttention",
            inference_params=inference_params,
            fp8_output=fp8_output,
            bf16_backward=bf16_backward,
            num_splits=num_splits,
        )
        packed = (query_layer, key_layer, value_layer, qkv_layer, kv_layer)
        q, k, v = unpacked(*packed, qkv_interleave_dim)
        layout = one_of("qkv_format", qkv_format or self.qkv_format, ("sbhd", "bshd", "thd"))
        check_heads(self, q, k, v)
        mask_type = mask_type_of(attn_mask_type or self.attn_mask_type)
        options = {
            "scale": self.softmax_scale,
            "layout": layout,
            "dropout_p": self.attention_dropout if self.training else 0.0,
            "return_max_logit": self.return_max_logit,
            "sinks": self.sinks(q),
            **self.options,
        }
        given = bottom_right_diagonal if bottom_right_diagonal is not None else self.bottom_right_diagonal
        options.update(diagonal(mask_type, self.window_size if window_size is None else window_size, given))
        starts = (cu_seqlens_q, cu_seqlens_kv), (cu_seqlens_q_padded, cu_seqlens_kv_padded)
        if pad_between_seqs and layout == "thd" and cu_seqlens_q_padded is None and cu_seqlens_kv_padded is None:
            raise InvalidArgument(
                "pad_between_seqs=True: needs cu_seqlens_q_padded or cu_seqlens_kv_padded, which say where sequences begin"
            )
        sizes = sizes_of_call(layout, q, k, cu_seqlens_q, (max_seqlen_q, max_seqlen_kv))
        attend = attention
        if self.cp_group is not None:  # masks and biases are those of the whole sequence
            ranks = group_size(self.cp_group)
            sizes = (*sizes[:2], *(n if layout == "thd" else n * ranks for n in sizes[2:]))
            attend = context_parallel
            options.update(group=self.cp_group, strategy=self.cp_strategy, order="zigzag", stream=self.cp_stream)
        options.update(lengths(layout, mask_type, sizes, attention_mask, starts, (max_seqlen_q, max_seqlen_kv)))
        if mask_type == "arbitrary":
            options["mask_mod"] = outside(attention_mask, sizes)
        options.update(modifiers(score_mod, score_mod_bprop, score_mod_tensors, score_mod_bprop_tensors))
        bias = bias_of(self, core_attention_bias_type, core_attention_bias, alibi_slopes, options.pop("aligned"), q, sizes)
        if bias is not None:
            options = with_bias(options, bias, score_mod, score_mod_bprop)

        def run(q, k, v):
            if self.rng_tracker is None or self.region.sequence_parallel or not options["dropout_p"]:
                return attend(q, k, v, **options)
            with self.rng_tracker.fork():
                return attend(q, k, v, **options)

        out = checkpoint(run, q, k, v, use_reentrant=False) if checkpoint_core_attention else run(q, k, v)
        if self.return_max_logit:
            return merged(out[0]), out[1]
        return merged(out)

    def sinks(self, q):
        if self.softmax_type == "vanilla":
            return None
        if self.softmax_type == "off-by-one":
            return torch.zeros(self.num_attention_heads, device=q.device)
        return self.softmax_offset


COMMUNICATION = {"p2p": "ring", "all_gather": "all_gather", "a2a": "all_to_all", "a2a+p2p": "a2a+p2p"}


def group_size(group):
    groups = group if isinstance(group, (tuple, list)) else (group,)
    return math.prod(torch.distributed.get_world_size(one) for one in groups)


def check_global_ranks(group, given):
    if given is None or isinstance(group, (tuple, list)):
        return
    own = torch.distributed.get_process_group_ranks(group)
    if list(given) != list(own):
        raise InvalidArgument(f"cp_global_ranks={list(given)}: the group has the ranks {own}")


def merged(o):
    return o.reshape(*o.shape[:-2], o.shape[-2] * o.shape[-1])


def unpacked(q, k, v, qkv, kv, dim):
    """q, k and v as views of packed tensors: nothing is copied."""
    one_of("qkv_interleave_dim", dim, (-3, -2))
    if qkv is not None:
        if any(x is not None for x in (q, k, v, kv)):
            raise InvalidArgument("qkv_layer: goes with no other layer")
        return qkv.unbind(dim)
    if kv is not None:
        if k is not None or v is not None or q is None:
            raise InvalidArgument("kv_layer: goes with query_layer alone")
        return (q, *kv.unbind(dim))
    if q is None or k is None or v is None:
        raise InvalidArgument("query_layer, key_layer, value_layer: all three, or a packed layer")
    return q, k, v


def check_heads(module, q, k, v):
    for name, x, heads, channels in (
        ("query_layer", q, module.num_attention_heads, module.channels[0]),
        ("key_layer", k, module.num_gqa_groups, module.channels[0]),
        ("value_layer", v, module.num_gqa_groups, module.channels[1]),
    ):
        if tuple(x.shape[-2:]) != (heads, channels):
            raise InvalidArgument(f"{name}: shape {list(x.shape)} must end in [{heads}, {channels}], heads and channels")


def diagonal(mask_type, window, bottom_right):
    """is_causal and window_size, and whether positions are aligned at the end of the sequences."""
    aligned = bottom_right
    if mask_type in ("causal", "padding_causal"):
        aligned = False
    if aligned is None or mask_type.endswith("bottom_right"):
        aligned = True
    causal = "causal" in mask_type
    out = {"is_causal": ("bottom_right" if aligned else True) if causal else False, "aligned": aligned}
    window = module_window(window, causal)
    if window is not None:
        out["window_size"] = window
        out["window_from_the_end"] = aligned
    return out


def lengths(layout, mask_type, sizes, attention_mask, starts, longest):
    (q_starts, k_starts), padded = starts
    if attention_mask is not None and (layout == "thd" or not mask_type.startswith(("padding", "arbitrary"))):
        warn_once(
            f"attention_mask: ignored with attn_mask_type={mask_type!r} and qkv_format={layout!r}, as in Transformer Engine"
        )
    if layout == "thd":
        if q_starts is None or k_starts is None:
            raise InvalidArgument("cu_seqlens_q, cu_seqlens_kv: qkv_format thd needs both")
        out = {"cu_seqlens": (q_starts, k_starts), "max_seqlen": None if None in longest else longest}
        if padded[0] is not None or padded[1] is not None:
            places = tuple(own if pad is None else pad for own, pad in zip((q_starts, k_starts), padded))
            out.update(cu_seqlens=places, seq_lens=(q_starts.diff(), k_starts.diff()))
        return out
    if not mask_type.startswith("padding"):
        if q_starts is not None or k_starts is not None:
            warn_once(f"cu_seqlens_q, cu_seqlens_kv: ignored with attn_mask_type={mask_type!r}; lengths need a padding type")
        return {}
    if q_starts is not None and k_starts is not None:
        return {"seq_lens": (q_starts.diff(), k_starts.diff())}
    if attention_mask is None:
        raise InvalidArgument(f"attn_mask_type={mask_type!r}: needs cu_seqlens_q and cu_seqlens_kv, or attention_mask")
    return padding(attention_mask, sizes, mask_type.endswith("bottom_right"))


def modifiers(score_mod, bprop, tensors, bprop_tensors):
    captured = {"score_mod_tensors": (tensors, "score_mod"), "score_mod_bprop_tensors": (bprop_tensors, "score_mod_bprop")}
    check_modifiers(score_mod, None, bprop, captured)
    if score_mod is None:
        return {}
    return {"score_mod": score_mod, "score_mod_bprop": bprop, "tensors": tensors, "bprop_tensors": bprop_tensors}
