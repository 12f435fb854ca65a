"""Every engine's verdict on a call, without running it."""

from __future__ import annotations

import contextvars
from typing import Any

import jax

from .. import _core
from ..program import Text
from ._rewrite import without_b_offset
from ._spec import Spec, problem_line

# Set while explain() traces: Call.run() leaves its Spec and the shapes of its operands here.
seen: contextvars.ContextVar[list[tuple[Spec, list]] | None] = contextvars.ContextVar("seen", default=None)


def note(spec: Spec, operands) -> None:
    calls = seen.get()
    if calls is not None:
        calls.append((spec, [jax.core.ShapedArray(x.shape, x.dtype) for x in operands]))


def problem_lines(function, *args: Any, gpu: bool = False, **kwargs: Any) -> list[str]:
    """The problem lines of the calls in function(*args, **kwargs), which is traced and not run."""
    calls: list[tuple[Spec, list]] = []
    token = seen.set(calls)
    try:
        jax.eval_shape(lambda *a: function(*a, **kwargs), *args)
    finally:
        seen.reset(token)
    calls = [(without_b_offset(spec), avals) for spec, avals in calls] if gpu else calls
    return [
        problem_line(spec.replace(training=True, wanted=("q", "k", "v")), avals, "forward", gpu)
        for spec, avals in calls
    ]


def explain(
    q, k=None, v=None, *, device: str | None = None, prove: bool = False, json: bool = False, **kwargs: Any
) -> str:
    """Every engine's verdict on attention(q, k, v, **kwargs), forward and backward, with reasons.

    q, k, v may be arrays or jax.ShapeDtypeStruct. `device` is "cpu", "cuda:0", a description such as "h200"
    or a file of one; the default is where JAX runs. Nothing runs; `prove` builds plans to prove support.
    """
    from ._attention import attention

    tensors = [x for x in (q, k, v) if x is not None]
    device = device or {"cpu": "cpu"}.get(jax.default_backend(), "cuda:0")
    (line,) = problem_lines(attention, *tensors, gpu=device != "cpu", **kwargs)
    forward, backward = _core.problem_pair(line)
    engine = kwargs.get("engine")
    texts = [
        _core.explain(problem, engine=engine, device=device, prove=prove, json=json, partner=partner)
        for problem, partner in ((forward, backward), (backward, forward))
    ]
    return Text("[" + ",\n".join(texts) + "]" if json else "\n".join(texts))
