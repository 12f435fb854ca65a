"""What the processes of test_parallel.py run: one rank's part of a case, compared with the single-process call that it
makes itself. Processes are started once and given cases by name."""

import datetime
import importlib
import os
import sys
import traceback

import torch
import torch.distributed as dist

import fovea
import fovea.torch as ft

DEVICE = os.environ.get("FOVEA_TEST_DEVICE", "cpu")
ON_GPU = DEVICE != "cpu"
B, H, HKV = 2, 4, 2
D, DV, DTYPE = (64, 64, torch.bfloat16) if ON_GPU else (8, 6, torch.float32)  # as GPUs are used
PATIENCE = 90 if ON_GPU else 12  # seconds; kernels are compiled meanwhile
CU = [0, 7, 7, 24, 37]  # packed sequences, one of them empty


def serve(rank, size, store, pipe):
    """Runs what comes through the pipe until None comes."""
    torch.set_num_threads(1)
    torch.set_default_device(DEVICE)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=PATIENCE)
    )
    groups = {2: dist.new_group([0, 1]), size: dist.group.WORLD}
    if size == 4:
        groups["inside"] = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
        groups["ring"] = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
        groups["single"] = [dist.new_group([i]) for i in range(size)][rank]
    while (work := pipe.recv()) is not None:
        (module, name), arguments = work
        try:
            getattr(importlib.import_module(module), name)(groups, **arguments)
            pipe.send(None)
        except BaseException:  # noqa: B036  whatever it is, the test shows it
            pipe.send(traceback.format_exc())
    dist.destroy_process_group()


def inputs(layout, length, seed, dtype=DTYPE, key_heads=HKV):
    """q, k, v and the gradient of o. `length`: of queries and keys, if it is a pair."""
    make = torch.Generator(DEVICE).manual_seed(seed)
    rows = length if isinstance(length, tuple) else (length, length)
    shapes = {
        "bhsd": lambda h, s, d: (B, h, s, d),
        "bshd": lambda h, s, d: (B, s, h, d),
        "sbhd": lambda h, s, d: (s, B, h, d),
        "thd": lambda h, s, d: (s, h, d),
    }
    draw = lambda h, s, d: torch.randn(shapes[layout](h, s, d), generator=make).to(dtype)
    return draw(H, rows[0], D), draw(key_heads, rows[1], D), draw(key_heads, rows[1], DV), draw(H, rows[0], DV)


def modification(name, length, make):
    """(options, captured tensors whose gradients are compared)"""
    if name == "none":
        return {}, []
    if name == "causal":
        return {"is_causal": True}, []
    if name == "bottom_right":
        return {"is_causal": "bottom_right", "seq_lens": torch.tensor([length, length - 5])}, []
    if name == "sliding":
        return {"is_causal": True, "window_size": (4, 0)}, []
    if name == "documents":
        document = torch.arange(length)[None].expand(B, length) // torch.tensor([[5], [9]])
        return {"mask_mod": lambda b, h, q, k: document[b, q] == document[b, k]}, []
    if name == "alibi":
        slopes = torch.rand(H, generator=make)
        return {"score_mod": lambda s, b, h, q, k: s + slopes[h] * (k - q), "is_causal": True}, []
    if name == "softcap_alibi":
        slopes = torch.rand(H, generator=make).requires_grad_()
        cap = torch.tensor(3.0, requires_grad=True)
        score = lambda s, b, h, q, k: cap * torch.tanh(s / cap) + slopes[h] * (k - q)
        return {"score_mod": score, "is_causal": True}, [slopes, cap]
    if name == "bias":
        bias = torch.randn(H, length, length, generator=make).requires_grad_()
        return {"score_mod": lambda s, b, h, q, k: s + bias[h, q, k]}, [bias]
    if name == "dropout":
        return {"dropout_p": 0.3, "seed": 5, "is_causal": True}, []
    if name == "sinks":
        return {"sinks": torch.randn(H, generator=make).requires_grad_(), "is_causal": True}, ["sinks"]
    if name == "lengths":
        return {"seq_lens": torch.tensor([length - 3, length // 2])}, []
    if name == "few_lengths":
        return {"seq_lens": (torch.tensor([length[0], length[0] - 61]), torch.tensor([length[1], length[1] - 40]))}, []
    raise KeyError(name)


def run_case(groups, *, ranks, strategy, order, case, layout="bhsd", length=24, starts=CU, **options):
    """One case on the first `ranks` processes, beside the call that has the whole: the same bits, or, within the limits, what
    the reference engine computes in double. On GPUs, which have no such engine, beside the call in the same type."""
    if dist.get_rank() >= ranks:
        return
    dtype, same_bits = options.pop("dtype", DTYPE), options.pop("same_bits", False)
    group = options.pop("group", None) or groups[ranks]
    rank = dist.get_rank(group) if not isinstance(group, str) else dist.get_rank()
    if group == "two":
        group = (groups["inside"], groups["ring"])
    packed = layout == "thd"
    length = starts[-1] if packed else length
    whole = inputs(layout, length, 3, dtype, options.pop("key_heads", HKV))
    kept, wanted = modification(case, length, torch.Generator(DEVICE).manual_seed(4))
    extra = {**kept, "layout": layout, "deterministic": same_bits}
    if packed:
        extra["cu_seqlens"] = torch.tensor(starts, dtype=torch.int32)
    leaves = [kept["sinks"] if x == "sinks" else x for x in wanted]
    axis = {"bhsd": 2, "bshd": 1, "sbhd": 0, "thd": 0}[layout]
    deal = lambda x, dim=axis: ft.shard_sequence(x, ranks, rank, order=order, dim=dim, cu_seqlens=starts if packed else None)
    if same_bits or ON_GPU:
        expected = single_call(whole, extra, leaves)
    else:
        expected = single_call([x.double() for x in whole], {**extra, "engine": "reference"}, leaves)
    more = {"group": group, "strategy": strategy, "order": order, "seq_len": None if packed else length, **options}
    got = parallel_call([deal(x) for x in whole], {**extra, **more}, leaves, deal(expected["weights"], -1))
    limit, of_rows = (x * (3 if ON_GPU else 1) for x in (LIMITS[dtype], LIMITS[torch.float32]))
    complaints = [complaint("o", got["o"], deal(expected["o"]), limit, same_bits)]
    for name in "qkv":
        complaints.append(complaint(f"d{name}", got[name], deal(expected[name]), 3 * LIMITS[dtype], same_bits))
    for name in ("lse", "row_max"):
        complaints.append(complaint(name, got[name], deal(expected[name], -1), of_rows, same_bits))
    complaints.append(complaint("max_logit", got["max_logit"], expected["max_logit"], of_rows, same_bits))
    for i, x in enumerate(expected["leaves"]):
        complaints.append(complaint(f"captured {i}", got["leaves"][i], x, 3 * LIMITS[dtype]))
    assert not any(complaints), "\n".join(filter(None, complaints))


ALL = {"return_lse": True, "return_row_max": True, "return_max_logit": True}


def weights_like(lse):
    return torch.cos(torch.arange(lse.numel(), dtype=lse.dtype)).reshape(lse.shape)


def differentiate(out, tensors, leaves, weights):
    (q, k, v), grad = tensors
    o, lse, row_max, max_logit = out
    kept = torch.where(lse.isfinite(), lse, torch.zeros_like(lse))
    loss = (o.float() * grad.float()).sum() + (kept * weights).sum()
    grads = torch.autograd.grad(loss, [q, k, v, *leaves])
    named = dict(zip("qkv", grads))
    return {**named, "o": o.detach(), "lse": lse.detach(), "row_max": row_max, "max_logit": max_logit, "leaves": grads[3:]}


def single_call(whole, options, leaves):
    q, k, v = (x.clone().requires_grad_() for x in whole[:3])
    out = ft.attention(q, k, v, **ALL, **options)
    weights = weights_like(out[1].detach())
    return {**differentiate(out, ((q, k, v), whole[3]), leaves, weights), "weights": weights}


def parallel_call(parts, options, leaves, weights):
    q, k, v = (x.clone().requires_grad_() for x in parts[:3])
    out = ft.context_parallel(q, k, v, **ALL, **options)
    return differentiate(out, ((q, k, v), parts[3]), leaves, weights)


LIMITS = {torch.float32: 2e-6, torch.bfloat16: 6e-3, torch.float16: 8e-4}  # of outputs; gradients have three times that


def complaint(name, got, wanted, limit, same_bits=False):
    """What is wrong, in words, or None."""
    if got.shape != wanted.shape:
        return f"{name}: {tuple(got.shape)}, not {tuple(wanted.shape)}"
    if same_bits:
        other = int((got != wanted).sum())
        largest = (got - wanted).abs().nan_to_num().max() if other else 0
        return f"{name}: other bits in {other} of {got.numel()}, largest difference {largest:.2e}" if other else None
    infinite = wanted.isinf()
    if not torch.equal(got.isinf(), infinite):
        return f"{name}: other infinities"
    got, wanted = got.detach()[~infinite].double(), wanted.detach()[~infinite].double()
    error, size = float((got - wanted).norm()), float(wanted.norm())
    if error > limit * size:
        return f"{name}: error {error:.2e} of {size:.2e}, which is {error / max(size, 1e-300):.2e}; allowed {limit:.1e}"
    largest = float((got - wanted).abs().max()) if got.numel() else 0.0
    if largest > 10 * limit * float(wanted.abs().max() if wanted.numel() else 0):
        return f"{name}: an element is off by {largest:.2e}"
    return None


def compare(name, got, wanted, dtype, factor=3):
    """Two calls that may both be off."""
    wrong = complaint(name, got, wanted, factor * LIMITS[dtype])
    assert wrong is None, wrong


def counted_bytes(groups, *, strategy, order, case, head_ranks=None, deterministic=False):
    """What a rank sends is what the plan says, forward and backward, and less than everything if much is masked."""
    module = sys.modules["fovea.torch.context_parallel"]
    length, sent, plans = 64, [], []
    make_ranks, make_plan = module.Ranks, module.plan_of

    def noted_ranks(*arguments):
        sent.append(make_ranks(*arguments))
        return sent[-1]

    def noted_plan(*arguments):
        plans.append(make_plan(*arguments))
        return plans[-1]

    module.Ranks, module.plan_of = noted_ranks, noted_plan
    try:
        rank = dist.get_rank()
        options, _ = modification(case, length, torch.Generator(DEVICE))
        parts = [ft.shard_sequence(x, 4, rank, order=order).requires_grad_() for x in inputs("bhsd", length, 1)]
        more = {"head_ranks": head_ranks, "deterministic": deterministic}
        o = ft.context_parallel(*parts[:3], strategy=strategy, order=order, **options, **more)
        forward = sent[0].sent_bytes
        o.backward(parts[3])
    finally:
        module.Ranks, module.plan_of = make_ranks, make_plan
    counted = {"forward": forward, "backward": sent[0].sent_bytes - forward}
    assert counted == plans[0].bytes, f"counted {counted}, planned {plans[0].bytes}"
    everything = 3 * 16 * B * HKV * (D + DV) * DTYPE.itemsize
    if case in ("sliding", "documents") and strategy in ("ring", "all_gather"):
        assert forward <= everything * 2 / 3, f"{forward} of {everything} bytes"


def modules(groups, *, communication, layout):
    """DotProductAttention with cp_group beside the same module without."""
    rank, length = dist.get_rank(), CU[-1] if layout == "thd" else 24
    whole = [x.requires_grad_() for x in inputs(layout, length, 5)[:3]]
    whole[2] = inputs(layout, length, 5)[1].requires_grad_()  # one number of channels
    packed = {}
    if layout == "thd":
        starts = torch.tensor(CU, dtype=torch.int32)
        packed = {"cu_seqlens_q": starts, "cu_seqlens_kv": starts, "max_seqlen_q": 17, "max_seqlen_kv": 17}
    module = ft.DotProductAttention(H, D, num_gqa_groups=HKV, qkv_format=layout, softmax_type="learnable")
    bias = {} if layout == "thd" else {"core_attention_bias_type": "alibi"}
    expected = module(*whole, **packed, **bias)
    wanted = torch.autograd.grad(expected.square().sum(), [*whole, module.softmax_offset])
    group = (groups["inside"], groups["ring"]) if communication == "a2a+p2p" else groups[4]
    ranks = [0, 1, 2, 3] if communication != "a2a+p2p" else None
    if communication == "a2a":
        group, ranks = groups["inside"], None
    module.set_context_parallel_group(group, ranks, None, communication)
    count, own = (2, rank % 2) if communication == "a2a" else (4, rank)
    dim = {"bshd": 1, "sbhd": 0, "thd": 0}[layout]
    deal = lambda x: ft.shard_sequence(x, count, own, order="zigzag", dim=dim, cu_seqlens=CU if layout == "thd" else None)
    mine = [deal(x.detach()).requires_grad_() for x in whole]
    got = module(*mine, **packed, **bias)
    found = torch.autograd.grad(got.square().sum(), [*mine, module.softmax_offset])
    compare("o", got, deal(expected), DTYPE)
    for name, x, y in zip("qkv", found, wanted):
        compare(name, x, deal(y), DTYPE)
    compare("softmax_offset", found[3], wanted[3], DTYPE)
    if communication == "p2p":
        refusal(lambda: module.set_context_parallel_group(group, [0, 1], None), "cp_global_ranks")


def tensor_parallel(groups, *, sequence_parallel, layernorm):
    """MultiheadAttention with its heads on two ranks beside the module that has all of them."""
    rank, width = dist.get_rank(), 32
    if rank >= 2:
        return
    torch.manual_seed(7)
    options = {"num_gqa_groups": HKV, "attention_dropout": 0.0, "device": DEVICE, "input_layernorm": layernorm}
    whole = ft.MultiheadAttention(width, H, **options)
    options.update(set_parallel_mode=True, tp_size=2, sequence_parallel=sequence_parallel)
    part = ft.MultiheadAttention(width, H, **options)
    part.set_tensor_parallel_group(groups[2])
    name = "layernorm_qkv" if layernorm else "qkv"
    own = lambda x: torch.cat([y.chunk(2)[rank] for y in x.split([width, width // 2, width // 2])])
    columns = lambda x: x.chunk(2, 1)[rank]
    with torch.no_grad():
        for key, cut in (("weight", own), ("bias", own)):
            getattr(getattr(part, name), key).copy_(cut(getattr(getattr(whole, name), key)))
        part.proj.weight.copy_(columns(whole.proj.weight))
        whole.proj.bias.normal_()
        part.proj.bias.copy_(whole.proj.bias)
    x = torch.randn(6, B, width).requires_grad_()
    mine = (x.detach().chunk(2)[rank] if sequence_parallel else x.detach()).clone().requires_grad_()
    expected, got = (m(y, core_attention_bias_type="alibi") for m, y in ((whole, x), (part, mine)))
    here = lambda y: y.chunk(2)[rank] if sequence_parallel else y
    compare("o", got, here(expected), torch.float32)
    expected.square().sum().backward()
    got.square().sum().backward()
    compare("input", mine.grad, here(x.grad), torch.float32)
    compare("qkv", getattr(part, name).weight.grad, own(getattr(whole, name).weight.grad), torch.float32)
    compare("proj", part.proj.weight.grad, columns(whole.proj.weight.grad), torch.float32)
    refusal(lambda: part.set_tensor_parallel_group(groups["single"]), "tp_size is 2")


def seeds_are_shared(groups):
    """Without a seed the first rank's generator counts, on every rank."""
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    parts = [ft.shard_sequence(x, 4, rank) for x in inputs("bhsd", 24, 3)]
    o = ft.context_parallel(*parts[:3], dropout_p=0.5)
    torch.manual_seed(100)
    whole = ft.attention(*inputs("bhsd", 24, 3)[:3], dropout_p=0.5)
    compare("o", o, ft.shard_sequence(whole, 4, rank), DTYPE)


def refusal(function, *words):
    try:
        function()
    except (fovea.InvalidArgument, fovea.Unsupported) as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
        return
    raise AssertionError(f"not refused: {words}")


def mistakes(groups):
    """What is wrong is an error on every rank."""
    rank = dist.get_rank()
    part = lambda rows, heads=H: torch.randn(B, heads, rows, D)
    cut = lambda rows, **options: ft.context_parallel(part(rows), part(rows, HKV), part(rows, HKV), **options)
    refusal(lambda: cut(6, seq_len=25), "rows and should have")
    refusal(lambda: cut(6, strategy="all_to_all"), "2 heads of keys")
    refusal(lambda: cut(6, strategy="rings"), "strategy")
    refusal(lambda: cut(6, order="zig"), "order")
    refusal(lambda: cut(6, strategy="a2a+p2p"), "head_ranks")
    refusal(lambda: cut(6, q_offset=torch.tensor([1, 2])), "integers", "first[b]")
    refusal(lambda: cut(6, is_causal=rank == 0), "must ask for the same attention")
    if rank >= 2:
        refusal(lambda: cut(6, group=groups[2]), "none of its ranks")
    else:
        refusal(lambda: cut(6, group=groups[2], seq_len=24), "of 2 has 6 rows and should have 12")


def stay_away(groups):
    """A rank that asks in a group of another size: the one that waits for it is told so when the group's time is over."""
    waiting = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=2))
    part = torch.randn(B, H, 7, D)
    if dist.get_rank() == 0:
        refusal(lambda: ft.context_parallel(part, part, part, group=waiting), "context_parallel", "rank 0")
    else:
        ft.context_parallel(part, part, part, group=groups["single"])


def die(groups, *, who):
    """One rank dies, and the others are told so, at the latest when the group's time is over: while ranks compare what they
    compute, and, if that is known to be the same, while they send."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=3))
    part = torch.randn(B, H, 6, D)
    if not ON_GPU:  # where a rank would compile kernels meanwhile
        ft.context_parallel(part, part, part, group=group)
    if dist.get_rank() == who:
        os._exit(1)
    refusal(lambda: ft.context_parallel(part, part, part, group=group), "context_parallel", "rank")
    refusal(lambda: ft.context_parallel(part, part, part, is_causal=True, group=group), "comparing what ranks compute")
