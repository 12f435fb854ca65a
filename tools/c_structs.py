#!/usr/bin/env python3
"""The structs of include/fovea/*.h as other languages need them.

    tools/c_structs.py            writes bindings/julia/Fovea.jl/src/c/structs.jl, which is checked in; tests/repo/ checks it
    c_structs.ctypes_structs()    the same as classes of ctypes, for benchmarks
"""
import argparse
import ctypes
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JULIA = ROOT / "bindings/julia/Fovea.jl/src/c/structs.jl"
USED_BY_JULIA = ("sizes", "problem_config", "plan_options", "array", "tensor_binding", "scalar_binding", "tensor",
                 "f32_value", "i32_value", "u64_value", "bindings", "cache_stats")
TYPES = {  # of C: of Julia, of ctypes
    "size_t": ("Csize_t", ctypes.c_size_t),
    "int32_t": ("Int32", ctypes.c_int32),
    "int64_t": ("Int64", ctypes.c_int64),
    "uint64_t": ("UInt64", ctypes.c_uint64),
    "float": ("Cfloat", ctypes.c_float),
    "double": ("Cdouble", ctypes.c_double),
    "char*": ("Ptr{UInt8}", ctypes.c_char_p),
    "fovea_direction": ("Direction", ctypes.c_int32),
    "fovea_dtype": ("DType", ctypes.c_int32),
    "fovea_layout": ("Cint", ctypes.c_int32),
    "fovea_rng": ("Cint", ctypes.c_int32),
    "fovea_program": ("Handle", ctypes.c_void_p),
    "fovea_problem": ("Handle", ctypes.c_void_p),
}


def structs():
    """{name without fovea_: [(field, type, length of an array or 0)]}, in the order of the headers."""
    text = "".join((ROOT / "include/fovea" / name).read_text() for name in ("fovea.h", "caching.h"))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = {}
    for name, body in re.findall(r"typedef struct fovea_(\w+) \{(.*?)\} fovea_\1;", text, re.DOTALL):
        if "(*" not in body:  # a function pointer
            found[name] = [field for line in body.split(";") if line.strip() for field in fields(line)]
    return found


def fields(declaration):
    """Of `const int64_t a[4], b[4]`, or `const void* p`."""
    kind, names = re.match(r"\s*(?:const )?(\w+\*?) (.*)", declaration, re.DOTALL).groups()
    for name in names.split(","):
        array = re.match(r"\s*(\w+)(?:\[(\d+)\])?", name)
        yield array[1], kind, int(array[2] or 0)


def julia_name(name):
    return "C" + "".join(part.capitalize() for part in name.split("_"))


def julia_type(kind, length):
    if length:
        return f"NTuple{{{length},{julia_type(kind, 0)}}}"
    if kind in TYPES:
        return TYPES[kind][0]
    name = kind.rstrip("*").removeprefix("fovea_")
    if name not in USED_BY_JULIA:
        return "Ptr{Cvoid}"
    return f"Ptr{{{julia_name(name)}}}" if kind.endswith("*") else julia_name(name)


def julia():
    out = ["# Written by tools/c_structs.py from include/fovea/*.h; test/library.jl compares offsets with the C compiler's.",
           "# All are plain bits, so that a problem can be a key of the cache as it stands."]
    for name, members in structs().items():
        if name in USED_BY_JULIA:
            rows = [f"    {field}::{julia_type(kind, length)}" for field, kind, length in members]
            out += ["", f"struct {julia_name(name)}", *rows, "end"]
    return "\n".join(out) + "\n"


def ctypes_structs():
    made = {}
    for name, members in structs().items():
        rows = []
        for field, kind, length in members:
            inner = kind.removeprefix("fovea_")
            known = TYPES[kind][1] if kind in TYPES else made.get(inner, ctypes.c_void_p)
            if kind.endswith("*") and inner[:-1] in made:
                known = ctypes.POINTER(made[inner[:-1]])
            rows.append((field, known * length if length else known))
        made[name] = type(name, (ctypes.Structure,), {"_fields_": rows})
    return made


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    JULIA.write_text(julia())
