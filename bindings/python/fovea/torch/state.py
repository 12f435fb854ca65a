"""The part of torch's state that decides how a call runs: modes, transforms, autocast, the stream and whether it is captured.
This file uses non-public names of torch (so do dynamo.py, context_parallel.py and block_tables.py): every call asks these
questions, and torch has no public functions for them, or none that answer in less than a microsecond."""

import torch
import torch.autograd.forward_ad as forward_ad
from torch.utils._device import DeviceContext

is_dynamo_compiling = torch.compiler.is_dynamo_compiling
dispatch_modes = torch._C._len_torch_dispatch_stack
autocast_anywhere = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
_function_modes, _function_mode = torch._C._len_torch_function_stack, torch._C._get_function_stack_at
_transform = torch._C._functorch.peek_interpreter_stack
_is_tracing, _threads = torch.jit.is_tracing, torch.get_num_threads


def is_plain() -> bool:
    """Does nothing but its arguments decide what a call does? Asked if nothing is being compiled."""
    modes = _function_modes()
    return not (
        dispatch_modes()
        or (modes and not (modes == 1 and is_default_device(_function_mode(0))))
        or _transform() is not None
        or _is_tracing()
        or autocast_anywhere()
        or is_forward_mode()
    )


def is_default_device(mode) -> bool:
    """torch.set_default_device and `with torch.device(...)` concern tensors that are made without a device: none here."""
    return type(mode) is DeviceContext


def is_watched() -> bool:
    """Is there a dispatch mode or torch.jit.trace, which see operators of torch.library only?"""
    return bool(dispatch_modes() or _is_tracing())


def is_forward_mode() -> bool:
    return forward_ad._current_level >= 0


def transforms() -> int:
    """How many of torch.func's transforms are under way."""
    top = _transform()
    return 0 if top is None else top.level()


def place(q):
    """(stream, threads, capturing) of a call on q's device. While a CUDA graph is captured, plans are made only from what
    is built already: the library refuses the rest before anything is enqueued."""
    if q.is_cuda:
        return torch._C._cuda_getCurrentRawStream(q.device.index), 0, torch.cuda.is_current_stream_capturing()
    return 0, _threads(), False
