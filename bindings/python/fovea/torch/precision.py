"""torch.amp.autocast as scaled_dot_product_attention obeys it: q, k, v become the type it asks for."""
import torch


def autocast(*tensors):
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors)
