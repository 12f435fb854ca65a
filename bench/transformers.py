#!/usr/bin/env python3
"""Models of Hugging Face transformers with attn_implementation "fovea", "sdpa" and "eager": a prefill, decoding with
dynamic and static caches, and a training step. Small models with random weights, on the CPU.

Every row runs the implementations in turn, round after round, on the same tokens, on one thread, and takes the median of
the processor time of each: other work on the machine then counts little, and affects all of them alike. The bar: no row
slower than sdpa.

  ./dev python bench/transformers.py                    prints the table and writes docs/results/transformers_<machine>.md
  ./dev python bench/transformers.py --only decode --rounds 3 --no-record
"""

import argparse
import datetime
import os
import re
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [str(ROOT / "tools")] + [x for x in sys.path if Path(x or ".").resolve() != ROOT / "bench"]  # not this file
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import torch
import transformers

import fovea.transformers  # noqa: F401  registers the name

BAR = 1.05  # of sdpa's median: rounds of one row differ by that much on a quiet machine
SIZES = {"vocab_size": 1024, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
OPTIONS = {**SIZES, "num_key_value_heads": 2, "head_dim": 64, "eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1}
MODELS = {
    "Llama": ("Llama", {}),
    "Mistral, window 128": ("Mistral", {"sliding_window": 128}),
    "Gemma 2, window 128": ("Gemma2", {"sliding_window": 128, "query_pre_attn_scalar": 64}),
    "BLOOM": ("Bloom", {"head_dim": None}),
    "Falcon": ("Falcon", {"head_dim": None}),
}
WITHOUT_SDPA = ("Gemma2", "Bloom")
PROMPT, NEW = 512, 16


def model_of(name, attn_implementation):
    """None if the implementation cannot run the model: sdpa has no soft cap, BLOOM no sdpa."""
    family, options = MODELS[name]
    if family in WITHOUT_SDPA and attn_implementation == "sdpa":
        return None
    torch.manual_seed(0)
    options = {key: value for key, value in {**OPTIONS, **options}.items() if value is not None or key == "eos_token_id"}
    config = getattr(transformers, family + "Config")(**options)
    model_class = getattr(transformers, family + "ForCausalLM")
    return model_class._from_config(config, attn_implementation=attn_implementation).eval()


def prefill(model, ids, mask):
    with torch.no_grad():
        model(input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=1)


def training(model, ids, mask):
    labels = ids if mask is None else ids.masked_fill(mask == 0, -100)
    model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss.backward()
    model.zero_grad()


def decode(model, ids, mask, cache="dynamic"):
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids) if mask is None else mask,
        do_sample=False,
        max_new_tokens=NEW,
        cache_implementation=cache,
        disable_compile=True,
    )


def static_decode(model, ids, mask):
    decode(model, ids, mask, "static")


WORK = {"prefill": prefill, "training": training, "decode": decode, "decode, static cache": static_decode}


def rows():
    for name in MODELS:
        for work in WORK:
            for batch, padded in ((1, False), (2, True)):
                yield f"{name}, {work}, batch {batch}{', left padding' if padded else ''}", name, work, batch, padded


def measure(name, work, batch, padded, rounds):
    """{implementation: seconds, the median of the rounds, or None}."""
    ids = torch.randint(2, SIZES["vocab_size"], (batch, PROMPT), generator=torch.Generator().manual_seed(1))
    mask = None
    if padded:
        mask = torch.ones_like(ids)
        mask[0, : PROMPT // 4] = 0
    models = {x: model_of(name, x) for x in ("fovea", "sdpa", "eager")}
    times = {x: [] for x, model in models.items() if model is not None}
    for i in range(rounds + 1):  # the first is warm-up
        for x, seconds in times.items():
            begin = time.process_time()
            WORK[work](models[x], ids, mask)
            if i:
                seconds.append(time.process_time() - begin)
    return {x: statistics.median(times[x]) if x in times else None for x in models}


def line(label, times):
    shown = [label] + ["–" if t is None else f"{1e3 * t:.0f}" for t in times.values()]
    ours = times["fovea"]
    shown += ["–" if times[x] is None else f"{times[x] / ours:.2f}" for x in ("sdpa", "eager")]
    return "| " + " | ".join(shown) + " |"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose name has this regular expression")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-record", action="store_true", help="print, write nothing")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    lines = ["| row | fovea ms | sdpa ms | eager ms | sdpa / fovea | eager / fovea |", "|---|---:|---:|---:|---:|---:|"]
    print("\n".join(lines), flush=True)
    missed = []
    for label, *row in rows():
        if re.search(arguments.only, label):
            times = measure(*row, arguments.rounds)
            lines.append(line(label, times))
            print(lines[-1], flush=True)
            if times["sdpa"] is not None and times["fovea"] > BAR * times["sdpa"]:
                missed.append(label)
    verdict = "No row is slower than sdpa." if not missed else "Slower than sdpa: " + "; ".join(missed) + "."
    print(verdict)
    if not arguments.no_record:
        record(arguments, load, lines, verdict)


def record(arguments, load, lines, verdict):
    from bench_report import commit, processor
    from bench_report import record as write

    text = f"""# Hugging Face transformers with attn_implementation="fovea"

{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d, %H:%M}, commit {commit()}, {processor()}, {os.cpu_count()} cores, load {load:.1f} before,
one thread, f32, transformers {transformers.__version__}, torch {torch.__version__}. Command: `./dev python bench/transformers.py`.
The processor's time of whole models (4 layers, hidden 256, 4 heads of 64 with 2 of keys, {PROMPT} tokens, {NEW} generated):
medians of {arguments.rounds} rounds, in which the implementations take turns, since others may work on the machine.
A row counts as slower beyond {100 * (BAR - 1):.0f} %.

"""
    write("transformers", text + "\n".join(lines) + f"\n\n{verdict}\n")


if __name__ == "__main__":
    main()
