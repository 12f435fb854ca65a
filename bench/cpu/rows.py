"""What is compared: the rows of the table, each with the same attention as a problem line and in torch."""
import dataclasses
import math

HEADS, LENGTH = 8, 1024


@dataclasses.dataclass(frozen=True)
class Formula:
    """A modification in both languages. `mod` and `mask` work on torch's indices of any shape."""
    name: str
    words: str = ""                 # of the problem line
    mod: object = None              # (torch, captured) -> score_mod(score, b, h, q, k)
    mask: object = None             # (torch, captured) -> mask_mod(b, h, q, k)
    captured: object = None         # (torch, heads, length) -> {name: tensor}
    visible: object = None          # length -> scores that a head looks at; None: all


NONE = Formula("none")
CAUSAL = Formula("causal", "mask=causal", mask=lambda t, x: lambda b, h, q, k: q >= k,
                 visible=lambda n: n * (n + 1) // 2)
SOFTCAP = Formula("softcap(30)", "mod=softcap(30)", mod=lambda t, x: lambda s, b, h, q, k: 30 * t.tanh(s / 30))
ALIBI = Formula("alibi", "mod=alibi",
                mod=lambda t, x: lambda s, b, h, q, k: s + t.exp2(-8.0 * (h + 1) / x["heads"]) * (k - q))
BIAS = Formula("bias[h,q,k]", 'mod="score + bias[h,q,k]" tensor="bias:f32[H,Sq,Skv]"',
               mod=lambda t, x: lambda s, b, h, q, k: s + x["bias"][h, q, k],
               captured=lambda t, heads, n: {"bias": t.randn(heads, n, n)})
DOCUMENTS = Formula("documents of 128", 'mask="doc[q] == doc[k]" tensor="doc:i32[Sq]"',
                    mask=lambda t, x: lambda b, h, q, k: x["doc"][q] == x["doc"][k],
                    captured=lambda t, heads, n: {"doc": (t.arange(n) // 128).to(t.int32)},
                    visible=lambda n: (n // 128) * 128 ** 2 + (n % 128) ** 2)
WINDOW = Formula("causal window 256", "mask=sliding(256)",
                 mask=lambda t, x: lambda b, h, q, k: (q >= k) & (q - k < 256),
                 visible=lambda n: sum(min(i + 1, 256) for i in range(n)))


@dataclasses.dataclass(frozen=True)
class Row:
    formula: Formula
    direction: str                  # forward, backward
    dtype: str                      # f32, bf16, f16
    d: int
    peer: str                       # SDPA, flex, own (the same without the formula)
    bar: float = None               # of (peer's time / Fovea's); None: reported only
    heads: int = HEADS
    kv_heads: int = HEADS
    queries: int = LENGTH
    keys: int = LENGTH
    needs_bf16_dot: bool = False    # the bar holds if the processor has one

    @property
    def name(self):
        shape = ""
        if (self.heads, self.queries, self.keys) != (HEADS, LENGTH, LENGTH):
            shape = f" H{self.heads}" + (f"/{self.kv_heads}" if self.kv_heads != self.heads else "")
            shape += f" {self.queries}x{self.keys}"
        formula = "" if self.formula is NONE else f" {self.formula.name}"
        return f"{self.dtype}{formula} {self.direction}{shape} d={self.d} vs {self.peer}"

    @property
    def scores(self):
        """That are computed, of all heads: masked ones do not count."""
        if self.formula.visible and self.queries == self.keys:
            return self.heads * self.formula.visible(self.keys)
        return self.heads * self.queries * self.keys

    @property
    def flops(self):
        return 4 * self.scores * self.d * (2.5 if self.direction == "backward" else 1)

    @property
    def line(self):
        words = [f"h={self.heads}", f"hkv={self.kv_heads}", f"sq={self.queries}", f"skv={self.keys}", f"d={self.d}",
                 f"dtype={self.dtype}", self.formula.words, "direction=both" if self.direction == "backward" else ""]
        return " ".join(word for word in words if word)


def _pair(formula, direction, dtype, peer, bars, **options):
    return [Row(formula, direction, dtype, d, peer, bar, **options) for d, bar in zip((64, 128), bars)]


def table():
    """The rows with a bar, in the order of the table."""
    native = {"needs_bf16_dot": True}
    return [
        *_pair(NONE, "forward", "f32", "SDPA", (1.15, 1.05)),
        *_pair(CAUSAL, "forward", "f32", "SDPA", (1.45, 1.35)),
        *_pair(NONE, "backward", "f32", "SDPA", (1.15, 1.05)),
        *_pair(CAUSAL, "backward", "f32", "SDPA", (1.35, 1.30)),
        *_pair(SOFTCAP, "forward", "f32", "flex", (1.8, 1.6)),
        *_pair(ALIBI, "forward", "f32", "flex", (1.6, 1.45)),
        *_pair(BIAS, "forward", "f32", "flex", (1.6, 1.4)),
        *_pair(DOCUMENTS, "forward", "f32", "flex", (1.3, 1.3)),
        *_pair(WINDOW, "forward", "f32", "flex", (1.3, 1.3)),
        *_pair(NONE, "forward", "bf16", "SDPA", (1.7, 1.7), **native),
        *_pair(NONE, "forward", "bf16", "flex", (3.5, 3.5), **native),
        *_pair(NONE, "backward", "bf16", "SDPA", (1.15, 1.15), **native),
        *_pair(NONE, "forward", "f16", "SDPA", (1.4, 1.4)),
        *_pair(NONE, "backward", "f16", "SDPA", (8, 8)),
        *_pair(NONE, "forward", "f32", "SDPA", (1.0, 1.0), heads=32, kv_heads=8, queries=1, keys=8192),
        # At most 1.12 and 1.08 times as long as without: the ratio of the plain one's time to its own.
        *_pair(SOFTCAP, "backward", "f32", "own", (1 / 1.12, 1 / 1.08)),
        *_pair(NONE, "forward", "f32", "SDPA", (None, None), heads=1, kv_heads=1),
    ]


# With AVX2 on both sides, by formula, direction, type and peer: d = 64, 128.
AVX2_BARS = {
    ("none", "forward", "f32", "SDPA"): (1.25, 1.20), ("causal", "forward", "f32", "SDPA"): (1.55, 1.50),
    ("none", "backward", "f32", "SDPA"): (1.20, 1.15), ("causal", "backward", "f32", "SDPA"): (1.55, 1.50),
    ("none", "forward", "bf16", "SDPA"): (1.20, 1.20), ("none", "forward", "f16", "SDPA"): (1.20, 1.20),
    ("softcap(30)", "forward", "f32", "flex"): (2.2, 2.2), ("alibi", "forward", "f32", "flex"): (2.2, 2.2),
    ("bias[h,q,k]", "forward", "f32", "flex"): (2.2, 2.2),
}


def with_avx2_bar(row):
    bars = AVX2_BARS.get((row.formula.name, row.direction, row.dtype, row.peer))
    if bars is None or (row.heads, row.queries) != (HEADS, LENGTH):
        return row
    return dataclasses.replace(row, bar=bars[row.d == 128], needs_bf16_dot=False)


# Share of the measured peak that a plain f32 forward must reach, by d.
PEAK_BARS = {64: 0.75, 128: 0.80}

SWEEP = (512, 1024, 2048, 4096, 8192, 16384)


def scaled(row, heads, length):
    """The row at another size, for trying things out."""
    if row.queries == 1:
        return row
    few = 1 if row.heads == 1 else heads
    return dataclasses.replace(row, heads=few, kv_heads=few, queries=length, keys=length)


def scale_of(row):
    return 1 / math.sqrt(row.d)
