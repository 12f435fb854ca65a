"""tools/check_layers.py passes on this tree and fails on each kind of violation."""
import sys

import pytest


@pytest.fixture
def check(root, run):
    script = root / "tools/check_layers.py"
    return lambda tree: run(sys.executable, script, "--root", tree, check=False)


@pytest.fixture
def plant(check, tmp_path):
    """plant({path: text}) checks a tree of these files next to some that are allowed."""
    allowed = {
        "include/fovea/fovea.h": "",
        "include/fovea/fields.def": "",
        "src/base/hash.h": "",
        "src/ir/expr.h": '#include "base/hash.h"\n#include <vector>\n',
        "src/attention/problem.h": '#include "fovea/fields.def"\n#include "ir/expr.h"\n',
        "src/cuda/driver.h": '#include "base/hash.h"\n',
        "src/engines/cpu/engine.h": '#include "attention/problem.h"\n',
        "src/engines/jit/engine.h": '#include "cuda/driver.h"\n#include "device/tile.cuh"\n',
        "src/engines/jit/device/tile.cuh": "",
        "src/planner/planner.cpp": '#include "engines/cpu/engine.h"\n#include "engines/jit/engine.h"\n',
        "src/capi/plan.cpp": '#include "fovea/fovea.h"\n#include "planner/choose.h"\n',
        "src/planner/choose.h": "",
        "cli/main.cpp": '#include <fovea/fovea.h>\n',
        "tests/ir/expr_test.cpp": '#include "ir/expr.h"\n',
    }

    def plant_files(planted):
        for path, text in {**allowed, **planted}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return check(tmp_path)

    return plant_files


def test_this_tree_is_clean(check, root):
    result = check(root)
    assert result.returncode == 0, result.stdout


def test_allowed_includes_pass(plant):
    result = plant({})
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "path, include, rule",
    [
        ("src/base/env.h", '"ir/expr.h"', "base includes src/ir/expr.h"),
        ("src/base/env.h", '"../ir/expr.h"', "base includes src/ir/expr.h"),
        ("src/ir/tape.h", "<attention/problem.h>", "ir includes src/attention/problem.h"),
        ("src/ir/tape.h", '"fovea/fovea.h"', "ir includes include/fovea/fovea.h"),
        ("src/attention/device.h", '"cuda/driver.h"', "attention includes"),
        ("src/cuda/module.h", '"engines/jit/engine.h"', "cuda includes"),
        ("src/engines/jit/launch.h", '"engines/cpu/engine.h"', "engines never include one another"),
        ("src/engines/cpu/threads.h", '"cuda/driver.h"', "engines/cpu includes src/cuda/driver.h"),
        ("src/engines/reference/engine.h", '"cuda/driver.h"', "engines/reference includes src/cuda/driver.h"),
        ("src/engines/cpu/threads.h", '"planner/choose.h"', "engines/cpu includes src/planner/choose.h"),
        ("src/engines/jit/device/mma.cuh", '"../engine.h"', "engines/jit/device includes"),
        ("src/engines/jit/device/mma.cuh", "<cstdint>", "engines/jit/device includes nothing outside itself"),
        ("src/planner/cache.h", '"fovea/fovea.h"', "planner includes include/fovea/fovea.h"),
        ("include/fovea/fovea.hpp", '"base/hash.h"', "include includes src/base/hash.h"),
        ("cli/run.cpp", '"attention/problem.h"', "cli includes src/attention/problem.h"),
        ("cli/diff.cpp", '"ir/expr.h"', "cli includes src/ir/expr.h"),
        ("bindings/python/core.cpp", '"ir/expr.h"', "bindings includes src/ir/expr.h"),
        ("examples/01_first_call.cpp", '"base/hash.h"', "examples includes src/base/hash.h"),
        ("src/ir/tape.h", '"nowhere.h"', '"nowhere.h" is not in the tree'),
    ],
)
def test_forbidden_include_is_reported_with_its_line(plant, path, include, rule):
    result = plant({path: f"// what this is\n#  include {include}\n"})
    assert result.returncode == 1
    assert result.stdout.startswith(f"{path}:2: ")
    assert rule in result.stdout
    assert result.stdout.count("\n") == 1


def test_folder_that_is_no_room_is_reported(plant):
    result = plant({"src/utils/misc.h": ""})
    assert result.returncode == 1
    assert "src/utils/misc.h:1: src/utils is not a room" in result.stdout


def test_include_cycle_is_reported(plant):
    result = plant({"src/ir/a.h": '#include "ir/b.h"\n', "src/ir/b.h": '\n#include "a.h"\n'})
    assert result.returncode == 1
    assert result.stdout == "src/ir/a.h:1: include cycle: src/ir/a.h -> src/ir/b.h -> src/ir/a.h\n"


def test_file_that_includes_itself_is_reported(plant):
    assert "include cycle" in plant({"src/ir/a.h": '#include "a.h"\n'}).stdout


@pytest.mark.parametrize("path", ["src/ir/long.cpp", "include/fovea/long.h", "cli/long.cpp", "tests/ir/long_test.cpp",
                                  "tools/long.py", "bench/long.cpp"])
def test_long_file_is_reported(plant, path):
    assert plant({path: "\n" * 500}).returncode == 0
    result = plant({path: "\n" * 501})
    assert result.returncode == 1
    assert result.stdout == f"{path}:501: 501 lines; no file has more than 500\n"


def test_include_in_the_text_of_another_program_is_no_include(plant):
    result = plant({"src/base/env.cpp": 'const char* text = R"(\n#include "ir/expr.h"\n)";\n'})
    assert result.returncode == 0, result.stdout


def test_include_in_a_comment_is_no_include(plant):
    result = plant({"src/base/env.h": '// #include "ir/expr.h"\n/*\n#include "ir/expr.h"\n*/\n'})
    assert result.returncode == 0, result.stdout
