"""The twenty modifiers and masks of docs/gallery.md: their formulas, and the same as Python functions."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str  # of its picture, too
    title: str
    text: str  # what it is for, and who uses it
    mod: str = ""
    mask: str = ""
    tensors: tuple = ()  # (name, "f32[H]", a function of the Sizes that makes it)
    score_body: str = ""  # of a Python function score_mod: statements, then what it returns; `xp` is torch or jax.numpy
    mask_body: str = ""  # of mask_mod
    length: int = 1024  # of queries and keys in its picture

    def source(self, framework):
        """Its Python functions for "torch" or "jax"."""
        score = function("score_mod(score, b, h, q, k)", self.score_body)
        mask = function("mask_mod(b, h, q, k)", self.mask_body)
        text = "\n\n".join(part for part in (score, mask) if part)
        if framework == "torch":
            return text.replace("xp.", "torch.")
        return text.replace(".to(xp.", ".astype(xp.").replace("xp.", "jnp.")


def function(head, body):
    if not body:
        return ""
    *statements, value = body.split("\n")
    return "\n    ".join([f"def {head}:", *statements, f"return {value}"])


@dataclasses.dataclass(frozen=True)
class Sizes:
    s: int  # queries, and keys
    b: int = 1
    h: int = 4

    def random(self):
        return np.random.default_rng(7)


def slopes(z):
    return 2.0 ** (-8.0 * np.arange(1, z.h + 1) / z.h)


def documents(z):
    """Sorted ids: lengths differ from sequence to sequence."""
    starts = z.random().integers(0, z.s, (z.b, 5, 1))
    return (np.arange(z.s) >= starts).sum(1)


def spans(z):
    """Text is -1; images are runs of equal numbers."""
    ids = np.full((z.b, z.s), -1)
    for first, number in ((z.s // 8, 0), (z.s // 2, 1)):
        ids[:, first : first + z.s // 4] = number
    return ids


def random_blocks(z):
    """Which blocks of 64 x 64 every head looks at beside its window."""
    return z.random().random((z.h, 16, 16)) < 0.15


def tree(z):
    """Which draft token is an ancestor of which: the parent of token i is (i - 1) // 2."""
    kept = np.eye(z.s, dtype=bool)
    for i in range(1, z.s):
        kept[i] |= kept[(i - 1) // 2]
    return kept


def forgotten(z):
    """Sums of the logarithms of forget gates."""
    return np.cumsum(np.log(z.random().uniform(0.98, 1, (z.b, z.h, z.s))), axis=-1)


def normal(*extents):
    return lambda z: z.random().standard_normal([getattr(z, x) if isinstance(x, str) else x for x in extents])


ENTRIES = (
    Entry(
        "causal",
        "Causal",
        "A token sees itself and what came before: every decoder since GPT.",
        mask="q >= k",
        mask_body="q >= k",
    ),
    Entry(
        "sliding",
        "Sliding window",
        "The last 256 tokens (Longformer; Mistral, Gemma 2 and 3 and GPT-OSS in some of their layers).",
        mask="q >= k && q - k < 256",
        mask_body="(q >= k) & (q - k < 256)",
    ),
    Entry(
        "dilated",
        "Dilated window",
        "Every fourth token of a longer window (Longformer's upper layers).",
        mask="q >= k && q - k < 512 && (q - k) % 4 == 0",
        mask_body="(q >= k) & (q - k < 512) & ((q - k) % 4 == 0)",
    ),
    Entry(
        "streaming",
        "First tokens and a window",
        "A window forgets the first tokens, on which softmax leans; this one keeps four (StreamingLLM).",
        mask="q >= k && (k < 4 || q - k < 256)",
        mask_body="(q >= k) & ((k < 4) | (q - k < 256))",
    ),
    Entry(
        "strided",
        "Strided",
        "A window, and the last 8 columns of every 128 (Sparse Transformer's fixed pattern).",
        mask="q >= k && (q - k < 128 || k % 128 >= 120)",
        mask_body="(q >= k) & ((q - k < 128) | (k % 128 >= 120))",
    ),
    Entry(
        "chunked",
        "Chunks",
        "Causal inside chunks of 256 (Llama 4's local layers).",
        mask="q >= k && q // 256 == k // 256",
        mask_body="(q >= k) & (q // 256 == k // 256)",
    ),
    Entry(
        "frames",
        "Causal frames",
        "Frames of 192 tokens see themselves and the frames before (video models; block diffusion).",
        mask="q // 192 >= k // 192",
        mask_body="q // 192 >= k // 192",
    ),
    Entry(
        "prefix",
        "Prefix",
        "The first 300 tokens see each other, the rest is causal (prefix language models, PaliGemma).",
        mask="k < 300 || q >= k",
        mask_body="(k < 300) | (q >= k)",
    ),
    Entry(
        "documents",
        "Documents",
        "Packed sequences that do not see one another, each of them causal (Llama 3's training).",
        mask="q >= k && doc[b, q] == doc[b, k]",
        tensors=(("doc", "i32[B,Sq]", documents),),
        mask_body="(q >= k) & (doc[b, q] == doc[b, k])",
    ),
    Entry(
        "images",
        "Images in text",
        "Text is causal, tokens of one image see each other (Gemma 3, Transfusion).",
        mask="q >= k || span[b, q] == span[b, k] && span[b, q] >= 0",
        tensors=(("span", "i32[B,Sq]", spans),),
        mask_body="(q >= k) | ((span[b, q] == span[b, k]) & (span[b, q] >= 0))",
    ),
    Entry(
        "bigbird",
        "Window, global tokens, random blocks",
        "A window of blocks, a first block that sees and is seen, and random blocks for each head (BigBird).",
        mask="abs(q // 64 - k // 64) <= 1 || q < 64 || k < 64 || far[h, q // 64, k // 64]",
        tensors=(("far", "bool[H,16,16]", random_blocks),),
        mask_body=(
            "near = (abs(q // 64 - k // 64) <= 1) | (q < 64) | (k < 64)\n"
            "near | far[h, q // 64, k // 64]"
        ),
    ),
    Entry(
        "neighbourhood",
        "Neighbourhood in an image",
        "Positions are pixels of an image 32 wide; a pixel sees those up to four steps away (neighbourhood attention).",
        mask="abs(q // 32 - k // 32) <= 4 && abs(q % 32 - k % 32) <= 4",
        mask_body="(abs(q // 32 - k // 32) <= 4) & (abs(q % 32 - k % 32) <= 4)",
    ),
    Entry(
        "tree",
        "Tree of drafts",
        "Draft tokens see their ancestors in a tree of guesses (SpecInfer, Medusa, EAGLE).",
        mask="above[q, k]",
        tensors=(("above", "bool[Sq,Skv]", tree),),
        mask_body="above[q, k]",
        length=64,
    ),
    Entry(
        "alibi",
        "ALiBi",
        "A penalty that grows with the distance, with a slope for each head (BLOOM, MPT).",
        mod="score + slopes[h] * (k - q)",
        mask="q >= k",
        tensors=(("slopes", "f32[H]", slopes),),
        score_body="score + slopes[h] * (k - q)",
        mask_body="q >= k",
    ),
    Entry(
        "softcap",
        "Soft cap",
        "Scores stay within +-50, smoothly (Gemma 2; Grok with 30).",
        mod="50 * tanh(score / 50)",
        mask="q >= k",
        score_body="50 * xp.tanh(score / 50)",
        mask_body="q >= k",
    ),
    Entry(
        "t5",
        "T5's buckets",
        "A learned bias by distance: 16 buckets of one distance each, 16 that grow wider up to 128 (T5's decoder).",
        mod=(
            "let n = max(q - k, 0); let far = 16 + i32(log(max(f32(n), 1) / 16) * 7.694374); "
            "score + table[h, n < 16 ? n : min(far, 31)]"
        ),
        mask="q >= k",
        tensors=(("table", "f32[H,32]", normal("h", 32)),),
        score_body=(
            "n = xp.where(q > k, q - k, 0)\n"
            "far = 16 + (xp.log(xp.where(n > 1, n, 1) / 16) * 7.694374).to(xp.int32)\n"
            "score + table[h, xp.where(n < 16, n, xp.where(far < 31, far, 31))]"
        ),
        mask_body="q >= k",
        length=256,
    ),
    Entry(
        "kerple",
        "Logarithmic distance",
        "ALiBi's penalty with a logarithm, both of its numbers learned (KERPLE).",
        mod="score - amount[h] * log1p(rate[h] * abs(q - k))",
        mask="q >= k",
        tensors=(("amount", "f32[H]", slopes), ("rate", "f32[H]", slopes)),
        score_body="score - amount[h] * xp.log1p(rate[h] * abs(q - k))",
        mask_body="q >= k",
    ),
    Entry(
        "forgetting",
        "Forget gates",
        "Sums of the logarithms of gates that depend on the data: what is old fades (Forgetting Transformer).",
        mod="score + gates[b, h, q] - gates[b, h, k]",
        mask="q >= k",
        tensors=(("gates", "f32[B,H,Sq]", forgotten),),
        score_body="score + gates[b, h, q] - gates[b, h, k]",
        mask_body="q >= k",
    ),
    Entry(
        "swin",
        "Relative positions in an image",
        "A learned bias by the offset of two pixels of a window 8 wide (Swin; BEiT alike).",
        mod="score + table[h, (q // 8 - k // 8 + 7) * 15 + q % 8 - k % 8 + 7]",
        tensors=(("table", "f32[H,225]", normal("h", 225)),),
        score_body="score + table[h, (q // 8 - k // 8 + 7) * 15 + q % 8 - k % 8 + 7]",
        length=64,
    ),
    Entry(
        "pairs",
        "Bias of pairs",
        "A bias for each pair of tokens, made by another part of the network (AlphaFold).",
        mod="score + bias[b, h, q, k]",
        tensors=(("bias", "f32[B,H,Sq,Skv]", normal("b", "h", "s", "s")),),
        score_body="score + bias[b, h, q, k]",
        length=64,
    ),
)
