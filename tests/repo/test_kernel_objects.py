"""The CPU kernels are compiled once per instruction set; what one file makes must not reach another.

A weak symbol (an inline function, a template of the standard library) is merged by the linker with its
namesakes everywhere: the copy it keeps may be the one with AVX-512 code, and then runs on a machine without.
"""
import platform

import pytest

SOURCES = {"x86_64": ["avx2.cpp", "avx512.cpp", "avx512_bf16.cpp", "scalar.cpp"], "aarch64": ["neon.cpp", "scalar.cpp"]}
KERNELS = "src/engines/cpu/kernels"
WEAK = "WwVvu"
GLOBAL_DATA = "BDGRS"


def symbols(run, build, source):
    """(kind, name) of every symbol that the object of this source defines or wants."""
    found = build / "src/CMakeFiles/fovea_core.dir/engines/cpu/kernels" / f"{source}.o"
    assert found.exists(), f"{found} is not there: run ./dev build"
    lines = run("nm", "--demangle", found).stdout.splitlines()
    return [line[17:].split(" ", 1) for line in lines]


def test_every_instruction_set_is_looked_at(root):
    assert sorted(path.name for path in (root / KERNELS).glob("*.cpp")) == sorted(set().union(*SOURCES.values()))


@pytest.mark.parametrize("source", SOURCES[platform.machine()])
def test_a_kernel_object_gives_out_its_table_and_nothing_else(build, run, source):
    found = symbols(run, build, source)
    weak = [name for kind, name in found if kind in WEAK]
    assert weak == [], f"weak symbols in {source}: keep templates of the standard library out"
    given = [(kind, name) for kind, name in found if kind.isupper() and kind != "U"]
    assert len(given) == 1 and given[0][0] in GLOBAL_DATA, f"{source} gives out {given}, not one table"
