"""Clocks and processors: two functions timed in turn, threads bound, the peak of the machine."""
import dataclasses
import os
import statistics
import subprocess
import time
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of one call: the median over rounds of each round's median, and the fastest call."""
    median: float
    fastest: float


def _round(function, seconds, clock):
    function()  # the other side's threads may still be spinning, its data in the caches
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = clock()
        function()
        times.append(clock() - start)
    return times


def alternately(functions, rounds, seconds, progress=lambda share: None, clock=time.perf_counter):
    """Times of each function, in rounds that take turns: what slows the machine down slows all of them."""
    taken = [[] for _ in functions]
    for number in range(rounds):
        for function, mine in zip(functions, taken):
            mine.append(_round(function, seconds, clock))
        progress((number + 1) / rounds)
    return [Times(statistics.median(statistics.median(one) for one in mine), min(min(one) for one in mine))
            for mine in taken]


def bind_threads(processors):
    """Fovea's threads and the caller to one processor each, as OMP_PROC_BIND does with torch's."""
    ours = [int(task.name) for task in Path("/proc/self/task").iterdir()
            if (task / "comm").read_text().strip() == "fovea-cpu"]
    for thread, processor in zip([os.getpid(), *sorted(ours)], processors):
        os.sched_setaffinity(thread, {processor})
    return len(ours)


def peak(program, threads, processors, isa=None):
    """GFLOP/s of f32 multiply-adds with so many threads at once, of an instruction set or the best, and its name."""
    done = subprocess.run([str(program), str(threads)], capture_output=True, text=True, check=True,
                          preexec_fn=lambda: os.sched_setaffinity(0, processors))
    rates = {name: float(rate) for name, _, rate in (line.split() for line in done.stdout.splitlines())}
    best = isa or max(rates, key=rates.get, default="")
    return rates.get(best, float("nan")), best
