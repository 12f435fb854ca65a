"""Fovea's C interface by ctypes, as much of it as benchmarks need: the structs of include/fovea/fovea.h, and a
plan bound to memory. Knows nothing of torch: tensors come as addresses."""
import ctypes as c
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_size_t, c_void_p, sizeof


class Sizes(Structure):
    _fields_ = [(name, c_int64) for name in ("b", "h", "hkv", "sq", "skv", "d", "dv", "t_q", "t_k")]


class PlanOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("engine", c_char_p), ("device", c_char_p), ("partner", c_void_p)]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("stride", c_int64 * 4)]


class Array(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("rank", c_int32),
                ("extent", c_int64 * 8), ("stride", c_int64 * 8)]


class TensorBinding(Structure):
    _fields_ = [("name", c_char_p), ("array", Array), ("gradient", Array)]


class ScalarBinding(Structure):
    _fields_ = [("name", c_char_p), ("value", c.c_double), ("device", c_void_p), ("gradient", c_void_p)]


class F32Value(Structure):
    _fields_ = [("value", c.c_float), ("is_set", c_int32), ("device", c_void_p)]


class I32Value(Structure):
    _fields_ = [("value", c_int32), ("is_set", c_int32), ("device", c_void_p)]


class U64Value(Structure):
    _fields_ = [("value", c.c_uint64), ("device", c_void_p)]


class Bindings(Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("sizes", POINTER(Sizes)),
        *((name, Tensor) for name in ("q", "k", "v", "o", "grad_o", "grad_q", "grad_k", "grad_v")),
        *((name, c_void_p) for name in ("lse", "grad_lse", "row_max", "max_logit", "sink", "grad_sink")),
        *((name, c_void_p) for name in ("q_lengths", "k_lengths", "q_starts", "k_starts", "q_offsets", "k_offsets")),
        ("tensors", POINTER(TensorBinding)), ("tensor_count", c_size_t),
        ("scalars", POINTER(ScalarBinding)), ("scalar_count", c_size_t),
        ("scale", F32Value), ("seed", U64Value), ("offset", U64Value),
        *((name, I32Value) for name in ("b_offset", "h_offset", "q_offset", "k_offset")),
        ("workspace", c_void_p), ("workspace_bytes", c_size_t), ("stream", c_void_p), ("executor", c_void_p),
    ]


class FoveaError(RuntimeError):
    """The text of fovea_last_error()."""


class Library:
    """libfovea.so. Load it before anything that binds the main thread to one processor: the library counts the
    processors that it may use once."""

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

    ROWS = {"lse", "grad_lse", "row_max", "max_logit", "sink", "grad_sink"}

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
            setattr(self.bindings, name, address if name in self.ROWS else Tensor(address))
        named = tensors or {}
        self._tensors = (TensorBinding * len(named))(
            *(TensorBinding(name.encode(), Array(address)) for name, address in named.items()))
        self.bindings.tensors, self.bindings.tensor_count = self._tensors, len(named)
        self._arguments = (self.handle, c.addressof(self.bindings))
        return self

    def run(self):
        status = self.library.c.fovea_plan_run(*self._arguments)
        if status != 0:
            self.library.check(status)
