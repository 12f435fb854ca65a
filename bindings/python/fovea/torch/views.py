"""Signatures of tensors: how they lie, by which a call is known again. Made at every call, by C++ where torch has DLPack's
table of C functions (2.13 has), else by asking each tensor."""

import torch

from .. import _core

PLAIN = (torch.Tensor, torch.nn.Parameter)


class AskingViewer:
    """fovea._core.Viewer for versions of torch without the table."""

    @staticmethod
    def signature(tensors, with_gradients):
        out = []
        for x in tensors:
            if type(x) not in PLAIN or x.layout != torch.strided or x.is_neg():
                return None
            out += (x.shape, x.stride(), x.dtype, x.device, with_gradients and x.requires_grad)
            out.append(next(i for i, other in enumerate(tensors) if other is x))
        return tuple(out)


def best_viewer():
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if table is None:
        return AskingViewer
    try:
        return _core.Viewer(table, PLAIN, torch.Tensor.is_neg)
    except _core.InvalidArgument:  # of a version of DLPack that is to come
        return AskingViewer


VIEWER = best_viewer()


def resolved(x):
    """The tensor with its own values in memory: x.conj().imag is the memory of x with another sign."""
    return x.resolve_neg() if x is not None and x.is_neg() else x
