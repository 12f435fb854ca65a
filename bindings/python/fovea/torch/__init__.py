"""Fovea for PyTorch: change one import and train.

    from fovea.torch import flex_attention, create_block_mask     # instead of torch.nn.attention.flex_attention
    from fovea.torch import DotProductAttention                   # instead of transformer_engine.pytorch

docs/pytorch.md says how to come from FlexAttention, xFormers and Transformer Engine."""

from torch.nn.attention.flex_attention import create_mask

from .attention import attention, explain
from .context_parallel import ContextParallelSDPA, context_parallel, shard_sequence, unshard_sequence
from .dot_product_attention import DotProductAttention
from .errors import TraceError
from .flex import AuxOutput, AuxRequest, flex_attention
from .masks import BlockMask, and_masks, create_block_mask, noop_mask, or_masks
from .multihead_attention import MultiheadAttention

# fmt: off
__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "ContextParallelSDPA", "DotProductAttention", "MultiheadAttention",
    "TraceError", "and_masks", "attention", "context_parallel", "create_block_mask", "create_mask", "explain",
    "flex_attention", "noop_mask", "or_masks", "shard_sequence", "unshard_sequence",
]
# fmt: on
