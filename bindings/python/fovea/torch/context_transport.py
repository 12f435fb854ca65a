"""What ranks of context parallelism send one another: messages between pairs, by torch.distributed alone. Everything is
asynchronous; on CUDA it runs on a stream of its own, so that steps are computed meanwhile."""

import functools
import math

import torch
import torch.distributed as dist

from .._core import InvalidArgument, Unsupported


class Ranks:
    """The ranks of a group, or of a pair of groups (one inside which heads are dealt out, one of the ring) as Transformer
    Engine has it: rank = place in the ring * ranks of the first + place in the first."""

    def __init__(self, group=None, stream=None):
        if not dist.is_available() or not dist.is_initialized():
            raise InvalidArgument("group: torch.distributed has no process group yet; call init_process_group first")
        self.groups = tuple(group) if isinstance(group, (tuple, list)) else (group,)
        if len(self.groups) not in (1, 2):
            raise InvalidArgument(f"group: must be one process group or two, got {len(self.groups)}")
        places = [dist.get_rank(g) for g in self.groups]
        if min(places) < 0:
            raise InvalidArgument(f"group: process {dist.get_rank()} is none of its ranks")
        sizes = [dist.get_world_size(g) for g in self.groups]
        self.head_ranks = sizes[0] if len(sizes) == 2 else None
        self.size = sizes[0] if len(sizes) == 1 else sizes[0] * sizes[1]
        self.rank = places[0] if len(sizes) == 1 else places[1] * sizes[0] + places[0]
        self.stream = stream
        self.sent_bytes = 0  # by this rank, of all messages

    def member(self, rank):
        """(group, rank in it) of a peer."""
        if len(self.groups) == 1:
            return self.groups[0], rank
        inside, ring = self.groups
        same_place = rank // self.head_ranks == self.rank // self.head_ranks
        return (inside, rank % self.head_ranks) if same_place else (ring, rank // self.head_ranks)

    def exchange(self, sends, receives, like):
        """sends: {rank: [tensors]}; receives: {rank: [shapes]}. The tensors of a pair make one message."""
        return Exchange(self, sends, receives, like)

    def reduce(self, tensors, operation="SUM"):
        """Over all ranks, in place."""
        for tensor in tensors:
            for group in self.groups:
                attempt("adding up over ranks", dist.all_reduce, tensor, getattr(dist.ReduceOp, operation), group=group)

    def same_seed(self, seed):
        """Makes it the first rank's on all ranks."""
        for group in reversed(self.groups):
            attempt("sharing the seed of dropout", dist.broadcast, seed, group=group, group_src=0)

    def agree(self, what: str, mistake: str = ""):
        """All ranks must ask for the same attention, and none may have made a mistake. Asked when it is new to this process;
        later a difference shows as torch.distributed's own error or timeout."""
        known = agreed(self.groups)
        if what not in known:
            for group in self.groups:
                words = [None] * dist.get_world_size(group)
                attempt("comparing what ranks compute", dist.all_gather_object, words, (what, mistake), group=group)
                for rank, (other, wrong) in enumerate(words):
                    mistake = mistake or (wrong and f"rank {rank}: {wrong}")
                    if other != what:
                        mistake = mistake or (
                            f"context_parallel: rank {rank} computes\n  {other}\nand rank {dist.get_rank(group)}\n  {what}\n"
                            "all ranks of a group must ask for the same attention, with seq_len if their numbers of rows differ"
                        )
        if mistake:
            raise InvalidArgument(mistake)
        known.add(what)


@functools.lru_cache(maxsize=64)
def agreed(groups) -> set:
    return set()


def attempt(what, function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except (RuntimeError, ValueError) as error:
        raise Unsupported(f"context_parallel: {what} failed on rank {dist.get_rank()}: {error}") from error


class Exchange:
    """Messages that are under way."""

    def __init__(self, ranks, sends, receives, like):
        self.ranks, self.like = ranks, like
        self.on_host = like.is_cuda and "gloo" in dist.get_backend(ranks.groups[0])  # gloo sends from the host only
        self.shapes = {rank: shapes for rank, shapes in receives.items() if shapes}
        self.stream = stream_of(ranks, like)
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(like.device))  # which has computed what is sent
            for tensors in sends.values():
                for x in tensors:
                    x.record_stream(self.stream)
        with torch.cuda.stream(self.stream):
            self.post({rank: tensors for rank, tensors in sends.items() if tensors})

    def post(self, sends):
        device = "cpu" if self.on_host else self.like.device
        self.out = {rank: flat(tensors, device) for rank, tensors in sends.items()}
        self.into = {
            rank: torch.empty(sum(map(math.prod, shapes)), dtype=self.like.dtype, device=device)
            for rank, shapes in self.shapes.items()
        }
        messages = [(dist.isend, rank, x) for rank, x in self.out.items()]
        messages += [(dist.irecv, rank, x) for rank, x in self.into.items()]
        operations = []
        for function, rank, buffer in sorted(messages, key=lambda m: m[1]):
            group, peer = self.ranks.member(rank)
            if buffer.numel():
                operations.append(dist.P2POp(function, buffer, group=group, group_peer=peer))
        self.ranks.sent_bytes += sum(x.numel() * x.element_size() for x in self.out.values())
        self.works = attempt("sending", dist.batch_isend_irecv, operations) if operations else []

    def wait(self):
        """{rank: [tensors]} that were received."""
        with torch.cuda.stream(self.stream):
            for work in self.works:
                attempt(f"waiting for ranks {sorted({*self.into, *self.out})}", work.wait)
            received = {rank: self.taken(rank) for rank in self.into}
        if self.stream is not None:
            current = torch.cuda.current_stream(self.like.device)
            current.wait_stream(self.stream)
            for tensors in received.values():
                for x in tensors:
                    x.record_stream(current)
        self.out = None
        return received

    def taken(self, rank):
        buffer = self.into[rank].to(self.like.device)
        parts = buffer.split([math.prod(shape) for shape in self.shapes[rank]])
        return [x.view(shape) for x, shape in zip(parts, self.shapes[rank])]


def flat(tensors, device):
    out = torch.cat([x.reshape(-1) for x in tensors]) if len(tensors) > 1 else tensors[0].reshape(-1).contiguous()
    return out.to(device)


@functools.lru_cache(maxsize=None)
def own_stream(device):
    return torch.cuda.Stream(device)


def stream_of(ranks, like):
    """None on the host, whose messages are asynchronous by themselves."""
    if not like.is_cuda:
        return None
    return ranks.stream if ranks.stream is not None else own_stream(like.device)
