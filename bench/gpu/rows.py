"""The rows of bench/gpu/<tier>_rows.txt: their goals, and their formulas once more as functions of torch, for
fovea.torch and for torch's own flex_attention alike."""

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass
class Goal:
    peer_ms: float | None = None
    bar: float | None = None


@dataclass
class Row:
    name: str
    peers: list
    forward: Goal
    backward: Goal
    words: dict  # b, h, sq, d, dtype ... of the problem line

    def size(self, key, otherwise=None):
        return int(self.words.get(key, otherwise))

    @property
    def starts(self):
        """Where packed sequences begin, and where the last one ends; nothing if they are not packed."""
        return [int(start) for start in self.words.get("cu_q", "").split(",") if start]

    @property
    def dtype(self):
        return {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[self.words["dtype"]]

    @property
    def has_backward(self):
        return self.words.get("direction", "both") == "both"


def _goal(text):
    numbers = [None if word == "-" else float(word) for word in text.split()]
    return Goal(*numbers)


def read_rows(tier):
    rows = []
    for text in Path(__file__).with_name(f"{tier}_rows.txt").read_text().splitlines():
        if not text or text.startswith("#"):
            continue
        name, peer, forward, backward, line = (field.strip() for field in text.split("|", 4))
        words = dict(word.split("=", 1) for word in shlex.split(line))
        rows.append(Row(name, peer.split(), _goal(forward), _goal(backward), words))
    return rows


@dataclass
class Formula:
    score_mod: object = None
    mask_mod: object = None
    learned: tuple = ()  # captured tensors that want gradients
    mask_batch: int | None = None  # of torch's block mask: 1 for all unless it depends on b


def causal(b, h, q, k):
    return q >= k


def softcap(s, b, h, q, k):
    return 20.0 * torch.tanh(s / 20.0)


def six_sigmoids(s, b, h, q, k):
    for _ in range(6):
        s = torch.sigmoid(s)
    return s


def neighbourhood(b, h, q, k):
    return (torch.abs(q // 64 - k // 64) <= 6) & (torch.abs(q % 64 - k % 64) <= 6)


def alibi_causal(row, device):
    heads = row.size("h")
    return Formula(lambda s, b, h, q, k: s + torch.exp2((h + 1) * (-8.0 / heads)) * (k - q), causal)


def documents_512(row, device):
    doc = (torch.arange(row.size("sq"), device=device) // 512).to(torch.int32)
    return Formula(mask_mod=lambda b, h, q, k: doc[q] == doc[k])


def documents_random(row, device):
    """Eight documents in each sequence, borders drawn uniformly: as docs(8) of a problem line."""
    generator = torch.Generator().manual_seed(5)
    batch, length = row.size("b"), row.size("sq")
    borders = torch.randint(0, length, (batch, 7, 1), generator=generator)
    doc = (torch.arange(length) >= borders).sum(1, dtype=torch.int32).to(device)
    return Formula(mask_mod=lambda b, h, q, k: doc[b, q] == doc[b, k], mask_batch=batch)


def bias(row, device):
    length = row.size("sq")
    table = torch.randn(row.size("h"), length, length, device=device, dtype=row.dtype, requires_grad=True)
    return Formula(lambda s, b, h, q, k: s + table[h, q, k], learned=(table,))


def alibi_learned(row, device):
    slopes = torch.linspace(0.004, 0.5, row.size("h"), device=device).requires_grad_()
    return Formula(lambda s, b, h, q, k: s + slopes[h] * (k - q), causal, (slopes,))


def t5_table(row, device):
    table = torch.randn(row.size("h"), 32, device=device, requires_grad=True)

    def mod(s, b, h, q, k):
        n = torch.abs(k - q)
        far = 8 + (torch.log(torch.clamp(n, min=1) / 8.0) / math.log(16.0) * 8.0).to(torch.int32)
        near = torch.where(n < 8, n, torch.clamp(far, max=15))
        return s + table[h, near + torch.where(k > q, 16, 0)]

    return Formula(mod, learned=(table,))


# By the name of a row: a formula, or a function of the row and the device that makes it.
FORMULAS = {
    "softcap": Formula(softcap),
    "softcap_causal": Formula(softcap, causal),
    "six_sigmoids": Formula(six_sigmoids),
    "sliding_1024": Formula(mask_mod=lambda b, h, q, k: (q >= k) & (q - k < 1024)),
    "prefix_512": Formula(mask_mod=lambda b, h, q, k: (k < 512) | (q >= k)),
    "neighbourhood": Formula(mask_mod=neighbourhood),
    **{make.__name__: make for make in (alibi_causal, documents_512, documents_random, bias, alibi_learned, t5_table)},
}


def formula_of(row, device):
    """Rows of other names have a causal mask or nothing."""
    found = FORMULAS.get(row.name) or Formula(mask_mod=causal if row.words.get("mask") == "causal" else None)
    return found if isinstance(found, Formula) else found(row, device)
