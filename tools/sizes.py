#!/usr/bin/env python3
"""Counts files and lines of each room, and the files that one call of flex_attention walks through.

A call walks from fovea/torch/flex.py through imports, and from src/capi/plan.cpp through includes: from each header to the
source of its name, and to sources of its folder that include it and have no header of their name. Engines other than `cpu`
are left out, since one call runs one engine.
"""
import argparse
import ast
import re
import statistics
import subprocess
from collections import defaultdict
from pathlib import Path

CODE = {".c", ".h", ".hpp", ".cpp", ".cu", ".cuh", ".def", ".py", ".jl", ".cmake", ".sh", ".md"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
OTHER_ENGINES = re.compile("src/engines/(cudnn|jit|reference)/")


def tracked(root):
    names = subprocess.run(["git", "-C", root, "ls-files"], check=True, capture_output=True, text=True).stdout
    files = [Path(name) for name in names.splitlines()]
    return [file for file in files if (root / file).is_file() and (file.suffix in CODE or file.name in {"dev", "CMakeLists.txt"})]


def room_of(file):
    parts = file.parts
    depth = {"src": 3 if parts[1:2] == ("engines",) else 2, "bindings": 2, "tests": 1, "cli": 2}.get(parts[0], 1)
    folder = parts[: min(depth, len(parts) - 1)]
    return "/".join(folder) or "."


def includes(root, file):
    for name in INCLUDE.findall((root / file).read_text(errors="replace")):
        for base in (file.parent, Path("src"), Path("include"), Path(".")):
            if (root / base / name).is_file():
                yield base / name
                break


def file_of(root, module):
    """Of a Python module; None if it is not in this checkout."""
    candidates = (module.with_suffix(".py"), module.with_suffix(".pyi"), module / "__init__.py")
    return next((path for path in candidates if (root / path).is_file()), None)


def imports(root, file):
    package = Path("bindings/python")
    if file.suffix == ".pyi":
        return
    # Imports inside of functions are for calls of another kind.
    for node in ast.parse((root / file).read_text()).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        folder = file.parents[node.level - 1] if node.level else package
        module = folder.joinpath(*(node.module or "").split(".")) if node.module else folder
        modules = [module / alias.name for alias in node.names]
        found = [file_of(root, path) for path in modules]
        if None in found:  # a name that is no module comes from the package itself
            found.append(file_of(root, module))
        yield from (path for path in found if path is not None)


def orphans(root):
    """By header: the sources of its folder that include it and have no header of their name."""
    found = defaultdict(list)
    for source in (root / "src").rglob("*.cpp"):
        if not source.with_suffix(".h").is_file():
            file = source.relative_to(root)
            for header in includes(root, file):
                if header.parent == file.parent:
                    found[header].append(file)
    return found


def walked(root):
    """Every file that is reached."""
    nameless = orphans(root)
    starts = [Path("bindings/python/fovea/torch/flex.py"), Path("src/capi/plan.cpp"), Path("src/engines/cpu/engine.cpp")]
    seen, todo = set(), [file for file in starts if (root / file).is_file()]
    while todo:
        file = todo.pop()
        if file in seen or OTHER_ENGINES.match(file.as_posix()):
            continue
        seen.add(file)
        todo += imports(root, file) if file.suffix in (".py", ".pyi") else includes(root, file)
        todo += nameless[file]
        source = file.with_suffix(".cpp")
        if file.suffix == ".h" and (root / source).is_file():
            todo.append(source)
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(), help="the tree to count; this folder unless named")
    root = parser.parse_args().checkout.resolve()
    files = {file: (root / file).read_text(errors="replace").count("\n") for file in tracked(root)}
    rooms = defaultdict(list)
    for file, lines in files.items():
        rooms[room_of(file)].append(lines)
    print(f"{'room':32}  files   lines  median")
    for room, lines in sorted(rooms.items()):
        print(f"{room:32}  {len(lines):5}  {sum(lines):6}  {statistics.median(lines):6.0f}")
    own = {file: lines for file, lines in files.items() if file.suffix in {".h", ".cpp", ".hpp"}}
    headers = {file.with_suffix("") for file in own if file.suffix != ".cpp"}
    sources = [file for file in own if file.suffix == ".cpp" and file.parts[0] in ("src", "cli")]
    print(f"all: {len(files)} files, {sum(files.values())} lines")
    print(f"C++ files: {len(own)}, median {statistics.median(own.values()):.0f} lines, "
          f"{sum(lines < 40 for lines in own.values())} under 40 lines")
    print(f"sources in src/ and cli/ without a header of their name: {sum(file.with_suffix('') not in headers for file in sources)}")
    print(f"files that one call of flex_attention walks through: {len(walked(root))}")


if __name__ == "__main__":
    main()
