"""Plans by the text of their problem, so that a repeated call finds its plan at once. Bounded, and in front of the library's
own cache."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from . import _core
from ._request import by_arguments


class LruCache:
    """The last `limit` values put in or asked for, by key. Safe from many threads, and after a fork."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()
        _all.append(self)

    def get(self, key: Hashable) -> Any:
        """The value, or None."""
        value = self.values.get(key)
        if value is not None:
            try:
                self.values.move_to_end(key)
            except KeyError:  # another thread has just evicted it
                pass
        return value

    def put(self, key: Hashable, value: Any) -> Any:
        """Keeps the value, evicts the oldest if there are too many, and returns the value."""
        with self._lock:
            self.values[key] = value
            while len(self.values) > self._limit:
                self.values.popitem(last=False)
        return value

    def clear(self) -> None:
        with self._lock:
            self.values.clear()

    def __len__(self) -> int:
        return len(self.values)

    def _unlock(self) -> None:
        self._lock = threading.Lock()


_all: list[LruCache] = []


def _after_fork() -> None:
    for cache in _all:
        cache._unlock()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _at_exit() -> None:
    """Releases plans while the interpreter still can."""
    for cache in _all:
        cache.clear()


_plans = LruCache(256)


def plan(line: str, engine: str | None, partner: str | None) -> _core.Plan:
    """The plan of a problem line of one direction. `partner` is the line of the other half of a training pair."""
    # FOVEA_ENGINE chooses if no engine is named, and may change while a process runs.
    key = (line, engine or _core.environment_engine(), partner)
    made = _plans.get(key)
    if made is None:
        with in_words_of_arguments():
            other = _core.Problem(partner) if partner else None
            made = _plans.put(key, _core.Plan(_core.Problem(line), engine=engine, partner=other))
    return made


@contextlib.contextmanager
def in_words_of_arguments():
    try:
        yield
    except _core.InvalidArgument as error:
        raise type(error)(by_arguments(str(error))) from None


def cache_clear() -> None:
    """Releases every plan, here and in the library. Plans that are running or held elsewhere live on until they are
    released."""
    for cache in _all:
        cache.clear()
    _core.cache_clear()
