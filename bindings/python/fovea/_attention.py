"""Attention and its gradients for arrays on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ._arrays import HostArray, dense_strides, host_array, new_array
from ._core import OUTPUTS, InvalidArgument
from ._host_request import Request
from ._options import RETURNS, Options, filled, handed_of, outputs_of, takes
from ._plans import in_words_of_arguments, plan

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes()
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    score_mod: Any = None,
    mask_mod: Any = None,
    score_mod_bprop: Any = None,
    is_causal: bool = False,
    window_size: int | Sequence[int] | None = None,
    scale: float | None = None,
    layout: str = "bhsd",
    seq_lens: Any = None,
    cu_seqlens: Any = None,
    sinks: Any = None,
    dropout_p: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    q_offset: Any = 0,
    k_offset: Any = 0,
    b_offset: int = 0,
    h_offset: int = 0,
    h_global: int | None = None,
    tensors: Mapping[str, Any] | None = None,
    scalars: Mapping[str, Any] | None = None,
    threads: int = 0,
    **options: Unpack[Options],
) -> Any:
    """softmax(score_mod(scale * q k^T)) v over the scores that mask_mod keeps; the scores are never stored.

    q, k, v: arrays on the host (of NumPy, or with DLPack or the buffer protocol) of float32, float16,
        bfloat16, or float64 with engine="reference". Views are read in place. k and v may have fewer heads, a
        divisor of those of q.
    score_mod: a formula text of `score`, b, h, q, k ("cap * tanh(score / cap)"), a fovea.Program, or a
        cuDNN-style callback (graph, score, tensors). mask_mod: a formula text of positions, or a Program.
        score_mod_bprop: a hand-written derivative; by default it is derived.
    tensors, scalars: what formulas capture, by name. A Python int is an i32, a float an f32.
    is_causal: keeps q >= k. window_size: (left, right) keeps q - left <= k <= q + right; -1: no bound.
    scale: of the scores; 1 / sqrt(d) by default. layout: "bhsd", "bshd", "sbhd", or "thd" (packed).
    seq_lens: true lengths [B], for both sides or as (q, k). cu_seqlens: for "thd", starts [B + 1], likewise.
    sinks: [H], one more logit per head that joins the sum.
    dropout_p, seed, offset: the same seed and offset drop the same scores in every engine.
    q_offset, k_offset (numbers, or [B]), b_offset, h_offset: added to the positions that formulas see;
        h_global: the value of H in formulas, if not the number of heads here.
    threads: the most threads to use.

    Returns o, in the layout of q, or a tuple (o, ...) with the outputs that the return_ options ask for."""
    given = locals()
    handed = handed_of(attention, given.pop("options"))
    return _forward(Request(q, k, v, SimpleNamespace(**given, **handed._asdict())), outputs_of(handed), None)


def request_of(function: Callable, q: Any, k: Any, v: Any, given: dict[str, Any]) -> Request:
    """The request of a call of a function that takes the keywords of `attention`."""
    return Request(q, k, v, SimpleNamespace(**filled(function, given)))


def _forward(request: Request, returned: Sequence[str], partner: str | None) -> Any:
    made = plan(request.line("forward", **dict.fromkeys(returned, True)), request.options.engine, partner)
    o, o_seen = new_array(_output_shape(request), request.q.dtype)
    extra = {name: new_array(_row_shape(request, name), _exact(request)) for name in returned}
    bound = request.bindings(captured={}, q=request.q, k=request.k, v=request.v, o=o_seen)
    bound |= {name: seen.pointer for name, (_, seen) in extra.items()}
    with in_words_of_arguments():
        made.run(**bound)
    return (o, *(array for array, _ in extra.values())) if extra else o


def _output_shape(request: Request) -> tuple[int, ...]:
    return (*request.q.shape[:-1], request.v.shape[-1])


def _row_shape(request: Request, name: str) -> tuple[int, ...]:
    sizes = request.sizes
    if OUTPUTS[name] == "heads":
        return (sizes.h,)
    return (sizes.h, sizes.t_q) if request.packed else (sizes.b, sizes.h, sizes.sq)


def _exact(request: Request) -> str:
    """The type of lse, row maxima, sinks and the gradients of scalars."""
    return "f64" if request.q.dtype == "f64" else "f32"


@takes(attention, without=RETURNS)
def attention_backward(
    grad_o: Any,
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    *,
    grads: Sequence[str] | None = None,
    grad_lse: Any = None,
    **options: Any,
) -> dict[str, Any]:
    """The gradients of `attention`, from its inputs, its outputs o and lse, and the same options.

    grads: which of "q", "k", "v", "sinks" and captured names; None: all that have one. grad_lse: the gradient of lse, if the
    loss depends on it. Returns {name: gradient}; the gradient of a scalar is an array without dimensions."""
    request = request_of(attention_backward, q, k, v, options)
    return _backward(request, grad_o, (o, lse), grads, grad_lse)


def _wanted(request: Request, grads: Sequence[str] | None) -> list[str]:
    there = ["q", "k", "v", *(["sinks"] if request.sinks is not None else []), *request.modifier.differentiable()]
    if grads is None:
        return there
    for name in grads:
        if name not in there:
            raise InvalidArgument(f"grads: {name!r} has no gradient here; must be some of {', '.join(there)}")
    return list(dict.fromkeys(grads))


def _lines(request: Request, wanted: Sequence[str], dlse: bool) -> tuple[str, str]:
    """The forward and the backward of a training step."""
    names = ["sink" if name == "sinks" else request.modifier.names.get(name, name) for name in wanted]
    return request.line("forward", lse=True), request.line("backward", grads=tuple(names), dlse=dlse)


def _backward(
    request: Request, grad_o: Any, saved: tuple[Any, Any], grads: Sequence[str] | None, grad_lse: Any
) -> dict[str, Any]:
    wanted = _wanted(request, grads)
    if not wanted:
        return {}
    shape, rows = _output_shape(request), _row_shape(request, "lse")
    o, grad_o = (_same(name, x, shape, request.q.dtype) for name, x in (("o", saved[0]), ("grad_o", grad_o)))
    lse = _same("lse", saved[1], rows, _exact(request), dense=True)
    if grad_lse is not None:
        grad_lse = _same("grad_lse", grad_lse, rows, _exact(request), dense=True)
    forward, backward = _lines(request, wanted, grad_lse is not None)
    made = plan(backward, request.options.engine, forward)
    out = {name: new_array(*_gradient_shape(request, name)) for name in wanted}
    captured = {request.modifier.names.get(name, name): seen for name, (_, seen) in out.items()}
    operands = {"q": request.q, "k": request.k, "v": request.v, "o": o, "grad_o": grad_o}
    operands |= {f"grad_{name}": out[name][1] for name in ("q", "k", "v") if name in out}
    bound = request.bindings(captured=captured, **operands)
    bound |= {"lse": lse.pointer, "grad_lse": None if grad_lse is None else grad_lse.pointer}
    if "sinks" in out:
        bound["grad_sink"] = out["sinks"][1].pointer
    with in_words_of_arguments():
        made.run(**bound)
    return {name: array for name, (array, _) in out.items()}


def _gradient_shape(request: Request, name: str) -> tuple[tuple[int, ...], str]:
    if name in ("q", "k", "v"):
        array = getattr(request, name)
        return array.shape, array.dtype
    if name == "sinks":
        return (request.sizes.h,), _exact(request)
    formula_name = request.modifier.names[name]
    if formula_name in request.modifier.tensors:
        array = request.modifier.tensors[formula_name][1]
        return array.shape, array.dtype
    return (), _exact(request)


def _same(name: str, given: Any, shape: tuple[int, ...], dtype: str, dense: bool = False) -> HostArray:
    array = host_array(name, given)
    if array.shape != shape or array.dtype != dtype:
        raise InvalidArgument(f"{name}: {array.dtype}{list(array.shape)}; must be {dtype}{list(shape)}")
    if dense and any(extent > 1 and a != b for extent, a, b in zip(shape, array.strides, dense_strides(shape))):
        raise InvalidArgument(f"{name}: strides {list(array.strides)}; must be dense, as attention gave it")
    return array


@takes(attention, without=RETURNS)
def vjp(
    q: Any, k: Any, v: Any, *, grads: Sequence[str] | None = None, **options: Any
) -> tuple[Any, Callable[..., dict[str, Any]]]:
    """(o, pull): pull(grad_o, grad_lse=None) returns the gradients as attention_backward does.

    pull.lse is the logsumexp of each row. The chosen engine can run both directions.

    >>> import numpy
    >>> x = numpy.ones((1, 1, 4, 8), numpy.float32)
    >>> o, pull = vjp(x, x, x, is_causal=True)
    >>> sorted(pull(o))
    ['k', 'q', 'v']
    """
    request = request_of(vjp, q, k, v, options)
    wanted = _wanted(request, grads)
    backward = _lines(request, wanted, False)[1] if wanted else None
    o, lse = _forward(request, ["lse"], backward)

    def pull(grad_o: Any, grad_lse: Any = None) -> dict[str, Any]:
        return _backward(request, grad_o, (o, lse), wanted, grad_lse)

    pull.lse = lse  # type: ignore[attr-defined]
    return o, pull
