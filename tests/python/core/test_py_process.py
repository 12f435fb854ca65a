"""The process: what importing takes, threads that make progress side by side, forks, threads of the
engine."""

import os
import threading

import numpy as np

import fovea
from fovea import _core


def test_importing_needs_neither_torch_nor_jax_nor_numpy(in_new_process):
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "jax", "jaxlib", "numpy", "ml_dtypes", "scipy"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Refuse())
import fovea
print(fovea.formula("causal").show(sq=2).values, fovea.explain("sq=8").chosen, sorted({"torch", "jax", "numpy"} & set(sys.modules)))
try:
    fovea.attention(*[memoryview(bytearray(64)).cast("f").cast("B").cast("f", (1, 1, 4, 4))] * 3)
except ImportError as error:
    print("ImportError", error)
"""
    assert in_new_process(code).splitlines() == ["[[1.0, None], [1.0, 1.0]] cpu []", "ImportError numpy is not here"]


def test_other_threads_run_while_the_library_works():
    """The interpreter's lock is released around a run: a thread that only counts gets on meanwhile."""
    x = np.random.default_rng(1).standard_normal((1, 4, 700, 64)).astype(np.float32)
    counted, running = [0], threading.Event()

    def count():
        while not done.is_set():
            if running.is_set():
                counted[0] += 1

    done = threading.Event()
    counter = threading.Thread(target=count)
    counter.start()
    try:
        fovea.attention(x, x, x, threads=1)  # plans are made
        before = counted[0]
        running.set()
        fovea.attention(x, x, x, threads=1, engine="reference")
        running.clear()
    finally:
        done.set()
        counter.join()
    # With the lock held, the counter would not get a single turn during the call.
    assert counted[0] - before > 100


def test_many_threads_get_the_right_results():
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal((1, 2, 40, 16)).astype(np.float32) for _ in range(4)]
    wanted = [fovea.attention(x, x, x, is_causal=True) for x in inputs]
    wrong = []

    def work(x, right):
        for _ in range(20):
            if not np.array_equal(fovea.attention(x, x, x, is_causal=True), right):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, wanted)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_a_forked_child_can_call(in_new_process):
    code = """
import os, numpy, fovea
x = numpy.random.default_rng(3).standard_normal((1, 4, 64, 32)).astype(numpy.float32)
wanted = fovea.attention(x, x, x)
child = os.fork()
if child == 0:
    os._exit(0 if numpy.array_equal(fovea.attention(x, x, x), wanted) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), numpy.array_equal(fovea.attention(x, x, x), wanted))
"""
    assert in_new_process(code).split() == ["0", "True"]


def test_multiprocessing_by_fork(in_new_process):
    code = """
import multiprocessing, numpy, fovea
def work(seed):
    x = numpy.random.default_rng(seed).standard_normal((1, 2, 33, 16)).astype(numpy.float32)
    return float(fovea.attention(x, x, x, score_mod="30 * tanh(score / 30)").sum())
work(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(work, range(4)) == [work(i) for i in range(4)])
"""
    assert in_new_process(code).strip() == "True"


def test_threads_limit_the_engine(in_new_process):
    """With one thread, the engine starts none of its own; with more, no more than there are processors."""
    code = """
import os, numpy, fovea
tasks = lambda: len(os.listdir("/proc/self/task"))
x = numpy.random.default_rng(4).standard_normal((2, 8, 256, 64)).astype(numpy.float32)
start = tasks()
one = fovea.attention(x, x, x, threads=1)
alone = tasks()
both = fovea.attention(x, x, x, threads=2)
print(alone - start, tasks() - start, numpy.array_equal(one, both))
"""
    alone, both, same = in_new_process(code, FOVEA_NUM_THREADS="3", OPENBLAS_NUM_THREADS="1").split()
    assert (alone, both, same) == ("0", str(min(3, len(os.sched_getaffinity(0))) - 1), "True")


def test_workspaces_are_lent_and_given_back():
    _core.release_workspaces()
    x = np.ones((1, 2, 64, 16), np.float32)
    fovea.attention(x, x, x)
    assert fovea.release_workspaces() > 0 and fovea.release_workspaces() == 0
    fovea.attention(x, x, x)


def test_nothing_leaks_at_exit(in_new_process):
    """nanobind's own check, which is off for users: plans in every cache, a program, a picture and an error."""
    code = """
import contextlib, os, sys
os.environ["FOVEA_LEAK_WARNINGS"] = "1"
os.dup2(1, 2)  # the warnings go to standard error
import numpy as np, fovea
x = np.ones((1, 2, 8, 8), np.float32)
for cap in (1.0, 2.0):
    fovea.attention(x, x, x, score_mod="cap * tanh(score / cap)", is_causal=True, scalars={"cap": cap}, return_lse=True)
fovea.formula("causal").show(sq=4), fovea.explain("sq=8")
with contextlib.suppress(fovea.Error):
    fovea.attention(x, x, x, score_mod="nonsense(")
print("done", flush=True)
"""
    assert in_new_process(code).splitlines() == ["done"]


def test_first_calls_are_verified(in_new_process):
    """FOVEA_VERIFY=first: right results pass, forward and backward; another value is refused by the first call."""
    code = """
import fovea, numpy
x = numpy.random.default_rng(1).standard_normal((2, 4, 65, 8)).astype(numpy.float32)
try:
    o, pull = fovea.vjp(x, x[:, :2], x[:, :2], score_mod="softcap(0.8)", is_causal=True)
    pull(x)
    print("right", fovea.cache_stats()["builds"])
except fovea.InvalidArgument as error:
    print(error)
"""
    text = in_new_process(code, FOVEA_VERIFY="first")
    builds = int(text.split()[-1])
    assert "right" in text and builds == 4  # a forward and a backward, and their samples by the reference engine
    assert "FOVEA_VERIFY is 'always'; it must be first" in in_new_process(code, FOVEA_VERIFY="always")
    text = in_new_process(code.replace("is_causal=True", "is_causal=True, verify=True"))
    assert "right" in text and int(text.split()[-1]) == 4
