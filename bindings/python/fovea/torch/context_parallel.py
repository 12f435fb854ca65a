"""fovea.torch.context_parallel: attention over a sequence that is split over the ranks of a torch.distributed group."""

import dataclasses
import re

import torch
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from .._core import InvalidArgument, Unsupported
from .._options import takes
from .._request import AXES, one_of, substitute
from .attention import add_formulas, attention, given_to, modifiers_of, request
from .call import BOUND, BoundCall
from .context_gather import gather_backward, gather_forward
from .context_job import Job
from .context_plan import plan_of
from .context_ring import ring_backward, ring_forward
from .context_transport import Ranks
from .modifiers import Formulas, names_of

STRATEGIES = ("ring", "all_gather", "all_to_all", "a2a+p2p")
ORDERS = ("contiguous", "zigzag")


@takes(attention)
def context_parallel(
    q, k, v, *, group=None, strategy="ring", order="contiguous", head_ranks=None, seq_len=None, stream=None, **options
):
    """fovea.torch.attention over a sequence that is split over the ranks of `group`: q, k, v, o and their gradients are this
    rank's rows. Everything else is as on one GPU: modifiers see global positions, and captured tensors, lengths and cu_seqlens
    are those of the whole, the same on all ranks. Gradients of captured tensors and sinks are summed over ranks.

    group        of torch.distributed; the default one if None. A pair for a2a+p2p: of all-to-alls, and of the ring.
    strategy     ring: keys come from one rank after the other, results are merged by lse. all_gather: keys first.
                 all_to_all: each rank gets all positions of a part of the heads. a2a+p2p: all-to-all inside groups of
                 `head_ranks` neighbours, a ring of them. Parts of keys that are all masked are not sent.
    order        how rows are distributed (by `shard_sequence`): contiguous, or zigzag, which balances the work of causal
                 masks: of twice as many parts as there are ranks, rank i has part i from the start and part i from the
                 end. Packed sequences are split one by one.
    seq_len      rows of the whole sequence, or a pair for queries and keys, if ranks have different numbers of them.
    stream       CUDA: for messages; None: one of Fovea's own.
    dropout_p    drops the same scores as on one GPU with the same seed; without `seed`, it comes from the first rank's
                 generator.
    deterministic  all_gather and all_to_all then give the same bits of o, lse and the gradients of q, k, v as one GPU."""
    one_of("strategy", strategy, STRATEGIES)
    one_of("order", order, ORDERS)
    given = given_to(context_parallel, options)
    if not isinstance(given["q_offset"], int) or not isinstance(given["k_offset"], int):
        raise InvalidArgument(
            "q_offset, k_offset: must be integers here; a modifier that captures one per sequence says the same: "
            "first[b] + q_idx"
        )
    ranks = Ranks(group, stream)
    if strategy == "a2a+p2p":
        head_ranks = ranks.head_ranks or head_ranks
        if head_ranks is None:
            raise InvalidArgument("strategy='a2a+p2p': needs head_ranks, or two groups")
    call, q, k, v, sinks = request(q, k, v, given)
    if call.seed is not None and given["seed"] is None:
        ranks.same_seed(call.seed)
    whole = whole_tensors(call, q, k, v, ranks, seq_len)
    like = [q.new_empty(()).expand(x.shape) for x in whole[:2]]
    formulas = modifiers_of(given, *like)
    add_formulas(call, formulas, q, k, v, sinks)
    captured = with_whole_sizes(call, formulas.tensors, whole)
    how = (ranks.size, strategy, order, head_ranks or 0)
    plan = plan_of(call, whole, captured, how, ranks.rank, q.device)
    shapes, others = ([list(x.shape) for x in tensors] for tensors in (whole, captured))
    split = f"{strategy}, order {order}, head_ranks {head_ranks}"
    asked = f"{split}; whole q, k, v {shapes} {q.dtype}; captured {others}; formulas and options {call.key()}"
    ranks.agree(asked, wrong_rows(call, plan, q, k))
    job = Job(call, plan, ranks, gathers=strategy in ("all_gather", "all_to_all"))
    o, *others = ContextParallel.apply(job, q, k, v, sinks, *captured)
    asked = [x for x in others if x is not None]
    return (o, *asked) if asked else o


def whole_tensors(call, q, k, v, ranks, seq_len):
    """q, k and v of the whole attention, without memory."""
    pair = seq_len if isinstance(seq_len, (tuple, list)) else (seq_len, seq_len)
    axis = AXES[call.layout][2]
    out = []
    for x, starts, given in ((q, call.q_starts, pair[0]), (k, call.k_starts, pair[1]), (v, call.k_starts, pair[1])):
        rows = int(starts[-1]) if starts is not None else given
        shape = list(x.shape)
        shape[axis] = shape[axis] * ranks.size if rows is None else int(rows)
        out.append(torch.empty(shape, dtype=x.dtype, device="meta"))
    return out


def wrong_rows(call, plan, q, k) -> str:
    """What is wrong with the rows of this rank, or nothing."""
    axis = AXES[call.layout][2]
    for name, x, side in (("query", q, plan.q), ("key", k, plan.k)):
        expected = side.rank_rows(plan.rank)
        if x.shape[axis] != expected:
            return (
                f"{name}: rank {plan.rank} of {plan.ranks} has {x.shape[axis]} rows and should have {expected}; "
                "shard_sequence deals them out, and seq_len says how many there are in all if ranks differ"
            )
    return ""


_SIZES = re.compile(r"\b(Sq|Skv|Hkv)\b")


def with_whole_sizes(call, captured, whole):
    """Formulas that name lengths mean those of the whole: as numbers, or, if sequences have their own, as a captured tensor
    each. Gives what is captured then."""
    formulas, captured = Formulas.parse(call.formulas), list(captured)
    texts = formulas.mod, formulas.mask, formulas.bprop
    if not any(_SIZES.search(text) for text in texts):
        return captured
    axis, heads = AXES[call.layout][2], AXES[call.layout][1]
    numbers = {"Sq": whole[0].shape[axis], "Skv": whole[1].shape[axis], "Hkv": whole[1].shape[heads]}
    words = {name: str(number) for name, number in numbers.items()}
    for name, lengths, starts in (("Sq", call.q_lens, call.q_starts), ("Skv", call.k_lens, call.k_starts)):
        if lengths is None and starts is not None:
            lengths = starts.diff().to(torch.int32)
        if lengths is not None and any(re.search(rf"\b{name}\b", text) for text in texts):
            words[name] = f"_whole_{name}[b]"
            captured.append(lengths)
            formulas.names.append(f"_whole_{name}")
            formulas.uses.append("b")
    formulas.mod, formulas.mask, formulas.bprop = (substitute(text, words) for text in texts)
    call.formulas = formulas.text()
    return captured


class ContextParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, job, q, k, v, sink, *captured):
        plan, call = job.plan, job.call
        heads = q.shape[job.head_axis]
        q, k, v = job.deal_heads(q, plan.q), job.deal_heads(k, plan.k), job.deal_heads(v, plan.k)
        if plan.head_ranks > 1:
            call = dataclasses.replace(call, h_global=heads, h_offset=heads // plan.head_ranks * plan.member)
        sink = job.own_heads(sink)
        run = gather_forward if job.gathers else ring_forward
        o, lse, row_max, max_logit = run(job, BoundCall(call, q, k, v, sink, captured))
        if call.wants:
            ctx.save_for_backward(q, k, v, o, lse, sink, *captured, *call.tensors())
            ctx.job, ctx.call, ctx.count = job, call.without_tensors(), len(captured)
        ctx.set_materialize_grads(False)
        out = job.collect_heads(o.to(q.dtype), plan.q)
        rows = lambda x: job.tensor_as_rows(job.collect_heads(job.rows_as_tensor(x), plan.q))
        lse = rows(lse) if "lse" in call.outputs else None
        row_max = rows(row_max) if "row_max" in call.outputs else None
        max_logit = largest(job, max_logit, q) if "max_logit" in call.outputs else None
        ctx.mark_non_differentiable(*[x for x in (row_max, max_logit) if x is not None])
        return out, lse, row_max, max_logit

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_o, grad_lse, *_):
        q, k, v, o, lse, sink, *rest = ctx.saved_tensors
        captured, bound = rest[: ctx.count], rest[ctx.count :]
        job, call = ctx.job, dataclasses.replace(ctx.call, **dict(zip(BOUND, bound)), outputs=())
        if grad_o is None:
            grad_o = torch.zeros_like(o, dtype=q.dtype)
        else:
            grad_o = job.deal_heads(grad_o.contiguous(), job.plan.q)
        if grad_lse is not None:
            grad_lse = job.tensor_as_rows(job.deal_heads(job.rows_as_tensor(grad_lse), job.plan.q))
        run = gather_backward if job.gathers else ring_backward
        at = BoundCall(call, q, k, v, sink, captured, o, lse, grad_o, grad_lse)
        return (None, *own_gradients(job, at, run(job, at)))


def own_gradients(job, at, grads):
    """In the order of forward's arguments: rows of this rank, and sums over ranks."""
    call, captured, out = at.call, at.captured, []
    for name, x, side in zip("qkv", at[1:4], (job.plan.q, job.plan.k, job.plan.k)):
        found = grads.get(name)
        out.append(None if found is None else job.collect_heads(found.to(x.dtype), side))
    names = names_of(call)[4:]
    shared = [name for name in ("sink", *names) if name in call.wants.split(",")]
    if "sink" in shared:
        grads["sink"] = job.all_heads(grads["sink"])
    types = dict(zip(names, [x.dtype for x in captured]))
    for name, x in zip(names, captured):
        if name in shared and name not in grads:  # this rank computed no tile
            grads[name] = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    for name in shared:
        grads[name] = grads[name].float() if grads[name].dtype in (torch.float16, torch.bfloat16) else grads[name]
        grads[name] = grads[name].contiguous()
    job.ranks.reduce([grads[name] for name in shared])
    of = lambda name: grads[name].to(types.get(name, grads[name].dtype)) if name in shared else None
    return [*out, of("sink"), *map(of, names)]


def largest(job, own, q):
    """The largest logit of each head, over all ranks."""
    if own is None:
        own = torch.full((q.shape[job.head_axis],), -torch.inf, device=q.device)
    out = own.new_full((own.shape[0] * job.plan.head_ranks,), -torch.inf)
    out.chunk(job.plan.head_ranks)[job.plan.member].copy_(own)
    job.ranks.reduce([out], "MAX")
    return out


def shard_sequence(x, ranks, rank, *, order="contiguous", dim=2, cu_seqlens=None):
    """The rows of a whole tensor that a rank has. Packed sequences (with cu_seqlens) in the order zigzag are cut one by
    one."""
    index = rows_of(x.shape[dim], ranks, rank, one_of("order", order, ORDERS), cu_seqlens)
    return x.index_select(dim, torch.tensor(index, dtype=torch.int64, device=x.device))


def unshard_sequence(parts, *, order="contiguous", dim=2, cu_seqlens=None):
    """The whole tensor, from a list of the parts of all ranks: the inverse of shard_sequence."""
    if isinstance(parts, torch.Tensor):
        raise InvalidArgument("parts: a Tensor; must be a list with the part of every rank")
    rows = sum(x.shape[dim] for x in parts)
    places = [i for rank in range(len(parts)) for i in rows_of(rows, len(parts), rank, order, cu_seqlens)]
    whole = torch.cat(list(parts), dim)
    return torch.empty_like(whole).index_copy_(dim, torch.tensor(places, device=whole.device), whole)


def rows_of(rows, ranks, rank, order, cu_seqlens):
    if order == "contiguous" or cu_seqlens is None:
        starts = [0, rows if cu_seqlens is None else int(cu_seqlens[-1])]
    else:
        starts = [int(x) for x in cu_seqlens]
    parts = ranks if order == "contiguous" else 2 * ranks
    out = []
    for first, last in zip(starts, starts[1:]):
        pieces = torch.arange(first, last).tensor_split(parts)
        for i in [rank] if order == "contiguous" else [rank, parts - 1 - rank]:
            out += pieces[i].tolist()
    return out


# torch's own context_parallel with Fovea inside. That manager offers no hook for other kernels: it hands what is given to
# scaled_dot_product_attention on as DTensors that are cut along the sequence, and these are caught here.


class ContextParallelSDPA(TorchFunctionMode):
    """Inside it, `torch.nn.functional.scaled_dot_product_attention` of DTensors that are sharded along their sequence is
    fovea.torch.context_parallel; everything else is left to torch.

        with torch.distributed.tensor.experimental.context_parallel(mesh, buffers=..., buffer_seq_dims=...):
            with fovea.torch.ContextParallelSDPA():
                loss = model(x).sum()
                loss.backward()

    order        how rows are distributed: zigzag by torch's manager, contiguous in other DTensors.
    strategy     as in context_parallel.
    """

    def __init__(self, strategy="ring", order="zigzag"):
        super().__init__()
        self.options = {"strategy": one_of("strategy", strategy, STRATEGIES[:3]), "order": one_of("order", order, ORDERS)}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        # By its private name: the manager puts a wrapper in the place of the public one.
        if function is torch._C._nn.scaled_dot_product_attention and is_cut(args[0] if args else kwargs["query"]):
            return self.attend(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    def attend(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
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
