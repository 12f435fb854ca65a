#!/usr/bin/env python3
"""Compiles src/engines/cudnn/packed_rows.cu to PTX and keeps it as a C++ source, so that building Fovea needs no nvcc.

Run it after a change of packed_rows.cu or packed_rows.h (tests/repo says when it was forgotten).

The PTX is for compute_80 and every GPU after it. nvcc writes the version of its own release into it, which older drivers
refuse; nothing in these kernels needs more than 7.0, the first that knows sm_80, and ptxas checks that.
"""
import argparse
import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "src/engines/cudnn"
SOURCES = ("packed_rows.cu", "packed_rows.h")

TEXT = """// Made by tools/make_ptx.py from packed_rows.cu: do not edit.
// sha256 of its sources: {digest}
#include "engines/cudnn/packed.h"

namespace fovea::cudnn {{

const char* const packed_rows_ptx = R"ptx({ptx})ptx";

}}  // namespace fovea::cudnn
"""


def digest():
    """Of the sources, one after the other."""
    return hashlib.sha256(b"".join((FOLDER / name).read_bytes() for name in SOURCES)).hexdigest()


def in_lines(words, width=110):
    """Line ends mean nothing in PTX, but directives such as .version want one of their own."""
    lines, line = [], ""
    for word in words:
        if line and (len(line) + len(word) + 1 > width or word in (".version", ".target", ".address_size", ".visible")):
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    return "\n".join([*lines, line])


def compile_ptx(nvcc):
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.ptx"
        subprocess.run([nvcc, "-std=c++20", "-O3", "-arch=compute_80", "-ptx", "-o", made, FOLDER / SOURCES[0]], check=True)
        text = re.sub(r"^\.version .*$", ".version 7.0", made.read_text(), flags=re.MULTILINE)
        text = in_lines(re.sub(r"//.*$", "", text, flags=re.MULTILINE).split())
        made.write_text(text)
        subprocess.run([Path(nvcc).with_name("ptxas"), "-arch=sm_80", "-o", made.with_suffix(".cubin"), made], check=True)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nvcc", nargs="?", default="/usr/local/cuda/bin/nvcc", help="the compiler; this one unless named: %(default)s")
    nvcc = parser.parse_args().nvcc
    text = TEXT.format(digest=digest(), ptx=compile_ptx(nvcc))
    (FOLDER / "packed_rows.cpp").write_text(text)


if __name__ == "__main__":
    main()
