#!/usr/bin/env python3
"""Checks which file includes which: rooms only look up, no cycles, no file too long.

Prints each violation as `file:line: rule` and exits 1 if there is any. Reads `#include` lines, not a compiler's
output, so that every branch of every `#if` is seen. Run by tests/repo/.
"""
import argparse
import re
import sys
from pathlib import Path

# What each room may include besides itself. Rooms of src/ are in dependency order.
UPPER = {
    "include": set(),
    "base": set(),
    "store": {"base"},
    "ir": {"base"},
    "attention": {"base", "ir"},
    "cuda": {"base", "ir", "attention"},
    "engines/reference": {"base", "ir", "attention"},
    "engines/cpu": {"base", "ir", "attention"},
    "engines/cudnn": {"base", "store", "ir", "attention", "cuda"},
    "engines/jit": {"base", "store", "ir", "attention", "cuda", "engines/jit/device"},
    "engines/jit/device": set(),
}
ENGINES = {"engines/reference", "engines/cpu", "engines/cudnn", "engines/jit"}
UPPER["planner"] = UPPER["cuda"] | {"cuda", "store"} | ENGINES
UPPER["capi"] = UPPER["planner"] | {"planner", "include"}

# Users of the library see its public headers and nothing else.
UPPER["cli"] = UPPER["bindings"] = UPPER["examples"] = {"include"}

# Tests and benchmarks look inside everything.
INSIDE = {room for room in UPPER if room not in ("bindings", "examples")}
UPPER["tests"] = INSIDE
UPPER["bench"] = INSIDE | {"tests"}

# The list of fields belongs to no room: the library, its interface and its users are made from it.
FIELDS = Path("include/fovea/fields.def")
for room in [room for room in UPPER if room not in ("base", "store", "ir", "engines/jit/device")]:
    UPPER[room] = UPPER[room] | {"fields"}
UPPER["fields"] = set()

# Rooms of which not even a header of the system may be included: NVRTC compiles them from memory.
CLOSED = {"engines/jit/device"}

SOURCES = {".c", ".h", ".hpp", ".cpp", ".cu", ".cuh", ".def"}
SOURCE_FOLDERS = ("src", "include", "cli", "bindings", "examples", "tests", "bench")
SIZED_FOLDERS = ("src", "include", "cli", "tests", "tools", "bench")
SIZED = SOURCES | {".py"}
MAX_LINES = 500

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
# Comments, and texts of programs within a program.
SET_ASIDE = re.compile(r'/\*.*?\*/|\bR"(\w*)\(.*?\)\1"', re.DOTALL)


def room_of(path):
    """The room of a path relative to the root, or None for a folder of src/ that is no room."""
    parts = path.parts
    if path == FIELDS:
        return "fields"
    if parts[0] != "src":
        return parts[0]
    folder = "/".join(parts[1:-1])
    inside = [room for room in UPPER if folder == room or folder.startswith(room + "/")]
    return max(inside, key=len, default=None)


def includes_of(root, path):
    """(line, text, target) of each include; target is relative to the root, or None if outside of it."""
    text = SET_ASIDE.sub(lambda m: "\n" * m[0].count("\n"), (root / path).read_text(errors="replace"))
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        bases = [Path("src"), Path("include"), Path(".")]
        if match[1] == '"':
            bases.insert(0, path.parent)
        yield line, match[1] + match[2], find(root, bases, match[2])


def find(root, bases, name):
    for base in bases:
        candidate = (root / base / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root)
    return None


def judge(path, name, target):
    """The rule that this include breaks, or None."""
    room = room_of(path)
    if target is None:
        if room in CLOSED:
            return f"{room} includes nothing outside itself, not {name[1:]}"
        if name[0] == '"':
            return f'"{name[1:]}" is not in the tree; what comes from outside is included with <>'
        return None
    other = room_of(target)
    if other == room or other in UPPER[room]:
        return None
    if room in ENGINES and other in ENGINES:
        return f"engines never include one another: {room} includes {target}"
    allowed = ", ".join(name for name in UPPER if name in UPPER[room]) or "nothing else"
    return f"{room} includes {target}; besides itself it may include {allowed}"


def cycles(graph):
    """One cycle for each set of files that include one another, as lists of paths."""
    state, found = {}, []

    def visit(path, trail):
        state[path] = "open"
        trail.append(path)
        for target in graph.get(path, {}):
            if state.get(target) == "open":
                found.append(trail[trail.index(target):])
            elif target not in state:
                visit(target, trail)
        trail.pop()
        state[path] = "done"

    for path in graph:
        if path not in state:
            visit(path, [])
    return found


def files(root, folders, suffixes):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in suffixes:
                yield path.relative_to(root)


def check(root):
    violations, graph = [], {}
    for path in files(root, SOURCE_FOLDERS, SOURCES):
        if room_of(path) is None:
            violations.append((path, 1, f"{path.parent} is not a room; the rooms are in tools/check_layers.py"))
            continue
        graph[path] = {}
        for line, name, target in includes_of(root, path):
            if target is not None:
                graph[path].setdefault(target, line)
            if rule := judge(path, name, target):
                violations.append((path, line, rule))
    for cycle in cycles(graph):
        loop = " -> ".join(str(path) for path in [*cycle, cycle[0]])
        violations.append((cycle[0], graph[cycle[0]][(cycle + cycle)[1]], f"include cycle: {loop}"))
    for path in files(root, SIZED_FOLDERS, SIZED):
        lines = len((root / path).read_bytes().splitlines())
        if lines > MAX_LINES:
            violations.append((path, MAX_LINES + 1, f"{lines} lines; no file has more than {MAX_LINES}"))
    return sorted(violations), len(graph)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent, help="the tree to check")
    root = parser.parse_args().root.resolve()
    violations, count = check(root)
    for path, line, rule in violations:
        print(f"{path}:{line}: {rule}")
    if violations:
        sys.exit(1)
    print(f"{count} files, every include allowed")


if __name__ == "__main__":
    main()
