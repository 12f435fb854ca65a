"""Reports of the library: which engine would run a problem and why, what is cached, what was found on this machine."""

from __future__ import annotations

import html
import importlib.metadata
import json
import os
import platform
import sys
from typing import Any

from . import _core
from ._attention import _lines, _wanted, attention, request_of
from ._options import takes


class Explanation:
    """Every engine's verdict on a problem. Prints as a table; `to_dict()` has all of it."""

    def __init__(self, facts: dict[str, Any], table: str) -> None:
        self._facts = facts
        self._table = table

    @property
    def chosen(self) -> str | None:
        """The engine that would run; None: none can."""
        return self._facts.get("chosen") or None

    def to_dict(self) -> dict[str, Any]:
        """problem, device, chosen, why, and engines: each with verdict, reasons and note."""
        return json.loads(json.dumps(self._facts))

    def with_ranks(self, ranks: list[dict[str, Any]], table: str) -> Explanation:
        """The same with what each rank of many computes and sends."""
        return Explanation(self._facts | {"ranks": ranks}, f"{self._table.rstrip()}\n\n{table}")

    def __str__(self) -> str:
        return self._table

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cell = lambda text, tag="td": f"<{tag} style='text-align:left'>{html.escape(str(text))}</{tag}>"  # noqa: E731
        rows = [f"<tr>{cell('engine', 'th')}{cell('verdict', 'th')}{cell('why', 'th')}</tr>"]
        for engine in self._facts["engines"]:
            name = engine["engine"]
            why = "; ".join(_reason(reason) for reason in engine["reasons"]) or engine.get("note", "")
            shown = f"{name} (chosen)" if name == self.chosen else name
            rows.append(f"<tr>{cell(shown)}{cell(engine['verdict'])}{cell(why)}</tr>")
        problem, why = html.escape(self._facts["problem"] or "(all defaults)"), html.escape(self._facts.get("why") or "")
        return f"<p><code>{problem}</code><br/>{why}</p><table>{''.join(rows)}</table>"


def _reason(reason: Any) -> str:
    return (
        reason if isinstance(reason, str) else str(reason.get("text") or ", ".join(f"{k}: {v}" for k, v in reason.items()))
    )


def explain_problem(problem: _core.Problem, **where: Any) -> Explanation:
    """The explanation of a problem; `where` as _core.explain takes it."""
    table = _core.explain(problem, **where)
    return Explanation(json.loads(_core.explain(problem, json=True, **where)), table)


@takes(attention)
def explain(
    q: Any,
    k: Any = None,
    v: Any = None,
    *,
    device: str | None = None,
    prove: bool = False,
    backward: bool = False,
    **options: Any,
) -> Explanation:
    """Which engine would run a call, and why the others would not. Runs nothing; builds plans only if `prove` is set.

    Takes the arguments of `fovea.attention` (backward=True: asks for its gradients), or a problem line ("b=2 h=8
    sq=1024 d=64 mask=causal"). device: "cpu", "cuda:0", a described GPU ("h200") or a JSON file."""
    where = {"engine": options.get("engine"), "device": device, "prove": prove}
    if isinstance(q, str):
        if k is not None or v is not None or backward:
            raise _core.InvalidArgument("explain takes a problem line alone, or q, k and v")
        for name in options:
            if name != "engine":
                raise _core.InvalidArgument(f"explain of a problem line has no option {name!r}: write it in the line")
        # Of a line of both directions, the forward as part of a training pair.
        is_pair = _core.line_value(q, "direction") == "both"
        problem, partner = _core.problem_pair(q) if is_pair else (_core.Problem(q), None)
        return explain_problem(problem, partner=partner, **where)
    request = request_of(explain, q, k, v, options)
    if not backward:
        return explain_problem(_core.Problem(request.line("forward")), **where)
    forward, line = _lines(request, _wanted(request, None), False)
    return explain_problem(_core.Problem(line), partner=_core.Problem(forward), **where)


def cache_stats() -> dict[str, int | float]:
    """Counters of the cache of plans: builds, hits, misses, evictions; plans and bytes held now;
    build_seconds; of plans that are kept in files also disk_hits, bundle_hits and disk_writes."""
    return _core.cache_statistics()


def load_bundle(path: str | os.PathLike) -> None:
    """Uses the plans of a file that `fovea compile` wrote, from now on, before those of the cache folder."""
    _core.bundle_load(os.fspath(path))


def doctor() -> None:
    """Prints what was found on this machine and what was not, with what to do about it."""
    others = [f"{name} {_installed(name) or 'not installed'}" for name in ("numpy", "ml_dtypes", "torch", "jax")]
    lines = [f"{'python':<14}{platform.python_version()}, {sys.executable}", f"{'package':<14}{_core.__file__}"]
    lines.append(f"{'':<14}{', '.join(others)}")
    print(_core.doctor().rstrip("\n"), *lines, sep="\n")


def _installed(name: str) -> str | None:
    # Without importing it: that would take seconds.
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
