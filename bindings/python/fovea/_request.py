"""The rules of a request, shared by every front end: layouts and their axes, sizes that must match, windows and masks, numbers
and names, and the exceptions for broken rules. NumPy, fovea.torch and fovea.jax pass shapes; nothing here knows their types.

Errors name the argument, its value and the rule: `window_size=(1.5, 0): must be ...`, `k: 3 sequences; must be 2 ...`."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._core import InvalidArgument, engines

# Where batch, head, position and feature stand in a tensor of each layout.
AXES = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3), "thd": (None, 1, 0, 2)}
FLOATS = ("f32", "f16", "bf16", "f64")
NAMES = ("q", "k", "v")
# Gradients are asked for by these names, so nothing captured may have them.
_OPERANDS = ("q", "k", "v", "sink", "sinks")
_SHIFTED = "(q + (Skv - Sq))"  # the position of a query if the last query is at the last key


class TraceError(InvalidArgument, TypeError):
    """A modifier does something that a formula cannot express."""


TraceError.__module__ = "fovea"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """As in a problem line. For packed sequences b is their number, sq and skv are the longest lengths, t_q and t_k the
    numbers of tokens."""

    b: int
    h: int
    hkv: int
    sq: int
    skv: int
    d: int
    dv: int
    t_q: int = 0
    t_k: int = 0


def one_of(name: str, value: Any, known: Iterable[Any]) -> Any:
    known = tuple(known)
    if value not in known:
        raise InvalidArgument(f"{name}={value!r}: must be one of {', '.join(map(str, known))}")
    return value


def by_axes(numbers: Sequence[int], layout: str, absent: int) -> tuple[int, ...]:
    """The numbers for batch, head, position and feature, in this order; `absent` if the layout has no such axis."""
    return tuple(absent if axis is None else numbers[axis] for axis in AXES[layout])


def check_rank(name: str, layout: str, shape: Sequence[int]) -> None:
    if layout not in AXES:
        one_of("layout", layout, AXES)
    rank = 3 if layout == "thd" else 4
    if len(shape) != rank:
        raise InvalidArgument(f"{name}: {len(shape)} dimensions {list(shape)}; must be {rank}, as layout {layout} has")


def check_types(dtypes: Sequence[Any], known: Iterable[Any], names: Sequence[str] = NAMES) -> None:
    """All must be of one type, which is one of the known ones."""
    if dtypes[0] not in known:
        raise InvalidArgument(f"{names[0]}: {dtypes[0]}; must be one of {', '.join(map(str, known))}")
    for name, dtype in zip(names, dtypes):
        if dtype != dtypes[0]:
            raise InvalidArgument(f"{name}: {dtype}; must be {dtypes[0]}, as {names[0]} is; convert one of them")


def sizes_of(
    layout: str, shapes: Sequence[Sequence[int]], packed: tuple[int, int, int] | None = None, names: Sequence[str] = NAMES
) -> Sizes:
    """The sizes, from the shapes of q, k and v, which must fit. `packed`: (number of sequences, longest of queries, of keys)."""
    for name, shape in zip(names, shapes):
        check_rank(name, layout, shape)
    (b, h, sq, d), (bk, hkv, skv, dk), (bv, hv, sv, dv) = (by_axes(shape, layout, 0) for shape in shapes)
    q, k, v = names
    if dk != d:
        raise InvalidArgument(f"{k}: last extent {dk}; must be {d}, as that of {q}")
    if bk != b:
        raise InvalidArgument(f"{k}: {bk} sequences; must be {b}, as {q} has")
    if (bk, hkv, skv) != (bv, hv, sv):
        raise InvalidArgument(
            f"{v}: shape {list(shapes[2])}; must be that of {k}, {list(shapes[1])}, but for the last extent"
        )
    if h != hkv and (hkv == 0 or h % hkv):
        raise InvalidArgument(f"{k}: {hkv} heads; must divide the {h} of {q}")
    if packed is None:
        return Sizes(b, h, hkv, sq, skv, d, dv)
    return Sizes(packed[0], h, hkv, packed[1], packed[2], d, dv, sq, skv)


_WORD = re.compile(r"\b[A-Za-z_]\w*")


def substitute(text: str, words: Mapping[str, str]) -> str:
    """A formula with each whole word that is a key replaced by its value."""
    return _WORD.sub(lambda found: words.get(found[0], found[0]), text)


def both_masks(*masks: str | None) -> str | None:
    """The mask that keeps what all of them keep; None if there is none."""
    there = [mask for mask in masks if mask]
    if len(there) < 2:
        return there[0] if there else None
    return " && ".join(f"({mask})" for mask in there)


def window_mask(
    is_causal: bool | str | None = False,
    window_size: int | Sequence[int] | None = None,
    from_the_end: bool = False,
    name: str = "window_size",
    unbounded: bool = True,
) -> str | None:
    """The formula of `is_causal` (True or "top_left": query i sees keys up to i; "bottom_right": the last query sees the
    last key) and of a window (left, right): keys from i - left to i + right; -1: no bound; one number: both. From the
    end, or with "bottom_right", i counts so that the last query stands at the last key. If nothing is `unbounded`, -1 is a
    number as any other, which is what jax.nn means by it."""
    if is_causal not in (False, True, None, "top_left", "bottom_right"):
        raise InvalidArgument(f"is_causal={is_causal!r}: must be True, False, 'top_left' or 'bottom_right'")
    if not is_causal and window_size is None:
        return None
    left, right = _sides(name, window_size, unbounded)
    q = _SHIFTED if from_the_end or is_causal == "bottom_right" else "q"
    has_left, has_right = (window_size is not None and (side >= 0 or not unbounded) for side in (left, right))
    bounds = []
    if is_causal:
        bounds.append(f"{_SHIFTED if is_causal == 'bottom_right' else 'q'} >= k")
    if has_right and (right < 0 or not is_causal):
        bounds.append(f"{q} >= k" if right == 0 else f"k - {q} <= {right}")
    if has_left:
        bounds.append(f"{q} - k <= {left}")
    return " && ".join(bounds) or None


def module_window(window_size: int | Sequence[int] | None, is_causal: bool) -> tuple[int, int] | None:
    """As Transformer Engine's modules take it: (-1, 0) without a causal mask means no window, with a warning."""
    sides = _sides("window_size", window_size)
    if sides == (-1, 0) and not is_causal:
        warnings.warn("window_size=(-1, 0) without a causal mask means no window: (-1, -1)", stacklevel=4)
    return None if sides in ((-1, -1), (-1, 0)) else sides


def _sides(name: str, window_size: int | Sequence[int] | None, unbounded: bool = True) -> tuple[int, int]:
    if window_size is None:
        return -1, -1
    try:
        sides = (window_size, window_size) if hasattr(window_size, "__index__") else tuple(window_size)
        left, right = map(operator.index, sides)
    except (TypeError, ValueError):
        left = right = None
    if left is None or unbounded and min(left, right) < -1:
        rest = "or -1 for no bound" if unbounded else "or one for both"
        raise InvalidArgument(f"{name}={window_size!r}: must be (left, right), each a number of positions, {rest}")
    return left, right


def scale_of(scale: Any) -> float | None:
    """A finite number; None for 1 / sqrt(d)."""
    if scale is None:
        return None
    try:
        number = math.nan if isinstance(scale, (str, bytes)) else float(scale)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidArgument(f"scale={scale!r}: must be a finite number")
    return number


def dropout_of(rate: Any, name: str = "dropout_p") -> float:
    # In this order: Dynamo's numbers have no hasattr.
    is_number = isinstance(rate, (int, float)) or hasattr(rate, "__float__")
    if not is_number or not 0.0 <= rate < 1.0:
        raise InvalidArgument(f"{name}={rate!r}: must be at least 0 and below 1")
    return float(rate)


def engine_of(engine: Any) -> str:
    """Its name; "" for the fastest that can run the call."""
    return one_of("engine", engine, engines()) if engine else ""


def check_sinks(shape: Sequence[int], heads: int, name: str = "sinks") -> None:
    if tuple(shape) != (heads,):
        raise InvalidArgument(f"{name}: shape {list(shape)}; must be [{heads}], one for each head of q")


def check_integers(name: str, are_integers: bool, dtype: Any, shape: Sequence[int]) -> None:
    """Lengths, starts and offsets that are given as an array."""
    if not are_integers or len(shape) != 1:
        raise InvalidArgument(f"{name}: must be one integer per sequence, got {dtype} {list(shape)}")


def check_per_sequence(name: str, shape: Sequence[int], count: int) -> None:
    """Lengths and offsets: the library reads as many as there are sequences."""
    if tuple(shape) != (count,):
        raise InvalidArgument(f"{name}: shape {list(shape)}; must be [{count}], one number per sequence")


def is_packed(layout: str, given: Iterable[tuple[str, Any]], needed: Iterable[str]) -> bool:
    """Is it thd? `given` are the arguments of packed sequences (name, value), which go with that layout only; those that are
    `needed` must then be there."""
    for name, value in given:
        if layout != "thd" and value is not None:
            raise InvalidArgument(f"{name}: goes with layout thd, got {layout}; padded sequences have lengths")
        if layout == "thd" and value is None and name in needed:
            raise InvalidArgument(f"{name}: layout thd needs it, which says where sequences begin or how long they are")
    return layout == "thd"


def check_starts(name: str, q_shape: Sequence[int], k_shape: Sequence[int], k_name: str = "") -> None:
    """Starts of packed sequences, of queries and of keys: as many of both."""
    for each, shape, wanted in ((name, q_shape, "B + 1"), (k_name or name, k_shape, q_shape[0] if q_shape else 0)):
        if len(shape) != 1 or shape[0] == 0 or (wanted != "B + 1" and wanted != shape[0]):
            raise InvalidArgument(f"{each}: shape {list(shape)}; must be [{wanted}], one more than there are sequences")


def is_a_pair(given: Any) -> bool:
    """Is it a pair, for queries and for keys? A list of two numbers is one array, not a pair."""
    is_pair = isinstance(given, (tuple, list)) and len(given) == 2
    return is_pair and all(x is None or hasattr(x, "__len__") for x in given)


def check_captured_name(name: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise InvalidArgument(f"the captured name {name!r}: must be letters, digits and _, and begin with a letter")
    if name in _OPERANDS:
        raise InvalidArgument(f"the captured name {name!r}: stands for an operand; {', '.join(_OPERANDS)} do")


def check_modifiers(score_mod: Any, mask_mod: Any, bprop: Any, captured: Mapping[str, tuple[Any, str]]) -> None:
    """A derivative needs its modifier. `captured` has the arguments with captured things by name: the dict, or None, and which
    modifier names what is in it ("": any of them), which must be there."""
    given = {"score_mod": score_mod, "mask_mod": mask_mod, "score_mod_bprop": bprop}
    if bprop is not None and score_mod is None:
        raise InvalidArgument("score_mod_bprop: given without score_mod")
    for name, (things, owner) in captured.items():
        if things is None:
            continue
        if not isinstance(things, Mapping):
            raise InvalidArgument(f"{name}: must be a dict of names, got {type(things).__name__}")
        for key in things:
            if not isinstance(key, str):
                raise InvalidArgument(f"{name}: the key {key!r} is a {type(key).__name__}; must be a name")
        if owner and given[owner] is None:
            raise InvalidArgument(f"{name}: given without {owner}")
        if things and score_mod is None and mask_mod is None:
            raise InvalidArgument(f"{name}: given without a modifier that names them")


def by_arguments(text: str, tensors: str = "tensors", everything: str = "tensors={...} or scalars={...}") -> str:
    """A message of the library in the words of Python's arguments: names that formulas do not know (in which argument tensors,
    and whatever formulas capture, are given), lengths and starts."""
    argument = {"lengths": "seq_lens", "starts": "cu_seqlens"}
    sides = {"q": "queries", "k": "keys"}
    text = re.sub(r"\b([qk])_(lengths|starts)(\[\d+\]=-?\d+)", lambda x: f"{argument[x[2]]}{x[3]} of {sides[x[1]]}", text)
    text = re.sub(r'declare it, as in tensor="(\w+):[^"]*"', rf"give it as {tensors}={{'\1': ...}}", text)
    return text.replace("captured names are declared with tensor=... or scalar=...", f"give it in {everything}")


def no_modifier(name: str, value: Any, kinds: str) -> InvalidArgument:
    advice = "; capture an array by name, as in mask_mod='m[q, k]'" if hasattr(value, "shape") else ""
    return InvalidArgument(f"{name}: must be {kinds}, got {type(value).__name__}{advice}")


def one_is_a_callback() -> InvalidArgument:
    return InvalidArgument("score_mod, score_mod_bprop: must both be callbacks (graph, score, tensors), or neither of them")


def check_callback_scalars(scalars: Any) -> None:
    if scalars:
        raise InvalidArgument("scalars: a callback (graph, score, tensors) has tensors only; give a tensor of one element")


def no_number(name: str, value: Any) -> InvalidArgument:
    return InvalidArgument(f"scalars[{name!r}]: must be a number, got {value!r}")


def not_captured(argument: str, name: str) -> InvalidArgument:
    return InvalidArgument(f"{argument}: {name!r} is captured by no formula")


def not_given(argument: str, name: str) -> InvalidArgument:
    return InvalidArgument(f"{argument}: no {name!r}, which the program captures")


def scalars_of(programs: Iterable[Any], has_text: bool, tensors: Mapping, scalars: Mapping) -> dict[str, Any]:
    """The scalars that are given, numbers, and the defaults of Programs for the others. Whatever Programs capture must be given,
    and without a text, which may name anything, nothing else."""
    values, captured = dict(scalars), set()
    for program in programs:
        for name, *_ in program.tensors:
            captured.add(name)
            if name not in tensors:
                raise not_given("tensors", name)
        for name, dtype, default in program.scalars:
            captured.add(name)
            value = values.get(name, default)
            if value is None:
                raise not_given("scalars", name)
            values[name] = int(value) if dtype == "i32" else float(value)
    for argument, given in (("tensors", tensors), ("scalars", scalars)):
        for name in given:
            if not (has_text or name in captured):
                raise not_captured(argument, name)
    return values


# --- problem lines: the text that describes a problem to the library; docs/problem_line.md has the keys ---

_PLAIN = re.compile(r"[^\s\"\\]+")


def word(key: str, value: object) -> str:
    """`key=value`, with quotes if the value needs them."""
    text = value if isinstance(value, str) else _text(value)
    if _PLAIN.fullmatch(text):
        return f"{key}={text}"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'{key}="{escaped}"'


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return ",".join(_text(x) if not isinstance(x, str) else x for x in value)
    return str(value)


def problem_line(*, tensors: Iterable[tuple] = (), scalars: Iterable[tuple] = (), **fields: object) -> str:
    """A problem line. Fields are the keys of the line; None and False are left out, tuples become lists. What
    formulas capture: tensors as (name, dtype, extents), scalars as (name, dtype[, value]).

    >>> problem_line(b=2, h=8, sq=128, d=64, dtype="f32", lse=True, mask="q >= k", tensors=[("t", "f32", ("H", 4))])
    'b=2 h=8 sq=128 d=64 dtype=f32 lse=1 mask="q >= k" tensor=t:f32[H,4]'
    """
    words = [word(key, value) for key, value in fields.items() if value is not None and value is not False]
    words += [word("tensor", f"{name}:{dtype}[{','.join(map(str, extents))}]") for name, dtype, extents in tensors]
    words += [word("scalar", f"{name}:{dtype}" + (f"={_text(*value)}" if value else "")) for name, dtype, *value in scalars]
    return " ".join(words)


def program_line(mod=None, mask=None, bprop=None, tensors: Iterable[tuple] = (), scalars: Iterable[tuple] = ()) -> str:
    """The line of formulas with what they capture."""
    return problem_line(mod=mod or None, mask=mask or None, bprop=bprop or None, tensors=tensors, scalars=scalars)


def float_text(x: float) -> str:
    """A float as a literal, which reads back as the same f32."""
    if x != x:
        return "nan"
    size = abs(x)
    if size >= 3.4028235677973366e38:  # rounds to infinity in f32
        text = "inf"
    elif size <= 7.006492321624085e-46:  # rounds to zero
        text = "0.0"
    else:
        text = repr(float(size))  # of NumPy's numbers, too
    return text if math.copysign(1.0, x) > 0 else f"(-{text})"


def symbolic_extents(shape: Sequence[int], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Extents, with the name of a size for each that equals it, so that other sizes share the plan; 1 stays 1."""
    names = {size: name for name, size in reversed(list(sizes.items())) if size != 1}
    return tuple(names.get(extent, str(extent)) for extent in shape)
