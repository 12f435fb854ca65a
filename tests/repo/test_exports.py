"""libfovea.so exports the C interface and nothing else."""
import re


def exported(run, library):
    lines = run("nm", "-D", "--defined-only", library).stdout.splitlines()
    return {line.split()[-1] for line in lines}


def test_only_fovea_symbols_are_exported(build, run):
    names = exported(run, build / "libfovea.so")
    assert names, "nothing is exported at all"
    assert {name for name in names if not name.startswith("fovea_")} == set()


def test_every_declared_function_is_exported(build, root, run):
    headers = "".join(path.read_text() for path in sorted((root / "include/fovea").glob("*.h")))
    declared = set(re.findall(r"^FOVEA_API\b[^(;]*?\b(fovea_\w+)\(", headers, re.MULTILINE))
    assert declared
    assert declared == exported(run, build / "libfovea.so")
