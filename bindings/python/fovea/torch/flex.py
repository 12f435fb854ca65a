"""flex_attention with the signature and the meaning of torch.nn.attention.flex_attention.flex_attention."""

import warnings
from typing import Optional

import torch
from torch import Tensor

from .._core import InvalidArgument
from .._request import engine_of
from . import call_cache
from .arguments import IsDTensor, autocast, check_tensors, is_learned, scale_of, scaled
from .block_tables import add_tables
from .call import Call
from .eager import attend, attend_found, attend_run, wanted
from .errors import in_users_words
from .masks import BlockMask, mask_of
from .modifiers import traced
from .runtime import keep_plan
from .state import is_dynamo_compiling

try:
    from torch.nn.attention.flex_attention import AuxOutput, AuxRequest
except ImportError:  # torch before 2.9
    from typing import NamedTuple

    class AuxRequest(NamedTuple):
        lse: bool = False
        max_scores: bool = False

    class AuxOutput(NamedTuple):
        lse: Optional[Tensor] = None
        max_scores: Optional[Tensor] = None


# Options that tune torch's kernels; ignored.
_TUNING = {
    *("num_warps", "num_stages", "BLOCK_M", "BLOCK_N", "BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2"),
    *("PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS", "WRITE_DQ", "FORCE_USE_FLEX_ATTENTION", "USE_TMA"),
    *("SPLIT_KV", "kpack", "matrix_instr_nonkdim", "waves_per_eu", "OUTPUT_LOGSUMEXP", "BACKEND"),
}
_BACKENDS = ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")
_warned = set()


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod=None,
    block_mask=None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options=None,
    *,
    return_aux: Optional[AuxRequest] = None,
):
    """Attention over [B, H, S, D] with modified scores; see torch's function of this name for every argument.

    `score_mod` may also be a formula text or a fovea.Program, `block_mask` one of torch's or of
    fovea.torch.create_block_mask. `kernel_options` may name an engine: {"engine": "cpu"}; torch's tuning options are
    accepted and ignored. Captured tensors and parameters get gradients."""
    if return_lse:
        check_return_lse(return_aux)
    wants_lse = return_lse or (return_aux is not None and return_aux.lse)
    wants_max = return_aux is not None and return_aux.max_scores
    if is_learned(scale):
        score_mod, scale = scaled(score_mod, None, scale), 1.0
    options = (scale_of(scale), enable_gqa, kernel_options, wants_lse, wants_max)
    if is_dynamo_compiling():
        out = attend_new((query, key, value), score_mod, block_mask, options, None)
    else:
        try:
            out = attend_eager((query, key, value), score_mod, block_mask, options)
        except IsDTensor:
            from .sharded import flex_sharded  # which needs all of torch.distributed

            out = flex_sharded((query, key, value), score_mod, block_mask, options)
        except InvalidArgument as error:
            raise in_users_words(error, (score_mod, getattr(block_mask, "mask_mod", None))) from None
    o, lse, row_max, *_ = out
    if return_aux is not None:
        return o, AuxOutput(lse=lse, max_scores=row_max)
    return (o, lse) if return_lse else o


def attend_eager(qkv, score_mod, block_mask, options):
    found = None
    if call_cache.may_look_up():
        scale, enable_gqa, kernel_options, *outputs = options
        key = (bool(enable_gqa), *outputs, kernel_options and engine_in(kernel_options))
        found = look_up(qkv, score_mod, block_mask, scale, key)
    if type(found) is tuple:
        return attend_run(found, options[0])
    if found is not None and found.prepared is not None:
        return attend_found(found)
    return attend_new(qkv, score_mod, block_mask, options, found)


def attend_new(qkv, score_mod, block_mask, options, found):
    """A call without a plan, or one that is not plain."""
    scale, enable_gqa, kernel_options, lse, row_max = options
    check_tensors(*qkv)
    query, key, value = autocast(*qkv)
    check(query, key, value, enable_gqa)
    key, value = (x if x.dtype == query.dtype else converted(x, query) for x in (key, value))
    if key.shape[0] != query.shape[0]:
        key, value = (x.expand(query.shape[0], -1, -1, -1) for x in (key, value))
    mask_mod = mask_of(block_mask, query, key)
    formulas = found.formulas() if found is not None else traced(score_mod, mask_mod, like=query)
    if block_mask is not None and not isinstance(block_mask, BlockMask):
        add_tables(formulas, block_mask, query)
    call = Call(
        formulas.text(),
        tuple(formulas.values),
        engine=engine_in(kernel_options),
        outputs=("lse",) * bool(lse) + ("row_max",) * bool(row_max),
        flags=("deterministic",) * torch.are_deterministic_algorithms_enabled(),
        scale=scale,
        wants=wanted(query, key, value, None, formulas.names, formulas.tensors),
    )
    if found is None or key is not qkv[1] or value is not qkv[2]:
        return attend(call, query, key, value, None, formulas.tensors)
    keep_plan(found, call, None, formulas)
    return attend_found(found)


def look_up(qkv, score_mod, block_mask, scale, options):
    """As call_cache.look_up; also None for torch's block masks, whose tables count beside the function."""
    mask_mod = None
    if block_mask is not None:
        if type(block_mask) is not BlockMask:
            return None
        mask_mod = block_mask.mask_mod
        options = (*options, block_mask.B, block_mask.H, *block_mask.seq_lengths)
    return call_cache.look_up(options, (score_mod, mask_mod), list(qkv), scale)


def check(query, key, value, enable_gqa):
    shape, other = query.shape, key.shape
    if not query.device == key.device == value.device:
        raise InvalidArgument(
            f"Expected query, key, and value to have the same device type, but got query.device: {query.device}, "
            f"key.device: {key.device}, and value.device: {value.device} instead"
        )
    if len(shape) == len(other) == value.dim() == 4 and shape[:2] == other[:2]:
        return  # the common case
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise InvalidArgument(f"{name}: {x.dim()} dimensions {list(x.shape)}; must be [B, H, S, D]")
    if key.shape[1] != query.shape[1] and not enable_gqa:
        raise InvalidArgument(
            f"key: {key.shape[1]} heads, the query has {query.shape[1]}; for grouped heads say enable_gqa=True"
        )
    if key.shape[0] != query.shape[0] and key.shape[0] != 1:
        raise InvalidArgument(f"key: {key.shape[0]} sequences, the query has {query.shape[0]}; must be as many, or 1")


def converted(x, query):
    """Keys and values of another type than the query, float8 for example, which torch accepts."""
    if not (x.is_floating_point() and query.is_floating_point()):
        raise InvalidArgument(f"key, value: {x.dtype}; must be of a floating type, as query is, {query.dtype}")
    return x.to(query.dtype)


def check_return_lse(return_aux):
    if return_aux is not None:
        raise InvalidArgument(
            "Cannot specify both return_lse and return_aux. return_lse is deprecated, please use "
            "return_aux=AuxRequest(lse=True) instead"
        )
    warn_once("return_lse is deprecated; please use return_aux=AuxRequest(lse=True) instead", FutureWarning)


def warn_once(text, kind=UserWarning):
    if not torch.compiler.is_compiling() and text not in _warned:
        _warned.add(text)
        warnings.warn(text, kind, stacklevel=4)


def engine_in(kernel_options) -> str:
    engine = ""
    for name, value in (kernel_options or {}).items():
        if name == "engine":
            engine = engine_of(value)
        elif name == "BACKEND" and value not in _BACKENDS:
            raise InvalidArgument(f"Invalid BACKEND value {value!r}. Must be one of {_BACKENDS}")
        elif name.removeprefix("fwd_").removeprefix("bwd_") not in _TUNING:
            warn_once(f"kernel_options: {name!r} is not known here and ignored; {{'engine': ...}} names Fovea's engine")
    return engine
