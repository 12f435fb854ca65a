"""The library behind the package fovea: its C interface, for Python. The package is made of this; other
callers may use it."""

from collections.abc import Callable, Sequence
from typing import Any

F32: int
F16: int
BF16: int
F64: int
I32: int
I64: int
U8: int
BOOL: int

class Error(Exception): ...
class InvalidArgument(Error, ValueError): ...
class Unsupported(Error, NotImplementedError): ...
class DeviceError(Error, RuntimeError): ...
class OutOfMemory(Error, MemoryError): ...
class InternalError(Error, RuntimeError): ...

_Tensor = int | tuple[int, tuple[int, int, int, int]] | None
_Sizes = tuple[int, int, int, int, int, int, int] | tuple[int, int, int, int, int, int, int, int, int]

class Program:
    """Formulas with what they capture; immutable."""

    def __init__(self, line: str) -> None: ...
    def text(self, indented: bool = False) -> str: ...
    def derivative(self, by: str | None = None, indented: bool = False) -> str: ...
    def check_bprop(self, seed: int = 1, points: int = 1000) -> tuple[float, str]: ...
    def evaluate(
        self,
        score: float,
        at: tuple[int, int, int, int],
        sizes: tuple[int, int, int, int, int],
        grad: float = 0.0,
        tensors: Sequence[tuple] = (),
        scalars: Sequence[tuple] = (),
        in_double: bool = False,
    ) -> tuple[float, bool, float]: ...
    def classify(
        self, at: tuple[int, int, int, int], sizes: tuple[int, int, int, int, int], ends: Sequence[int]
    ) -> int: ...
    def evaluate_grid(
        self,
        score: float,
        at: tuple[int, int, int, int],
        sizes: tuple[int, int, int, int, int],
        tensors: Sequence[tuple] = (),
        scalars: Sequence[tuple] = (),
        tile: int = 64,
    ) -> tuple[bytes, bytes, bytes]: ...
    @property
    def tensors(self) -> tuple[tuple[str, str, str, str], ...]: ...
    @property
    def scalars(self) -> tuple[tuple[str, str, float | None], ...]: ...
    def __eq__(self, other: object) -> bool: ...

class Problem:
    """Which attention: a problem line of one direction."""

    def __init__(self, line: str) -> None: ...
    @property
    def line(self) -> str: ...
    @property
    def program(self) -> Program: ...
    @property
    def is_backward(self) -> bool: ...
    def __eq__(self, other: object) -> bool: ...

class Plan:
    """A problem made ready to run, from the library's cache or built."""

    def __init__(
        self,
        problem: Problem,
        engine: str | None = None,
        device: str | None = None,
        partner: Problem | None = None,
        stream: int = 0,
    ) -> None: ...
    @property
    def engine(self) -> str: ...
    @property
    def problem(self) -> Problem: ...
    @property
    def device(self) -> str: ...
    def workspace(self, sizes: _Sizes | None = None) -> int: ...
    def run(
        self,
        q: _Tensor = None,
        k: _Tensor = None,
        v: _Tensor = None,
        o: _Tensor = None,
        grad_o: _Tensor = None,
        grad_q: _Tensor = None,
        grad_k: _Tensor = None,
        grad_v: _Tensor = None,
        *,
        lse: int | None = None,
        grad_lse: int | None = None,
        row_max: int | None = None,
        max_logit: int | None = None,
        sink: int | None = None,
        grad_sink: int | None = None,
        q_lengths: int | None = None,
        k_lengths: int | None = None,
        q_starts: int | None = None,
        k_starts: int | None = None,
        q_offsets: int | None = None,
        k_offsets: int | None = None,
        tensors: Sequence[tuple] | None = None,
        scalars: Sequence[tuple] | None = None,
        scale: float | None = None,
        seed: int | None = None,
        offset: int | None = None,
        b_offset: int | None = None,
        h_offset: int | None = None,
        q_offset: int | None = None,
        k_offset: int | None = None,
        scale_at: int | None = None,
        seed_at: int | None = None,
        offset_at: int | None = None,
        b_offset_at: int | None = None,
        h_offset_at: int | None = None,
        q_offset_at: int | None = None,
        k_offset_at: int | None = None,
        sizes: _Sizes | None = None,
        workspace: int | None = None,
        workspace_bytes: int | None = None,
        stream: int | None = None,
        threads: int | None = None,
    ) -> None: ...

class Caller:
    """A plan with a template of its call."""

    def __init__(
        self, plan: Plan, roles: Sequence[str], captured: Sequence[tuple], scalars: Sequence[tuple]
    ) -> None: ...
    def run(
        self,
        pointers: tuple[int, ...],
        stream: int,
        threads: int,
        workspace: tuple[int, ...],
        scale: float,
        numbers: Sequence[float],
    ) -> None: ...

class Viewer:
    """Looks at the tensors of a framework as they lie in memory."""

    def __init__(self, table: Any, types: tuple[type, ...], is_altered: Callable[[Any], bool]) -> None: ...
    def signature(self, tensors: list, with_gradients: bool) -> bytes | None: ...

class Symbol:
    """What modifiers are run on: Steps writes down every operator, index, method and function that it meets."""

class Steps:
    """What modifiers do to symbols, step by step."""

    def __init__(self, hooks: Any, like: Any, on_host: bool) -> None: ...
    def run(self, modifiers: tuple) -> None: ...
    def call(self, function: Any, arguments: tuple, named: dict | None, always: bool = False) -> Symbol | None: ...
    def method(self, name: str, *arguments: Any, **named: Any) -> Symbol: ...
    def replay(self, values: list, shift: Callable[[int], Any]) -> tuple[bool, Any] | None: ...
    def key(self) -> tuple: ...
    @property
    def replayed(self) -> Any: ...
    @replayed.setter
    def replayed(self, value: Any) -> None: ...
    @property
    def like(self) -> Any: ...
    @property
    def tensors(self) -> list: ...
    @property
    def shifts(self) -> tuple[float, ...]: ...

class HostCall:
    """A call that CallCache makes by itself."""

    def __init__(
        self,
        caller: Caller,
        empty_like: Callable[[Any], Any],
        outputs: tuple,
        pointers: Sequence[int],
        returned: Sequence[int],
    ) -> None: ...

class CallCache:
    """Finds what was made ready for a call before."""

    def __init__(self, facts: Any) -> None: ...
    def look_up(
        self, options: Any, written: Steps | None, tensors: list, scale: float, scalars: Sequence[float]
    ) -> tuple[tuple, list, Any, tuple[int, int, bool]] | tuple[None, list, Any, tuple] | None: ...

def environment_engine() -> str | None: ...

class HostView:
    """An array of another library, in place; by DLPack or the buffer protocol."""

    def __init__(self, array: Any) -> None: ...
    @property
    def pointer(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def on_host(self) -> bool: ...

def problem_pair(line: str) -> tuple[Problem, Problem]: ...
def supported(
    problem: Problem, engine: str | None = None, device: str | None = None, partner: Problem | None = None
) -> tuple[int, str]: ...
def explain(
    problem: Problem,
    engine: str | None = None,
    device: str | None = None,
    partner: Problem | None = None,
    prove: bool = False,
    json: bool = False,
) -> str: ...
def version() -> str: ...
def engines() -> list[str]: ...
def doctor() -> str: ...
def line_value(line: str, key: str) -> str: ...
def cache_statistics() -> dict[str, int | float]: ...
def cache_clear() -> None: ...
def cache_limit(plans: int = 0, bytes: int = 0) -> None: ...
def bundle_load(path: str) -> None: ...
def release_workspaces() -> int: ...
def set_log(function: Callable[[str], object] | None) -> None: ...
