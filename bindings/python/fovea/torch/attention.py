"""fovea.torch.attention: the whole semantics of Fovea on torch's tensors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Optional, Tuple, Union

import torch
from torch import Tensor

from .._core import InvalidArgument
from .._options import Handed, Options, filled, flags_of, handed_of, outputs_of, takes
from .._request import AXES, both_masks, dropout_of, engine_of, window_mask
from ..recorder import is_callback
from ..report import Explanation, explain_problem
from . import call_cache
from .arguments import (
    IsDTensor,
    autocast,
    bind_lengths,
    bind_offsets,
    check_ranks,
    check_sinks,
    check_tensors,
    is_learned,
    scale_of,
    scaled,
    seed_tensor,
)
from .call import BoundCall, Call
from .context_plan import PlanInputs
from .eager import attend, attend_found, attend_run, wanted
from .errors import in_users_words
from .modifiers import Biased, Formulas, record_callbacks, traced
from .plans import device_name, forward_problem
from .runtime import keep_plan
from .state import is_dynamo_compiling

if TYPE_CHECKING:
    from typing_extensions import Unpack

Lengths = Union[Tensor, Tuple[Tensor, Tensor], None]


@takes(deterministic=None)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    score_mod=None,
    mask_mod=None,
    score_mod_bprop=None,
    is_causal: Union[bool, str] = False,
    window_size: Optional[Tuple[int, int]] = None,
    scale: Optional[float] = None,
    layout: str = "bhsd",
    seq_lens: Lengths = None,
    cu_seqlens: Lengths = None,
    max_seqlen: Union[int, Tuple[int, int], None] = None,
    sinks: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    generator: Optional[torch.Generator] = None,
    seed: Union[int, Tensor, None] = None,
    q_offset: Union[int, Tensor] = 0,
    k_offset: Union[int, Tensor] = 0,
    tensors: Optional[dict] = None,
    scalars: Optional[dict] = None,
    bprop_tensors: Optional[dict] = None,
    window_from_the_end: bool = False,
    **options: Unpack[Options],
):
    """Attention with modified scores: o, or a tuple (o, lse, row_max, max_logit) of the requested outputs.

    q, k, v      in `layout`: bhsd, bshd, sbhd, or thd (packed sequences [T, H, D] with cu_seqlens); any strides.
                 k and v may have fewer heads than q.
    score_mod    a function of (score, b, h, q_idx, kv_idx), a formula text, a fovea.Program, or a callback
                 (graph, score, tensors) as Transformer Engine takes.
    scale        a number; or a tensor of one element, which gets a gradient if it requires one (score_mod must then be a
                 function).
    mask_mod     a function of (b, h, q_idx, kv_idx) or a formula text: True keeps a score.
    score_mod_bprop  a hand-written derivative: a function of (grad, score, b, h, q_idx, kv_idx), a text, or a callback.
                 By default the derivative is derived.
    tensors, scalars  the names in formula texts and callbacks: {name: tensor}, {name: number}. A new number never builds
                 a new plan. Functions capture by themselves. bprop_tensors: the names in a callback's derivative.
    is_causal    True: query i sees keys up to i; "bottom_right": the last query sees the last key.
    window_size  (left, right): keys from i - left to i + right; -1 is no bound. With window_from_the_end, or causal
                 from the bottom right, i is counted such that the last query is at the last key.
    seq_lens     [B] integers, or a pair for queries and keys: true lengths of padded sequences.
    cu_seqlens   thd: [B + 1] starts, or a pair; max_seqlen: the longest, or a pair (otherwise looked up, which
                 waits for the GPU).
    sinks        [H]: one more logit per head that joins the sum and has no value.
    dropout_p    of probabilities; the seed comes from `generator`, torch's own or `seed`. The same seed drops the same
                 probabilities on every device and in every engine.
    q_offset, k_offset  added to the positions that modifiers see; numbers, or one per sequence.
    deterministic=None means what torch.use_deterministic_algorithms says."""
    handed = handed_of(attention, options)
    given = {
        "score_mod": score_mod,
        "mask_mod": mask_mod,
        "score_mod_bprop": score_mod_bprop,
        "tensors": tensors,
        "scalars": scalars,
        "bprop_tensors": bprop_tensors,
        "is_causal": is_causal,
        "window_size": window_size,
        "window_from_the_end": window_from_the_end,
        "scale": scale,
        "layout": layout,
        "seq_lens": seq_lens,
        "cu_seqlens": cu_seqlens,
        "max_seqlen": max_seqlen,
        "sinks": sinks,
        "dropout_p": dropout_p,
        "generator": generator,
        "seed": seed,
        "q_offset": q_offset,
        "k_offset": k_offset,
        "handed": handed,
    }
    learn_scale(given)
    modifiers = (given["score_mod"], mask_mod, score_mod_bprop)
    key = None
    moved = type(q_offset) is not int or type(k_offset) is not int or q_offset or k_offset
    bound = seq_lens is not None or cu_seqlens is not None or max_seqlen is not None or sinks is not None
    if not (dropout_p or moved or bound):
        key = (is_causal, window_size, layout, window_from_the_end, handed)
    if is_dynamo_compiling():
        out = attend_request((q, k, v), modifiers, key, given)
    else:
        try:
            out = attend_request((q, k, v), modifiers, key, given)
        except IsDTensor:
            from .sharded import attend_sharded  # which needs all of torch.distributed

            out = attend_sharded((q, k, v), given)
        except InvalidArgument as error:
            raise in_users_words(error, modifiers) from None
    o, *others = out
    asked = [x for x in others if x is not None]
    return (o, *asked) if asked else o


def is_hashable(key) -> bool:
    try:
        hash(key)
    except TypeError:  # a list: the long way takes it, or raises
        return False
    return True


def given_to(function, options):
    """The keywords of fovea.torch.attention in a call of a function that takes these, as request() takes them."""
    given = filled(function, options)
    given["handed"] = Handed(*(given[name] for name in Handed._fields))
    learn_scale(given)
    return given


def learn_scale(given):
    """Makes a scale that gets a gradient part of the modifier."""
    if is_learned(given["scale"]):
        given["score_mod"] = scaled(given["score_mod"], given["score_mod_bprop"], given["scale"])
        given["scale"] = 1.0


def attend_request(qkv, modifiers, key, given):
    """`key` has the options, without the scale, of a call that binds nothing beside its tensors. Such a call is looked up before
    its options are checked: if a plan is found, they were checked when it was made."""
    plain = not is_dynamo_compiling() and can_be_written(modifiers, given) and call_cache.may_look_up()
    found = None
    if plain and key is not None and is_hashable(key):
        scale = scale_of(given["scale"])
        found = call_cache.look_up(key, modifiers, list(qkv), scale)
        if type(found) is tuple:
            return attend_run(found, scale)
    call, q, k, v, sinks = request(*qkv, given)
    if plain and found is None:
        tensors = [q, k, v] if sinks is None else [q, k, v, sinks]
        found = call_cache.look_up(call.key(), modifiers, tensors, call.scale)
        if type(found) is tuple:
            return attend_run(found, call.scale)
    if found is not None:
        if found.prepared is None:
            formulas = found.formulas()
            add_formulas(call, formulas, q, k, v, sinks)
            keep_plan(found, call, sinks, formulas)
        return attend_found(found, call)
    formulas = modifiers_of(given, q, k)
    add_formulas(call, formulas, q, k, v, sinks)
    return attend(call, q, k, v, sinks, formulas.tensors)


def can_be_written(modifiers, given) -> bool:
    """Can the modifiers be run as steps? Not with named tensors and scalars, and not if they are callbacks of a graph."""
    score_mod, _, bprop = modifiers
    if given["tensors"] or given["scalars"] or given["bprop_tensors"]:
        return False
    if bprop is not None and (score_mod is None or is_callback(bprop, (3, 4))):
        return False
    return not (isinstance(score_mod, Biased) or is_callback(score_mod))


def request(q, k, v, given):
    """(call, q, k, v, sinks): all but the modifiers. The call's formula is the mask of is_causal and the window."""
    check_tensors(q, k, v)
    q, k, v = autocast(q, k, v)
    layout, sinks, handed = given["layout"], given["sinks"], given["handed"]
    check_ranks(layout, q, k, v)
    flags = flags_of(handed)
    if handed.deterministic is None and torch.are_deterministic_algorithms_enabled():
        flags = ("deterministic", *flags)
    call = Call(
        window_mask(given["is_causal"], given["window_size"], given["window_from_the_end"]) or "",
        layout=layout,
        engine=engine_of(handed.engine),
        outputs=outputs_of(handed),
        flags=flags,
        scale=scale_of(given["scale"]),
        seed=seed_tensor(given["dropout_p"], given["generator"], given["seed"], q),
        dropout=dropout_of(given["dropout_p"]),
    )
    bind_lengths(call, q, given["seq_lens"], given["cu_seqlens"], given["max_seqlen"])
    bind_offsets(call, q, given["q_offset"], given["k_offset"])
    if sinks is not None:
        check_sinks(call, q, sinks)
        sinks = sinks.to(torch.float64 if q.dtype == torch.float64 else torch.float32)
    return call, q, k, v, sinks


def add_formulas(call, formulas, q, k, v, sinks):
    """Adds the formulas of the modifiers to a call that has the mask of its window."""
    formulas.mask = both_masks(formulas.mask, call.formulas) or ""
    call.formulas, call.values = formulas.text(), tuple(formulas.values)
    call.wants = wanted(q, k, v, sinks, formulas.names, formulas.tensors)


def modifiers_of(given, q, k) -> Formulas:
    bias = given["score_mod"]
    if isinstance(bias, Biased):
        nothing = bias.then is None and given["mask_mod"] is None
        formulas = Formulas() if nothing else modifiers_of({**given, "score_mod": bias.then}, q, k)
        bias.before(formulas, q)
        return formulas
    score_mod, mask_mod, bprop = given["score_mod"], given["mask_mod"], given["score_mod_bprop"]
    if is_callback(score_mod) or is_callback(bprop, (3, 4)):
        batch, head, position, _ = AXES[given["layout"]]
        sizes = (
            None if batch is None else tuple(x.shape[i] for x, i in ((q, batch), (q, head), (q, position), (k, position)))
        )
        return record_callbacks(score_mod, bprop, mask_mod, given, sizes, q)
    if given["bprop_tensors"]:
        raise InvalidArgument("bprop_tensors: goes with callbacks of a graph; formulas name all they capture in tensors")
    return traced(score_mod, mask_mod, bprop, tensors=given["tensors"], scalars=given["scalars"], like=q)


@takes(attention)
def explain(
    q, k, v, *, device=None, prove=False, ranks=None, strategy="ring", order="contiguous", head_ranks=None, **options
) -> Explanation:
    """Which engine would run a call of fovea.torch.attention, and why the others would not. If a tensor requires gradients,
    an engine with a backward is chosen.

    device  instead of that of the tensors: "h200", "cuda:0", a JSON description. The machine need not have it.
    prove   builds plans to prove support.
    ranks   also says what each of so many ranks would compute and send under fovea.torch.context_parallel, with its
            strategy, order and head_ranks; q, k and v are then the whole. `to_dict()["ranks"]` has every rank's steps."""
    given = given_to(explain, options) | {"generator": None, "seed": 0}
    call, q, k, v, sinks = request(q, k, v, given)
    found = modifiers_of(given, q, k)
    add_formulas(call, found, q, k, v, sinks)
    problem, partner, _ = forward_problem(BoundCall(call, q, k, v, sinks, found.tensors), False)
    out = explain_problem(
        problem, engine=call.engine or None, device=device or device_name(q.device), partner=partner, prove=prove
    )
    if ranks is None:
        return out
    inputs = PlanInputs(call, (q, k, v), found.tensors)
    how = (ranks, strategy, order, head_ranks or 0)
    return out.with_ranks([json.loads(inputs.plan(how, rank)) for rank in range(ranks)], inputs.plan(how, None))
