"""Runs the rows: checks each, times both sides, and keeps what was found."""
import dataclasses
import os
import statistics
import sys
import time

import bench_report
import torch

from . import rows, sides, timing

FIRST_CALL_BAR_MS = 0.5

# For first_calls(). They differ in structure: a new number alone would find the plan of the old one.
FORMULAS = [
    "score + 0.1 * sin(score)", "score * sigmoid(0.3 * score)", "20 * tanh(score / 20) + 0.01 * f32(k - q)",
    "score - 0.5 * log1p(abs(f32(q - k)))", "select(k % 7 == 0, score * 0.5, score)", "max(score, -3.0) + 0.2",
    "score + exp2(-0.5 * f32(h + 1)) * f32(k - q)", "min(score, 4.0) * cos(0.01 * f32(q))", "score / (1 + abs(score))",
    "clamp(score, -6.0, 6.0) - 0.001 * f32(q * k % 13)",
]

# Variables that choose an instruction set: of Fovea, of torch, of the libraries that it calls.
FORCED = ("FOVEA_CPU_ISA", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")


@dataclasses.dataclass
class Result:
    row: rows.Row
    peer: timing.Times
    fovea: timing.Times
    peak: float
    error: float  # as a share of its limit
    bar: float = None
    remark: str = ""

    @property
    def ratio(self):
        return self.peer.median / self.fovea.median

    @property
    def rate(self):
        return self.row.flops / self.fovea.median / 1e9

    @property
    def share(self):
        return self.rate / self.peak

    @property
    def passed(self):
        return self.error <= 1 and (self.bar is None or self.ratio >= self.bar)


@dataclasses.dataclass
class Point:
    """Of the sweep over lengths."""
    seconds: float
    rate: float
    share: float


def rows_of(arguments):
    changed = arguments.heads or arguments.length
    heads, length = arguments.heads or rows.HEADS, arguments.length or rows.LENGTH
    table = [rows.scaled(row, heads, length) if changed else row for row in rows.table()]
    return [rows.with_avx2_bar(row) for row in table] if arguments.isa == "avx2" else table


def has_bf16_dot(isa):
    if isa == "avx2":
        return False
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        words = set(file.read().split())
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})


def status(text, end=""):
    """One line that replaces itself on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end=end, file=sys.stderr, flush=True)
    elif end:
        print(text, file=sys.stderr, flush=True)


class Run:
    def __init__(self, arguments, library, processors):
        self.arguments, self.library, self.threads = arguments, library, arguments.threads
        self.processors = processors[:arguments.threads]
        self.rounds = arguments.rounds or (5 if arguments.quick else 7)
        self.seconds = 0.1 if arguments.quick else 0.5
        self.results, self.sweep, self.first_call = [], {}, ""
        torch.set_num_threads(self.threads)
        self.facts = {
            "machine": bench_report.processor(), "commit": bench_report.commit(), "fovea": library.version(),
            "compiler": bench_report.first_line("c++", "--version"),
            "torch": f"{torch.__version__} ({torch.backends.cpu.get_cpu_capability()}, "
                     f"{'MKL' if torch.backends.mkl.is_available() else 'no MKL'})",
            "isa": ", ".join(f"{name}={os.environ[name]}" for name in FORCED if name in os.environ) or "the best there is",
            "load": " ".join(f"{x:.2f}" for x in os.getloadavg()),
            "busy": os.getloadavg()[0] > 0.5 * len(processors),
            "command": "./dev bench cpu " + " ".join(sys.argv[1:]),
        }

    def slug(self):
        threads = "" if self.threads == 2 else f"_{self.threads}thread"
        isa = f"_{self.arguments.isa}" if self.arguments.isa else ""
        return f"{bench_report.machine()}{threads}{isa}"

    def measure(self, selected):
        if self.facts["busy"]:
            status(f"the machine is busy (load {self.facts['load']}): what follows is no result", "\n")
        self.warm_up()
        self.peak_before, self.peak_isa = self.peak(self.threads)
        self.peak_one, _ = self.peak(1)
        for number, row in enumerate(selected, 1):
            self.results.append(self.measure_row(row, f"[{number}/{len(selected)}] {row.name}"))
        if not self.arguments.no_extras and not self.arguments.only:
            self.measure_lengths()
            self.first_call = first_calls(self.library, self.arguments.engine)
        self.peak_after, _ = self.peak(self.threads)
        if self.peak_after < 0.95 * self.peak_before:
            status("the peak fell by more than 5 %: something else was running, measure again", "\n")

    def peak(self, threads):
        return timing.peak(self.arguments.build / "bench/fovea_peak", threads, self.processors, self.arguments.isa)

    def warm_up(self):
        found = sides.start_threads(self.library, self.processors, self.arguments.engine)
        if found != self.threads - 1:
            status(f"{found} threads of Fovea's own were found, not {self.threads - 1}: they are not bound", "\n")

    def measure_row(self, row, title):
        status(f"{title}: checking")
        data = sides.Data(row)
        fovea = sides.Fovea(self.library, data, self.arguments.engine)
        fovea.run()
        error = sides.worst_error(data, fovea.out)
        if row.peer == "own":
            plain = sides.Data(dataclasses.replace(row, formula=rows.NONE))
            other = sides.Fovea(self.library, plain, self.arguments.engine).run
        else:
            other = sides.torch_side(data)
        status(f"{title}: first call of {row.peer}")
        other()
        show = lambda share: status(f"{title}: {share:4.0%}")
        clock = time.thread_time if self.arguments.busy else time.perf_counter
        peer, own = timing.alternately([other, fovea.run], self.rounds, self.seconds, show, clock)
        if self.arguments.busy:
            peer, own = (timing.Times(times.fastest, times.fastest) for times in (peer, own))
        result = Result(row, peer, own, self.peak_before, error, row.bar)
        if row.needs_bf16_dot and not has_bf16_dot(self.arguments.isa):
            result.bar, result.remark = None, f"no bf16 dot here; bar {row.bar}"
        floor = rows.PEAK_BARS.get(row.d)
        if row.formula is rows.NONE and row.direction == "forward" and row.dtype == "f32" and row.heads == rows.HEADS:
            result.remark = f"{'over' if result.share >= floor else 'UNDER'} {floor:.0%} of peak"
        verdict = "" if result.bar is None else " pass" if result.ratio >= result.bar else " SLOW"
        verdict = " WRONG" if error > 1 else verdict
        status(f"{title}: {peer.median * 1e3:.2f} / {own.median * 1e3:.2f} ms = {result.ratio:.2f} "
               f"(bar {result.bar and round(result.bar, 2)}){verdict}, {result.rate:.0f} GFLOP/s, {result.share:.0%} of peak, "
               f"error {error:.2f} {result.remark}", "\n")
        return result

    def measure_lengths(self):
        lengths = rows.SWEEP[:4] if self.arguments.quick else rows.SWEEP
        for d in (64, 128):
            for length in lengths:
                row = dataclasses.replace(rows.table()[0], d=d, queries=length, keys=length)
                fovea = sides.Fovea(self.library, sides.Data(row), self.arguments.engine)
                fovea.run()
                times, end = [], time.perf_counter() + 2 * self.seconds
                while len(times) < 3 or time.perf_counter() < end:
                    start = time.perf_counter()
                    fovea.run()
                    times.append(time.perf_counter() - start)
                rate = row.flops / min(times) / 1e9
                self.sweep.setdefault(d, {})[length] = Point(min(times), rate, rate / self.peak_before)
                status(f"f32 forward S={length} d={d}: {rate:.0f} GFLOP/s, {rate / self.peak_before:.0%} of peak", "\n")

    def spread_text(self):
        out = []
        for d, points in self.sweep.items():
            rates = [point.rate for point in points.values()]
            middle = statistics.median(rates)
            most = max(abs(rate / middle - 1) for rate in rates)
            out.append(f"d={d}: {most:.0%} from the median ({'within' if most <= 0.1 else 'OUTSIDE'} 10 %)")
        return "; ".join(out)

    def passed(self):
        return all(result.passed for result in self.results)


def first_calls(library, engine):
    """How much longer the first call of a formula takes that Fovea has never seen, as a sentence. The shape is small, so that
    planning is not lost in the noise of running. The caller's processor time is given too: what a wait for another program
    adds to a call is not in it."""
    q, k, v, o = (torch.randn(1, 4, 64, 32) for _ in range(4))
    extra, own = [], []
    for formula in FORMULAS:
        start, start_own = time.perf_counter(), time.thread_time()
        plan = library.plans(f'h=4 sq=64 d=32 mod="{formula}"', engine)["forward"]
        plan.bind(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr()).run()
        first, first_own = time.perf_counter() - start, time.thread_time() - start_own
        later = []
        for _ in range(20):
            start = time.perf_counter()
            plan.run()
            later.append(time.perf_counter() - start)
        extra.append((first - statistics.median(later)) * 1e3)
        own.append(first_own * 1e3)
    verdict = "pass" if max(extra) < FIRST_CALL_BAR_MS else "the median passes, **not all**" if statistics.median(extra) < FIRST_CALL_BAR_MS else "**fail**"
    return (f"From the problem line to the end of the first run, less a later run, of {len(extra)} formulas: "
            f"median {statistics.median(extra):.3f} ms, most {max(extra):.3f} ms; bar {FIRST_CALL_BAR_MS} ms: {verdict}. "
            f"Processor time of the caller, later run included: most {max(own):.3f} ms.")
