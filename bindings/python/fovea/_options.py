"""The options that a front end only passes on to the library, listed once: fovea.attention, fovea.torch.attention and
fovea.jax.attention take them as **options. If the library has a field of that name (include/fovea/fields.def), a new option
is one row of Options with its words in the docstring; signatures, help texts, cache keys and problem lines follow from that."""

import difflib
import functools
import inspect
from collections import namedtuple
from collections.abc import Callable
from itertools import compress
from typing import Any, Optional, TypedDict, get_args

from ._core import OUTPUTS


class Options(TypedDict, total=False):
    """
    return_lse, return_row_max: the logsumexp and the largest score of each row: [B, H, Sq], packed [H, T].
    return_max_logit: the largest score of each head, [H]. These outputs are returned after o, in this order; lse has a
        gradient, the maxima have none.
    deterministic: the same bits in every run.
    verify: the first call of the plan is compared with the reference engine on a sample, and raises if they differ.
    engine: "reference", "cpu", "cudnn" or "jit"; by default the fastest that can run the call. The reference engine runs
        only if it is named.
    """

    return_lse: bool
    return_row_max: bool
    return_max_logit: bool
    deterministic: Optional[bool]
    verify: bool
    engine: Optional[str]


_DEFAULTS = {name: False if bool in (kind, *get_args(kind)) else None for name, kind in Options.__annotations__.items()}
RETURNS = tuple(f"return_{name}" for name in OUTPUTS)
FLAGS = tuple(name for name, default in _DEFAULTS.items() if default is False and name not in RETURNS)
# The options of one call; None for those that are not given.
Handed = namedtuple("Handed", _DEFAULTS, defaults=(None,) * len(_DEFAULTS))
NOTHING = Handed()


def outputs_of(handed: Handed) -> tuple[str, ...]:
    """The outputs besides o that are asked for, in the order of fovea._core.OUTPUTS."""
    return tuple(compress(OUTPUTS, handed))


def flags_of(handed: Handed) -> tuple[str, ...]:
    """The flags of the problem that are set."""
    return tuple(compress(FLAGS, handed[len(OUTPUTS) :]))


def takes(source: Callable | None = None, *, without: tuple[str, ...] = (), **defaults: Any) -> Callable:
    """For a function with **options: its signature and its help name the options that are meant, those of the list above or
    the keywords of `source`. `defaults` are those that differ from the list's."""

    def decorate(function: Callable) -> Callable:
        if source is None:
            kind = inspect.Parameter.KEYWORD_ONLY
            types = Options.__annotations__
            listed = [
                inspect.Parameter(name, kind, default=default, annotation=types[name])
                for name, default in {**_DEFAULTS, **defaults}.items()
            ]
            function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n{Options.__doc__.rstrip()}\n    "
        else:
            listed = [x for x in inspect.signature(source).parameters.values() if x.kind is x.KEYWORD_ONLY]
        own = inspect.signature(function)
        plain = [x for x in own.parameters.values() if x.kind is not x.VAR_KEYWORD]
        taken = {*without, *(x.name for x in plain)}
        function.__signature__ = own.replace(parameters=plain + [x for x in listed if x.name not in taken])
        return function

    return decorate


def handed_of(function: Callable, given: dict[str, Any]) -> Handed:
    """The **options of a call of a function. TypeError for what is none of them."""
    for name in given:
        if name not in _DEFAULTS:
            raise _unknown(function, name)
    return Handed(**given) if given else NOTHING


def filled(function: Callable, given: dict[str, Any]) -> dict[str, Any]:
    """All keywords of a function: those that are given, and its defaults. TypeError for others."""
    defaults = _keywords(function)
    for name in given:
        if name not in defaults:
            raise _unknown(function, name)
    return {**defaults, **given}


@functools.cache
def _keywords(function: Callable) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {x.name: x.default for x in parameters if x.kind is x.KEYWORD_ONLY}


def _unknown(function: Callable, name: str) -> TypeError:
    near = difflib.get_close_matches(name, _keywords(function), n=1)
    hint = f". Did you mean {near[0]!r}?" if near else ""
    return TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
