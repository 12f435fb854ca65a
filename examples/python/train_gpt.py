#!/usr/bin/env python3
"""Trains a small GPT on the CPU, three times from the same seed, with the same attention written three ways:

  flex    fovea.torch.flex_attention with a Python modifier: a learned relative bias and a soft cap
  te      fovea.torch.DotProductAttention with a callback that builds a graph, as Transformer Engine takes it
  torch   PyTorch's own operations, with every score and the bias in memory

and shows that the losses fall, and that they are the same.   ./dev python examples/python/train_gpt.py
"""

import argparse
import dataclasses
import time

import torch
import torch.nn.functional as F

from fovea.torch import DotProductAttention, create_block_mask, flex_attention

TEXT = "".join(
    f"{a} {verb} {b}; {b} {verb} {a}.\n"
    for a in ("ada", "bob", "eve", "kim")
    for b in ("the cat", "a bird", "the sea")
    for verb in ("sees", "likes", "hears", "draws")
)


@dataclasses.dataclass
class Config:
    layers: int = 2
    heads: int = 4
    width: int = 64
    length: int = 48
    batch: int = 8
    steps: int = 40
    cap: float = 10.0
    rate: float = 3e-3
    seed: int = 1


class FlexAttention(torch.nn.Module):
    """softcap(score) + bias[h, q - k], causal: the modifier is an ordinary method that reads a parameter."""

    def __init__(self, config):
        super().__init__()
        self.cap, self.length = config.cap, config.length
        self.bias = torch.nn.Parameter(torch.zeros(config.heads, config.length))
        self.mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, config.length, config.length)

    def modifier(self, score, b, h, q_idx, kv_idx):
        return self.cap * torch.tanh(score / self.cap) + self.bias[h, (q_idx - kv_idx).clamp(min=0)]

    def forward(self, q, k, v):
        return flex_attention(q, k, v, score_mod=self.modifier, block_mask=self.mask)


class SoftcapAndBias:
    """A callback whose forward keeps what its backward needs. Both run on a graph, not on tensors."""

    def forward(self, graph, score, tensors):
        self.tanh = graph.tanh(graph.div(score, tensors["cap"]))
        return graph.add(graph.mul(self.tanh, tensors["cap"]), tensors["bias"])

    def backward(self, graph, grad, tensors):
        slope = graph.sub(tensors["one"], graph.mul(self.tanh, self.tanh))
        return graph.mul(grad, slope)


class TransformerEngineAttention(FlexAttention):
    def __init__(self, config):
        super().__init__(config)
        self.core = DotProductAttention(
            config.heads, config.width // config.heads, qkv_format="bshd", attn_mask_type="causal"
        )
        self.modify = SoftcapAndBias()

    def forward(self, q, k, v):
        one = torch.ones(1, 1, 1, 1)
        tensors = {"cap": one * self.cap, "bias": spread(self.bias)}
        out = self.core(
            *(x.transpose(1, 2) for x in (q, k, v)),
            score_mod=self.modify.forward,
            score_mod_tensors=tensors,
            score_mod_bprop=self.modify.backward,
            score_mod_bprop_tensors={"one": one},
        )
        return out.unflatten(-1, (q.shape[1], -1)).transpose(1, 2)


class TorchAttention(FlexAttention):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = self.cap * torch.tanh(scores / self.cap) + spread(self.bias)
        hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
        return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def spread(bias):
    """[heads, distance] as [1, heads, queries, keys]."""
    at = torch.arange(bias.shape[1])
    return bias[:, (at[:, None] - at[None]).clamp(min=0)][None]


class Block(torch.nn.Module):
    def __init__(self, config, attention):
        super().__init__()
        self.heads, self.attention = config.heads, attention(config)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(config.width) for _ in range(2))
        self.qkv = torch.nn.Linear(config.width, 3 * config.width)
        self.out = torch.nn.Linear(config.width, config.width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(config.width, 4 * config.width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * config.width, config.width),
        )

    def forward(self, x):
        q, k, v = (
            self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )  # views: no copy
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class GPT(torch.nn.Module):
    def __init__(self, config, attention, symbols):
        super().__init__()
        self.embed = torch.nn.Embedding(symbols, config.width)
        self.blocks = torch.nn.Sequential(*(Block(config, attention) for _ in range(config.layers)))
        self.norm, self.head = torch.nn.LayerNorm(config.width), torch.nn.Linear(config.width, symbols)

    def forward(self, tokens):  # positions are known by the bias alone
        return self.head(self.norm(self.blocks(self.embed(tokens))))


KINDS = {"flex": FlexAttention, "te": TransformerEngineAttention, "torch": TorchAttention}


def train(kind: str, config: Config) -> list:
    """The loss of every step."""
    torch.manual_seed(config.seed)
    letters = sorted(set(TEXT))
    data = torch.tensor([letters.index(letter) for letter in TEXT])
    model = GPT(config, KINDS[kind], len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.rate)
    losses = []
    for _ in range(config.steps):
        starts = torch.randint(len(data) - config.length - 1, (config.batch,))
        tokens = torch.stack([data[i : i + config.length + 1] for i in starts.tolist()])
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    bias = model.blocks[0].attention.bias
    assert bias.grad is not None and bias.abs().sum() > 0, "the bias learned nothing"
    return losses


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=Config.steps)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    config = Config(steps=arguments.steps)
    runs = {}
    for kind in arguments.kinds:
        start = time.perf_counter()
        runs[kind] = train(kind, config)
        print(
            f"{kind:6} loss {runs[kind][0]:.4f} -> {runs[kind][-1]:.4f} in {config.steps} steps, "
            f"{time.perf_counter() - start:.1f} s"
        )
    if "torch" in runs:
        for kind, losses in runs.items():
            apart = max(abs(a - b) for a, b in zip(losses, runs["torch"]))
            print(f"{kind:6} largest difference to torch's own attention: {apart:.2e}")


if __name__ == "__main__":
    main()
