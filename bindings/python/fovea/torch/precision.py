"""torch.amp.autocast as scaled_dot_product_attention obeys it: q, k, v become the type it asks for."""

import torch


autocast_anywhere = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)  # cheaper than to ask for a device


def autocast(*tensors):
    if not torch.compiler.is_compiling() and not autocast_anywhere():
        return tensors
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors)
