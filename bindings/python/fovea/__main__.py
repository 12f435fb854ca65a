"""Runs the command-line program `fovea` that a wheel contains: as `fovea` if the wheel is installed, or as `python -m fovea`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fovea")
    if not os.path.exists(program):
        sys.exit("fovea: this package was built without the program; './dev build' makes it, as build/fovea")
    os.execv(program, ["fovea", *sys.argv[1:]])


if __name__ == "__main__":
    main()
