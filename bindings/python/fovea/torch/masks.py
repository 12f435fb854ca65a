"""Block masks without blocks: the formula of a mask says which tiles are empty, so nothing of the size of the scores is made.
torch's own BlockMask objects are read here too."""

import operator
from typing import Callable, Optional, Tuple, Union

import torch
from torch.nn.attention.flex_attention import BlockMask as TorchsBlockMask
from torch.nn.attention.flex_attention import create_block_mask as torchs_block_mask  # users may put ours in its place

from .._core import InvalidArgument
from .modifiers import traced

MaskMod = Callable
MOST_DRAWN = 1 << 26  # scores of a mask whose tables are made to print it; torch evaluates it at each of them
NO_BLOCKS = 1 << 30  # torch's block size of a mask that keeps all, whatever the lengths


def noop_mask(b, h, q_idx, kv_idx):
    """Keeps every score."""
    return b.new_ones((), dtype=torch.bool)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask that keeps what all of them keep."""
    return combined("and_masks", operator.and_, mask_mods)


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask that keeps what one of them keeps."""
    return combined("or_masks", operator.or_, mask_mods)


def combined(name, both, masks):
    if not masks:
        raise InvalidArgument(f"{name}: takes one mask or more")
    for i, mask in enumerate(masks):
        if not callable(mask):
            raise InvalidArgument(f"{name}: argument {i} must be a function, got {type(mask).__name__}")

    def mask_mod(b, h, q_idx, kv_idx):
        kept = masks[0](b, h, q_idx, kv_idx)
        for mask in masks[1:]:
            kept = both(kept, mask(b, h, q_idx, kv_idx))
        return kept

    return mask_mod


class BlockMask(TorchsBlockMask):
    """A mask function with the lengths that it is made for. If B or H is None, it is the same for every sequence or head. It is
    a subclass of torch's class: its tables (kv_indices ...), which to_dense, sparsity and [] use, are made when they are
    first used. Fovea does not need them: what the function captures is read when a call runs."""

    dq_write_order = dq_write_order_full = dq_kv_order = dq_kv_order_spt = None

    def __init__(
        self,
        mask_mod: MaskMod,
        B: Optional[int],
        H: Optional[int],
        Q_LEN: int,
        KV_LEN: int,
        BLOCK_SIZE: Tuple[int, int] = (128, 128),
        device=None,
    ):
        self.mask_mod = mask_mod
        self.B, self.H = B, H
        self.seq_lengths = (Q_LEN, KV_LEN)
        self.BLOCK_SIZE = BLOCK_SIZE
        self.device = device
        self.tables = None

    @property
    def shape(self) -> Tuple[int, int, int, int]:
        return (self.B or 1, self.H or 1, *self.seq_lengths)

    def to(self, device) -> "BlockMask":
        """The same mask with its tables on that device. Captured tensors are not moved: their owner does that."""
        return BlockMask(self.mask_mod, self.B, self.H, *self.seq_lengths, self.BLOCK_SIZE, device)

    def _adjust(self, new_q_len: int, new_kv_len: int) -> "BlockMask":
        return BlockMask(self.mask_mod, self.B, self.H, new_q_len, new_kv_len, self.BLOCK_SIZE, self.device)

    def __repr__(self):
        return f"fovea.torch.BlockMask(shape={self.shape}, mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)!r})"

    def __str__(self):
        """torch's picture of the blocks, unless its tables would take long to make."""
        return super().__str__() if self.tables is not None or self.numel() <= MOST_DRAWN else repr(self)

    def table(self, name):
        if self.tables is None:
            sizes = (self.B, self.H, *self.seq_lengths)
            self.tables = torchs_block_mask(self.mask_mod, *sizes, device=self.device, BLOCK_SIZE=self.BLOCK_SIZE)
        return getattr(self.tables, name)


def _add_tables():
    for kind in ("kv", "full_kv", "q", "full_q"):
        for name in (f"{kind}_num_blocks", f"{kind}_indices"):
            setattr(BlockMask, name, property(lambda self, name=name: self.table(name)))
    BlockMask.from_kv_blocks = TorchsBlockMask.from_kv_blocks  # gives one of torch's


_add_tables()


def create_block_mask(
    mask_mod: MaskMod,
    B: Optional[int],
    H: Optional[int],
    Q_LEN: int,
    KV_LEN: int,
    device=None,
    BLOCK_SIZE: Union[int, Tuple[int, int]] = 128,
    _compile: bool = False,
    **unused,
) -> BlockMask:
    """torch's function of the same name. Takes microseconds and no memory at any length. `device` and `BLOCK_SIZE` are those
    of the tables, if code reads them; `_compile` and the other options for tables are ignored."""
    known = {"separate_full_blocks", "compute_dq_write_order", "dq_kv_order"}
    for name in unused:
        if name not in known:
            raise TypeError(f"create_block_mask() has no argument {name!r}")
    for name, length in (("Q_LEN", Q_LEN), ("KV_LEN", KV_LEN)):
        if isinstance(length, int) and length < 0:
            raise InvalidArgument(f"{name}={length}: must be 0 or more")
    traced(mask_mod=mask_mod)  # what can't be traced is an error here, not in the first call
    blocks = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return BlockMask(mask_mod, B, H, Q_LEN, KV_LEN, blocks, device)


def mask_of(block_mask, query, key):
    """The mask function of a block mask, ours or torch's; raises if the mask was made for other sizes."""
    if block_mask is None:
        return None
    if not (isinstance(block_mask, BlockMask) or hasattr(block_mask, "kv_num_blocks")):
        raise InvalidArgument(
            f"block_mask: must be a BlockMask, got {type(block_mask).__name__}; "
            f"create_block_mask makes one of a mask function"
        )
    if tuple(block_mask.BLOCK_SIZE) != (NO_BLOCKS, NO_BLOCKS):
        check_lengths(block_mask, query.shape[2], key.shape[2])
    ours = isinstance(block_mask, BlockMask)
    batch, heads = (block_mask.B, block_mask.H) if ours else block_mask.kv_num_blocks.shape[:2]
    for name, extent, size in (("B", batch, query.shape[0]), ("H", heads, query.shape[1])):
        if extent not in (None, 1, size):
            raise InvalidArgument(f"block_mask: made for {name}={extent}, but the query has {size}; use {size}, or None")
    return block_mask.mask_mod


def check_lengths(block_mask, q_len, kv_len):
    """With the messages that torch has."""
    lengths = tuple(block_mask.seq_lengths)
    if lengths[0] == q_len and lengths[1] == kv_len:  # not as tuples: two equations in one guard confuse Dynamo's symbols
        return
    made = f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q_len} and kv_len={kv_len}. "
    if q_len > lengths[0] or kv_len > lengths[1]:
        raise InvalidArgument(made + "As it was created for a smaller length, create one for these lengths")
    raise InvalidArgument(
        made + "As it was created for a larger length, create one for these lengths, or cut its upper left corner: "
        "block_mask._adjust(q_len, kv_len)"
    )
