"""Context parallelism in four processes on gloo, against the single-process call. Processes are started once."""

import multiprocessing

import pytest
from parallel_cases import ON_GPU, PATIENCE

STRATEGIES = ("ring", "all_gather", "all_to_all", "a2a+p2p")
CASES = (
    "none",
    "causal",
    "bottom_right",
    "sliding",
    "documents",
    "softcap_alibi",
    "bias",
    "dropout",
    "sinks",
    "lengths",
)
PACKED_CASES = ("none", "causal", "softcap_alibi", "dropout")


class Workers:
    def __init__(self, size, store):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch.distributed", "fovea.torch", "parallel_dtensors"])
        import parallel_cases

        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=parallel_cases.serve, args=(rank, size, store, theirs), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, name, module="parallel_cases", **arguments):
        """The name of a function; its failures, rank by rank."""
        for pipe in self.pipes:
            pipe.send(((module, name), arguments))
        return [self.answer(pipe) for pipe in self.pipes]

    def answer(self, pipe):
        assert pipe.poll(5 * PATIENCE), "a process hangs"
        try:
            return pipe.recv()
        except EOFError:
            return "died"

    def check(self, name, **arguments):
        failures = [f"rank {i}:\n{text}" for i, text in enumerate(self.run(name, **arguments)) if text]
        assert not failures, "\n".join(failures)

    def stop(self):
        for pipe, process in zip(self.pipes, self.processes):
            if process.is_alive():
                try:
                    pipe.send(None)
                except OSError:
                    pass
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    four = Workers(4, str(tmp_path_factory.mktemp("store") / "file"))
    yield four
    four.stop()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_as_one_process(workers, strategy, case):
    for ranks in (2, 4):
        order = "zigzag" if ranks == 4 else "contiguous"
        more = {"head_ranks": 2} if strategy == "a2a+p2p" else {}
        if strategy == "all_to_all" and ranks == 4:  # all ranks need heads of keys
            more["key_heads"] = 4
        workers.check("run_case", ranks=ranks, strategy=strategy, order=order, case=case, **more)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("order", ("contiguous", "zigzag"))
def test_packed_sequences(workers, strategy, order):
    ranks = 2 if strategy == "all_to_all" else 4
    more = {"head_ranks": 2} if strategy == "a2a+p2p" else {}
    for case in PACKED_CASES:
        workers.check("run_case", ranks=ranks, strategy=strategy, order=order, case=case, layout="thd", **more)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_layouts_and_uneven_lengths(workers, strategy):
    ranks = 2 if strategy == "all_to_all" else 4
    more = {"head_ranks": 2} if strategy == "a2a+p2p" else {}
    for layout, length, order in (("bshd", 29, "zigzag"), ("sbhd", 27, "contiguous"), ("bhsd", 5, "zigzag")):
        workers.check(
            "run_case", ranks=ranks, strategy=strategy, order=order, case="causal", layout=layout, length=length, **more
        )


@pytest.mark.parametrize("case", CASES if ON_GPU else (*CASES, "alibi"))
def test_the_same_bits(workers, case):
    """Also if pieces begin inside the engine's blocks and tiles, as with 200 rows."""
    orders = ("contiguous", "zigzag") if case in CASES[1::2] else ("zigzag", "contiguous")
    for strategy, ranks, order in (("all_to_all", 2, orders[0]), ("all_gather", 2, orders[0]), ("all_gather", 4, orders[1])):
        workers.check("run_case", ranks=ranks, strategy=strategy, order=order, case=case, length=200, same_bits=True)


@pytest.mark.parametrize("case", PACKED_CASES[::2] if ON_GPU else PACKED_CASES)
def test_the_same_bits_of_packed_sequences(workers, case):
    """Pieces of few rows among them, which engines compute otherwise."""
    for strategy, ranks in (("all_to_all", 2), ("all_gather", 2), ("all_gather", 4)):
        order = "zigzag" if ranks == 4 else "contiguous"
        workers.check("run_case", ranks=ranks, strategy=strategy, order=order, case=case, layout="thd", same_bits=True)


@pytest.mark.skipif(ON_GPU, reason="that is how engine cpu cuts keys")
def test_the_same_bits_of_few_rows_and_many_keys(workers):
    options = {"ranks": 2, "strategy": "all_gather", "same_bits": True}
    for case in ("none", "causal"):  # 50 rows of the second sequence are in the first half
        workers.check("run_case", order="contiguous", case=case, layout="thd", starts=[0, 2150, 4400], **options)
    workers.check("run_case", order="zigzag", case="softcap_alibi", layout="thd", starts=[0, 700, 701, 1000], **options)
    workers.check("run_case", order="contiguous", case="few_lengths", length=(150, 2300), **options)


def test_two_groups_as_transformer_engine_has_them(workers):
    workers.check("run_case", ranks=4, strategy="a2a+p2p", order="zigzag", case="causal", group="two")


@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
def test_half_types(workers, dtype):
    import torch

    for strategy in ("ring", "all_gather"):
        workers.check(
            "run_case", ranks=4, strategy=strategy, order="zigzag", case="causal", dtype=getattr(torch, dtype)
        )


@pytest.mark.parametrize("case", ("none", "causal", "sliding", "documents"))
@pytest.mark.parametrize("strategy", ("ring", "all_gather", "a2a+p2p"))
def test_bytes_are_those_of_the_plan(workers, strategy, case):
    order = "zigzag" if case == "causal" else "contiguous"
    more = {"head_ranks": 2} if strategy == "a2a+p2p" else {}
    workers.check("counted_bytes", strategy=strategy, order=order, case=case, **more)
    if strategy == "all_gather" and case == "causal":
        workers.check("counted_bytes", strategy=strategy, order=order, case=case, deterministic=True)


def test_a_sequence_is_put_together_again():
    import torch

    import fovea
    from fovea.torch import shard_sequence, unshard_sequence

    x = torch.arange(2 * 3 * 41 * 2).view(2, 3, 41, 2)
    packed = {"order": "zigzag", "dim": 0, "cu_seqlens": torch.tensor([0, 7, 7, 41])}
    for whole, how in ((x, {}), (x, {"order": "zigzag"}), (x.transpose(0, 2), packed)):
        parts = [shard_sequence(whole, 3, rank, **how) for rank in range(3)]
        assert torch.equal(unshard_sequence(parts, **how), whole)
    with pytest.raises(fovea.InvalidArgument, match="must be a list with the part of every rank"):
        unshard_sequence(x)


def test_explain_says_what_ranks_compute_and_send():
    import torch

    import fovea
    from fovea.torch import explain

    q, document = torch.empty(1, 4, 512, 16), torch.arange(512) // 128
    same = lambda b, h, i, j: document[i] == document[j]
    found = explain(q, q, q, mask_mod=same, ranks=4)
    ranks = found.to_dict()["ranks"]
    assert [rank["bytes"]["forward"] for rank in ranks] == [0] * 4
    assert [len(step["tiles"]) for rank in ranks for step in rank["steps"]] == [1, 0, 0, 0] * 4
    assert "ring over 4 ranks" in str(found) and str(found).count(" #...") == 4
    assert all(rank["bytes"]["forward"] > 0 for rank in explain(q, q, q, ranks=4).to_dict()["ranks"])
    with pytest.raises(fovea.InvalidArgument, match="did you mean 'ring'"):
        explain(q, q, q, ranks=4, strategy="rng")


@pytest.mark.parametrize("layout", ("bshd", "sbhd", "thd"))
@pytest.mark.parametrize("communication", ("p2p", "all_gather", "a2a", "a2a+p2p"))
def test_modules(workers, communication, layout):
    workers.check("modules", communication=communication, layout=layout)


def test_tensor_parallel_modules(workers):
    for sequence_parallel in (False, True):
        workers.check("tensor_parallel", sequence_parallel=sequence_parallel, layernorm=sequence_parallel)


@pytest.mark.parametrize("cut", [("batch", None), (None, "heads"), ("batch", "heads"), ("sequence", None)])
def test_dtensors(workers, cut):
    for layout in ("bhsd", "bshd"):
        workers.check("dtensors", module="parallel_dtensors", cut=cut, layout=layout)
    workers.check("dtensors", module="parallel_dtensors", cut=cut, layout="bhsd", flex=True)


def test_dtensors_that_are_refused(workers):
    workers.check("dtensors_refused", module="parallel_dtensors")


@pytest.mark.parametrize("strategy", STRATEGIES[:3])
def test_torchs_context_parallel(workers, strategy):
    workers.check("torchs_manager", module="parallel_dtensors", strategy=strategy)


def test_seeds_are_shared(workers):
    workers.check("seeds_are_shared")


def test_mistakes(workers):
    workers.check("mistakes")


def test_a_group_of_another_size(workers):
    workers.check("stay_away")


def test_a_rank_that_dies(workers):
    """The last test: three processes are left."""
    answers = workers.run("die", who=3)
    assert answers[3] == "died"
    assert answers[:3] == [None] * 3, answers


def test_messages_wait_for_the_stream_that_computes(monkeypatch):
    """On streams that only write down what is asked of them: there is no GPU here."""
    import contextlib

    import torch

    from fovea.torch import context_transport

    asked = []

    class Stream:
        def wait_stream(self, other):
            asked.append(("wait", other))

    class Sent:
        def record_stream(self, stream):
            asked.append(("kept for", stream))

    @contextlib.contextmanager
    def entered(stream):
        current.append(stream)
        yield
        current.pop()

    current, own = ["the caller's"], Stream()
    monkeypatch.setattr(context_transport, "stream_of", lambda ranks, like: own)
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[-1])
    monkeypatch.setattr(context_transport.Exchange, "post", lambda self, sends: asked.append(("post", current[-1])))
    context_transport.Exchange(None, {1: [Sent()]}, {}, torch.zeros(1))
    assert asked == [("wait", "the caller's"), ("kept for", own), ("post", own)]
