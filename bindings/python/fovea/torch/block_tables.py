"""torch's BlockMask as a mask function. One that create_block_mask made says nothing that its mask_mod does not say, and
the formula is faster than its tables. One that was given as bare indices, or whose tables disagree with its mask_mod,
is read by its tables: captured tensors, one element per block."""
import torch
from torch.nn.attention import flex_attention as torch_flex


def table_mask(block_mask):
    if block_mask.mask_mod is torch_flex.noop_mask:
        return by_tables(block_mask)
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return block_mask.mask_mod  # nothing can be looked at here
    agrees = getattr(block_mask, "_fovea_agrees", None)
    if agrees is None:
        agrees = block_mask._fovea_agrees = tables_agree(block_mask)
    return block_mask.mask_mod if agrees else by_tables(block_mask)


def by_tables(block_mask):
    """keep = the block is full, or it is listed and the mask keeps the score."""
    full, partial = tables_of(block_mask)
    rows, columns = block_mask.BLOCK_SIZE
    mask_mod = block_mask.mask_mod

    def at(table, b, h, q, k):
        one = [0 if extent == 1 else index for extent, index in zip(table.shape, (b, h))]
        return table[one[0], one[1], q // rows, k // columns]

    def mask(b, h, q_idx, kv_idx):
        kept = at(partial, b, h, q_idx, kv_idx)
        if mask_mod is not torch_flex.noop_mask:
            kept = kept & mask_mod(b, h, q_idx, kv_idx)
        return kept if full is None else at(full, b, h, q_idx, kv_idx) | kept
    return mask


def tables_of(block_mask):
    """(full or None, partial): bool [B, H, blocks of queries, blocks of keys]."""
    partial = dense(block_mask.kv_num_blocks, block_mask.kv_indices, block_mask)
    if block_mask.full_kv_num_blocks is None:
        return None, partial
    return dense(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, block_mask), partial


def dense(counts, indices, block_mask):
    columns = -(-block_mask.seq_lengths[1] // block_mask.BLOCK_SIZE[1])
    slots = torch.arange(indices.shape[-1], device=indices.device)
    targets = torch.where(slots < counts.unsqueeze(-1), indices.long(), columns)  # what is not listed lands beside
    table = torch.zeros((*counts.shape, columns + 1), dtype=torch.bool, device=indices.device)
    return table.scatter(-1, targets, True)[..., :columns].contiguous()


def tables_agree(block_mask) -> bool:
    """Does the mask function keep nothing in blocks that are not listed, and all in full ones? Looked at in nine places
    of every block, once per object: what create_block_mask made always agrees, tables of another origin almost never
    do in all of them."""
    full, partial = tables_of(block_mask)
    rows, columns = block_mask.BLOCK_SIZE
    q = probes(partial.shape[2], rows, block_mask.seq_lengths[0], partial.device)
    k = probes(partial.shape[3], columns, block_mask.seq_lengths[1], partial.device)
    b = torch.arange(partial.shape[0], device=partial.device)
    h = torch.arange(partial.shape[1], device=partial.device)
    try:
        kept = block_mask.mask_mod(b.view(-1, 1, 1, 1), h.view(1, -1, 1, 1), q.view(1, 1, -1, 1), k.view(1, 1, 1, -1))
    except Exception:  # a mask that only takes single positions: its tables are exact anyway
        return False
    spread = lambda table: table.repeat_interleave(3, 2).repeat_interleave(3, 3)
    listed = spread(partial if full is None else partial | full)
    wrong = kept & ~listed
    return not bool((wrong if full is None else wrong | (spread(full) & ~kept)).any())


def probes(blocks, size, length, device):
    """The first, middle and last position of each block."""
    first = torch.arange(blocks, device=device) * size
    return torch.stack([first, first + size // 2, first + size - 1], 1).flatten().clamp(max=max(length - 1, 0))
