"""Processes: the workers of a DataLoader, forked after their parent has called, call too, forward and backward."""

import subprocess
import sys

import pytest
import torch

# In a process of its own, whose end the test can bring about: a child that hangs would hold up its parent for ever.
LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

from fovea.torch import attention, flex_attention

slopes = torch.linspace(0.1, 0.4, 4)


def results(number):
    q, k, v = torch.randn(3, 1, 4, 70, 32, generator=torch.Generator().manual_seed(number)).unbind()
    q.requires_grad_()
    o = flex_attention(q, k, v, lambda s, b, h, i, j: s + slopes[h] * (j - i))
    o = o + attention(q, k, v, score_mod="20 * tanh(score / 20)", is_causal=True)
    return torch.stack([o.detach(), *torch.autograd.grad(o.square().sum(), q)])


class Results(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, number):
        return results(number)


wanted = [results(number) for number in range(6)]
for _ in range(2):  # the second round's workers are forked after the first's have ended
    loader = DataLoader(Results(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=240)
    assert all(torch.equal(got, want) for got, want in zip(loader, wanted, strict=True)), "a worker's result differs"
assert torch.equal(results(0), wanted[0])
print("all the same")
"""


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="torch's own backward does not run in a forked process where CUDA is"
)
def test_workers_that_are_forked_call_on():
    done = subprocess.run([sys.executable, "-c", LOADER], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all the same\n"
