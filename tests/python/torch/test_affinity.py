"""Callers that are bound to one processor, as OpenMP binds the main thread: Fovea's threads still have all of the
process, and never more. Each case is a process of its own, since OpenMP binds when it is loaded."""

import json
import os
import subprocess
import sys

import pytest

ALL = sorted(os.sched_getaffinity(os.getpid()))

# Says what the caller and Fovea's threads may run on. {} is code that runs before the first call.
SCRIPT = """
import json, os, pathlib, threading
import torch
from fovea.torch import attention

def run():
    {}
    q = torch.randn(1, 8, 256, 64)
    attention(q, q, q)
    threads = {{}}
    for task in pathlib.Path("/proc/self/task").iterdir():
        threads.setdefault((task / "comm").read_text().strip(), []).append(sorted(os.sched_getaffinity(int(task.name))))
    print(json.dumps({{"caller": sorted(os.sched_getaffinity(0)), "threads": threads.get("fovea-cpu", [])}}))

{}
"""
IN_MAIN, IN_A_THREAD = "run()", "thread = threading.Thread(target=run); thread.start(); thread.join()"


def said(before="pass", where=IN_MAIN, command=(), **environment):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    env |= {"FOVEA_NUM_THREADS": "3", "OMP_NUM_THREADS": "3"} | environment
    done = subprocess.run(
        [*command, sys.executable, "-c", SCRIPT.format(before, where)],
        capture_output=True,
        text=True,
        timeout=600,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


needs_two = pytest.mark.skipif(len(ALL) < 2, reason="needs two processors")


@needs_two
@pytest.mark.parametrize("environment", [{"OMP_PROC_BIND": "true"}, {"GOMP_CPU_AFFINITY": f"{ALL[0]}-{ALL[-1]}"}])
def test_openmp_binds_the_caller_alone(environment):
    got = said(**environment)
    if got["caller"] == ALL:
        pytest.skip("this torch has an OpenMP that does not bind the main thread")
    assert got == {"caller": [ALL[0]], "threads": [ALL, ALL]}


@needs_two
def test_a_thread_that_binds_itself():
    got = said(before=f"os.sched_setaffinity(0, [{ALL[1]}])", where=IN_A_THREAD)
    assert got == {"caller": [ALL[1]], "threads": [ALL, ALL]}


@needs_two
def test_a_process_that_is_limited_stays_inside():
    one = [ALL[1]]
    assert said(before=f"os.sched_setaffinity(0, {one})") == {"caller": one, "threads": [one, one]}
    taskset = ("taskset", "-c", str(ALL[1]))
    assert said(command=taskset) == {"caller": one, "threads": [one, one]}
    assert said(command=taskset, OMP_PROC_BIND="true") == {"caller": one, "threads": [one, one]}
