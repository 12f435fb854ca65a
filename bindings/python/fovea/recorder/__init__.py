"""cuDNN-style callbacks as formulas.

A callback `(graph, score, tensors)`, as Transformer Engine and cudnn-frontend take it, is run once with a graph
object that records its operations. The result is a formula text and the tensors that it reads; no cuDNN is
needed, and no reference to the callback is kept.

    recorded = record(softcap.forward, softcap.backward, tensors={"softcap": cap})
    recorded.mod, recorded.bprop, recorded.captures
"""

from .capture import Capture
from .graph import Graph
from .record import Recorded, is_callback, record
from .tensor import Tensor, data_type

__all__ = ["Capture", "Graph", "Recorded", "Tensor", "data_type", "is_callback", "record"]
