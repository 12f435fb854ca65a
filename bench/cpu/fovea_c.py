"""Fovea's C interface by ctypes, as much of it as benchmarks need: the structs of include/fovea/fovea.h, and a
plan bound to memory. Knows nothing of torch: tensors come as addresses."""
import ctypes as c
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_size_t, c_void_p, sizeof
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import c_structs

_STRUCTS = c_structs.ctypes_structs()
PlanOptions, Bindings = _STRUCTS["plan_options"], _STRUCTS["bindings"]
TensorBinding = _STRUCTS["tensor_binding"]


class FoveaError(RuntimeError):
    """The text of fovea_last_error()."""


def load(build, threads):
    """The libfovea.so of a build, for so many threads of either side, each bound to a processor. To be called before torch
    is imported: OpenMP binds this thread to one processor, and the library counts once how many it may use."""
    os.environ.update(OMP_PROC_BIND="true", OMP_PLACES="cores", OMP_NUM_THREADS=str(threads), FOVEA_NUM_THREADS=str(threads))
    library = Library(build / "libfovea.so")
    library.doctor()
    return library


class Library:

    def __init__(self, path):
        self.c = c.CDLL(str(path))
        for name in ("fovea_last_error", "fovea_version", "fovea_plan_engine", "fovea_report_text"):
            getattr(self.c, name).restype = c_char_p
        self.c.fovea_plan_engine.argtypes = [c_void_p]
        self.c.fovea_report_text.argtypes = [c_void_p]
        self.c.fovea_plan_run.argtypes = [c_void_p, c_void_p]
        self.c.fovea_plan_workspace.argtypes = [c_void_p, c_void_p, POINTER(c_size_t)]
        self.c.fovea_plan_create.argtypes = [c_void_p, POINTER(PlanOptions), POINTER(c_void_p)]
        for name in ("problem", "plan", "report"):
            getattr(self.c, f"fovea_{name}_destroy").argtypes = [c_void_p]

    def check(self, status):
        if status != 0:
            raise FoveaError(self.c.fovea_last_error().decode())

    def version(self):
        return self.c.fovea_version().decode()

    def doctor(self):
        report = c_void_p()
        self.check(self.c.fovea_doctor(byref(report)))
        text = self.c.fovea_report_text(report).decode()
        self.c.fovea_report_destroy(report)
        return text

    def plans(self, line, engine=None):
        """The plans of a problem line by direction: {"forward": Plan, "backward": Plan}."""
        first, second = c_void_p(), c_void_p()
        self.check(self.c.fovea_problem_parse(line.encode(), byref(first), byref(second)))
        options = PlanOptions(sizeof(PlanOptions), engine and engine.encode(), None, None)
        out = {}
        try:
            for direction, problem in (("forward", first), ("backward", second)):
                if problem:
                    handle = c_void_p()
                    self.check(self.c.fovea_plan_create(problem, byref(options), byref(handle)))
                    out[direction] = Plan(self, handle)
        finally:
            self.c.fovea_problem_destroy(first)
            self.c.fovea_problem_destroy(second)
        return out


class Plan:
    """A plan with the memory of its calls: bind(q=address, ..., tensors={"bias": address}), then run() as often as
    wanted. Tensors are dense."""

    def __init__(self, library, handle):
        self.library, self.handle = library, handle
        self.engine = library.c.fovea_plan_engine(handle).decode()
        size = c_size_t()
        library.check(library.c.fovea_plan_workspace(handle, None, byref(size)))
        self.workspace_bytes = size.value
        self._memory = (c.c_char * (size.value + 64))()
        self.bindings = Bindings(struct_size=sizeof(Bindings))
        self.bindings.workspace = (c.addressof(self._memory) + 63) // 64 * 64
        self.bindings.workspace_bytes = size.value

    def __del__(self):
        self.library.c.fovea_plan_destroy(self.handle)

    def bind(self, tensors=None, **addresses):
        for name, address in addresses.items():
            into = getattr(self.bindings, name)
            if hasattr(into, "data"):
                into.data = address
            else:
                setattr(self.bindings, name, address)
        named = tensors or {}
        self._tensors = (TensorBinding * len(named))(
            *(TensorBinding(name.encode(), _STRUCTS["array"](address)) for name, address in named.items()))
        self.bindings.tensors, self.bindings.tensor_count = self._tensors, len(named)
        self._arguments = (self.handle, c.addressof(self.bindings))
        return self

    def run(self):
        status = self.library.c.fovea_plan_run(*self._arguments)
        if status != 0:
            self.library.check(status)
