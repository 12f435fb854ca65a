"""attention and flex_attention on DTensors. If they are sharded along the batch or the heads, every rank computes its own part,
and modifiers see the coordinates of the whole through offsets; if they are sharded along the sequence, it is
context_parallel."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from .._arrays import dense_strides
from .._core import OUTPUTS, InvalidArgument, Unsupported
from .._options import outputs_of
from .._request import AXES, is_a_pair
from .attention import add_formulas, attention, given_to, modifiers_of, request
from .call import NAMES
from .context_parallel import context_parallel
from .eager import attend
from .flex import check, engine_in
from .masks import BlockMask, mask_of

AXIS_NAMES = ("batch", "heads", "sequence")


class Cut:
    """How q, k and v lie on a mesh: for each axis of AXIS_NAMES the dimension of the mesh that cuts it."""

    def __init__(self, layout, q, k, v):
        self.layout, self.whole = layout, (q, k, v)
        self.mesh, self.placements = q.device_mesh, q.placements
        self.dims = {}
        for name, x in zip(NAMES, (q, k, v)):
            if not isinstance(x, DTensor):
                kind = type(x).__name__
                raise InvalidArgument(f"{name}: a {kind}, but others are DTensors; distribute_tensor makes it one")
            if x.device_mesh != self.mesh or x.placements != self.placements:
                raise Unsupported(
                    f"{name}: {x.placements} on {x.device_mesh}, but the query is {self.placements} on {self.mesh}; "
                    "redistribute() one of them"
                )
        for dim, placement in enumerate(self.placements):
            if placement.is_replicate():
                continue
            axis = placement.dim % q.dim() if type(placement) is Shard else None
            word = dict(zip(AXES[layout], AXIS_NAMES)).get(axis)
            if word is None or word in self.dims:
                raise Unsupported(
                    f"query: placed {self.placements}; each of batch, heads and sequence may be cut by one dimension of the "
                    "mesh, and nothing else: redistribute() it, or make it whole with full_tensor()"
                )
            self.dims[word] = dim
        if "sequence" in self.dims and len(self.dims) > 1:
            raise Unsupported(
                f"query: placed {self.placements}, the sequence and something else; redistribute() to cut one of them, or "
                "call context_parallel on the to_local() of all if no modifier asks for b or h"
            )
        if "heads" in self.dims:
            self.check_heads()

    def check_heads(self):
        ranks = self.mesh.size(self.dims["heads"])
        for name, x in zip(NAMES, self.whole):
            heads = x.shape[AXES[self.layout][1]]
            if heads % ranks:
                raise Unsupported(
                    f"{name}: {heads} heads can't be cut evenly over {ranks} ranks ({self.placements}); replicate them, or "
                    "cut the batch or the sequence"
                )

    def groups(self):
        return [self.mesh.get_group(dim) for dim in self.dims.values()]

    def part(self, word):
        """(first, count): this rank's part of an axis, as torch.chunk cuts it; everything if it is not cut."""
        extent = self.whole[0].shape[AXES[self.layout][AXIS_NAMES.index(word)]]
        if word not in self.dims:
            return 0, extent
        ranks, rank = self.mesh.size(self.dims[word]), self.mesh.get_local_rank(self.dims[word])
        step = -(-extent // ranks)
        first = min(rank * step, extent)
        return first, min(step, extent - first)

    def own(self, word, x):
        """This rank's part of a tensor with one entry per sequence or head."""
        if x is None or word not in self.dims:
            return x
        if is_a_pair(x):
            return tuple(self.own(word, one) for one in x)
        first, count = self.part(word)
        return x.narrow(0, first, count) if isinstance(x, torch.Tensor) else list(x)[first : first + count]

    def placed(self, local, words, shape, merge=None):
        """The DTensor of an output whose axes are `words`."""
        placements = [Replicate()] * len(self.placements)
        for word, dim in self.dims.items():
            placements[dim] = Shard(words.index(word)) if word in words else merge or Replicate()
        size, strides = torch.Size(shape), dense_strides(shape)
        return DTensor.from_local(local, self.mesh, placements, run_check=False, shape=size, stride=strides)

    def outputs(self, o, others):
        """(o, *OUTPUTS) as DTensors."""
        q, v = self.whole[0], self.whole[2]
        axes = AXES[self.layout]
        words = [None] * q.dim()
        for axis, word in zip(axes, AXIS_NAMES):
            if axis is not None:
                words[axis] = word
        rows = [word for axis, word in zip(axes, AXIS_NAMES) if axis is not None]
        sizes = {word: q.shape[axis] for axis, word in zip(axes, AXIS_NAMES) if axis is not None}
        out = [self.placed(o, words, [*q.shape[:-1], v.shape[-1]])]
        for (name, extent), x in zip(OUTPUTS.items(), others):
            of = rows if extent == "rows" else ["heads"]
            merge = None if "sequence" in self.dims else Partial("max")  # context_parallel has merged it
            out.append(None if x is None else self.placed(x, of, [sizes[word] for word in of], merge))
        return tuple(out)


class Summed(torch.autograd.Function):
    """A tensor that all ranks of the groups hold; its gradient is summed over them."""

    @staticmethod
    def forward(ctx, x, groups):
        ctx.groups = groups
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        total = grad.to(torch.promote_types(grad.dtype, torch.float32)).clone(memory_format=torch.contiguous_format)
        for group in ctx.groups:
            dist.all_reduce(total, group=group)
        return total.to(grad.dtype), None


def attend_sharded(qkv, given):
    """fovea.torch.attention's (o, *OUTPUTS); `given` has its keywords, as request() takes them."""
    cut = Cut(given["layout"], *qkv)
    if "sequence" in cut.dims:
        return along_the_sequence(cut, given)
    groups = cut.groups()
    given = dict(given, seq_lens=cut.own("batch", given["seq_lens"]))
    if given["sinks"] is not None:
        given["sinks"] = cut.own("heads", Summed.apply(given["sinks"], groups)).contiguous()
    call, q, k, v, sinks = request(*[x.to_local() for x in qkv], given)
    if call.seed is not None and given["seed"] is None:
        for group in groups:
            dist.broadcast(call.seed, group=group, group_src=0)
    like = [q.new_empty(()).expand(x.shape) for x in qkv[:2]]
    formulas = modifiers_of(given, *like)
    for x in formulas.tensors:
        if isinstance(x, DTensor):
            raise Unsupported(f"a modifier captures a DTensor {x.placements}; it reads whole tensors: x.full_tensor()")
    add_formulas(call, formulas, q, k, v, sinks)
    if "batch" in cut.dims:
        call.b_offset = cut.part("batch")[0]
    if "heads" in cut.dims:
        call.h_offset, call.h_global = cut.part("heads")[0], qkv[0].shape[AXES[call.layout][1]]
    captured = [Summed.apply(x, groups) if x.requires_grad else x for x in formulas.tensors]
    o, *others = attend(call, q, k, v, sinks, captured)
    return cut.outputs(o, others)


def along_the_sequence(cut, given):
    axis, handed = AXES[cut.layout][2], given["handed"]
    keywords = {name: x for name, x in given.items() if name != "handed"} | handed._asdict()
    out = context_parallel(
        *[x.to_local() for x in cut.whole],
        group=cut.mesh.get_group(cut.dims["sequence"]),
        seq_len=None if cut.layout == "thd" else tuple(x.shape[axis] for x in cut.whole[:2]),
        **keywords,
    )
    asked = outputs_of(handed)
    found = dict(zip(("o", *asked), out if asked else (out,)))
    return cut.outputs(found["o"], [found.get(name) for name in OUTPUTS])


def flex_sharded(qkv, score_mod, block_mask, options):
    """fovea.torch.flex_attention's (o, *OUTPUTS)."""
    scale, enable_gqa, kernel_options, lse, row_max = options
    if not (block_mask is None or isinstance(block_mask, BlockMask)):
        raise Unsupported(
            "block_mask: torch's has tables of the whole, which DTensors are not looked up in; fovea.torch.create_block_mask "
            "makes one of the same function"
        )
    check(*qkv, enable_gqa)
    given = {"score_mod": score_mod, "mask_mod": mask_of(block_mask, *qkv[:2]), "engine": engine_in(kernel_options)}
    given.update(scale=None if scale == torch.inf else scale, return_lse=bool(lse), return_row_max=bool(row_max))
    return attend_sharded(qkv, given_to(attention, given))
