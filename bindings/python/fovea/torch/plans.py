"""From a call and its tensors to plans of the library. Prepared plans are kept in the table of call_cache.py; the
library's own cache of plans stands behind it."""

import re

import torch

from .. import _core
from .._arrays import CODES, dense_strides
from .._core import InvalidArgument
from .._request import problem_line
from .arguments import check_ranks
from .call import dense_like, heads_of, part_dtype, rows_shape, sizes_of, strides_word
from .modifiers import DIRECT

_CODES = {dtype: CODES[name] for dtype, name in DIRECT.items()}
_LEAF_SIZES = {"b": ("b", "B"), "h": ("h", "H"), "q": ("sq", "Sq"), "k": ("skv", "Skv")}

_LENGTHS = (_LEAF_SIZES["k"], _LEAF_SIZES["q"])


class Prepared:
    """A plan of one direction, and what all its calls have in common."""

    __slots__ = (
        "plan",
        "caller",  # a fovea._core.Caller of the plan
        "roles",  # the pointers of a call by name, in the order in which runtime.py brings them
        "workspace",
        "captured",  # (name, type, extents, strides) each
        "gradients",  # for each of them the strides of its gradient, or None
        "scalars",
        "wanted",
        "o",  # shape and strides of the output
        "extents",  # shapes and strides of other outputs: {"rows": ..., "heads": ...}
        "inputs",  # (name, shape, strides) of the gradients of q, k and v
        "on_cpu",
        "plain",  # does a call bind only q, k, v, outputs and captured tensors?
        "by_value",  # does it bind offsets or a seed by value?
        "seed_at",  # is the seed of dropout read on the device?
        # Of a call that was looked up:
        "call",  # its first call, with the formulas
        "slots",  # the numbers of the captured tensors among those that were looked up
        "as_they_are",  # are they bound without a conversion?
        "direct",  # a fovea._core.DirectCall, or None if a call brings more than its tensors
    )


class Parts:
    """The parts of Formulas.text()."""

    def __init__(self, text):
        self.mod, self.mask, self.bprop, captured, scalars, _ = text.split("\n")
        pairs = [item.split(" ") for item in captured.split(";") if item]
        self.names = [name for name, _ in pairs]
        self.uses = [uses for _, uses in pairs]
        self.scalars = [tuple(item.split(":")) for item in scalars.split(";") if item]

    def with_extents(self, declared):
        """Texts with the extents of captured tensors in place of `#slot.dimension`."""
        extent = lambda found: str(declared[int(found[1])][2][int(found[2])])
        return [re.sub(r"#(\d+)\.(\d+)", extent, text) or None for text in (self.mod, self.mask, self.bprop)]

    def declared(self, captured, sizes):
        """[(name, dtype, extents)]. An extent that is indexed by a position and is as large as that size is declared by
        the size's name, so that another batch or length shares the plan; so is one as large as a length that is indexed by
        anything else (k + 1)."""
        out = []
        for name, uses, tensor in zip(self.names, self.uses, captured):
            if "?" in uses:
                uses = self.uses_in_text(name, len(uses))
            extents = []
            for extent, leaf in zip(tensor.shape, uses):
                words = [_LEAF_SIZES[leaf]] if leaf in _LEAF_SIZES else _LENGTHS if extent > 1 else ()
                equal = [word for size, word in words if getattr(sizes, size) == extent]
                extents.append(equal[0] if equal else int(extent))
            out.append((name, DIRECT[tensor.dtype], tuple(extents)))
        return out

    def uses_in_text(self, name, rank):
        found = ["-"] * rank
        for text in (self.mod, self.mask, self.bprop):
            for match in re.finditer(rf"\b{name}\s*\[([^\[\]]*)\]", text):
                items = [item.strip() for item in match[1].split(",")]
                if len(items) == rank:
                    found = [item if item in _LEAF_SIZES else old for item, old in zip(items, found)]
        return "".join(found)


def device_name(device) -> str:
    if device.type == "cpu":
        return "cpu"
    if device.type == "cuda":
        return f"cuda:{device.index if device.index is not None else torch.cuda.current_device()}"
    raise InvalidArgument(f"query: on {device}; Fovea runs on cpu and cuda")


def fields_of(call, q, k, v, sink, captured, capturing):
    """The words of the problem line that both directions share, and the sizes."""
    sizes = sizes_of(call, q, k, v)
    parts = Parts(call.formulas)
    packed = call.layout == "thd"
    declared = parts.declared(captured, sizes)
    mod, mask, bprop = parts.with_extents(declared if is_one_length(call) else [(None, None, x.shape) for x in captured])
    fields = {name: getattr(sizes, name) for name in ("b", "h", "hkv", "sq", "skv", "d", "dv")}
    fields.update(
        dtype=DIRECT[q.dtype],
        layout="thd" if packed else "bhsd",
        mod=mod,
        mask=mask,
        bprop=bprop,
        tensors=declared,
        tensor_strides=captured_strides(parts.names, captured),
        scalars=parts.scalars,
        sink=sink is not None,
        dropout=call.dropout,
        capture=capturing,
        q_strides=strides_word(q, call.layout),
        k_strides=strides_word(k, call.layout),
        v_strides=strides_word(v, call.layout),
        qlens=bound(call.q_lens),
        klens=bound(call.k_lens),
        q_offset=offset_word(call.q_offset, call.q_offsets),
        k_offset=offset_word(call.k_offset, call.k_offsets),
        b_offset=offset_word(call.b_offset, None),
        h_offset=offset_word(call.h_offset, None),
        h_global=call.h_global or None,
    )
    fields.update(dict.fromkeys(call.flags, True))
    if call.parts:
        fields["o_dtype"] = DIRECT[part_dtype(call, q)]
    if packed:
        fields.update(cu_q="bound", cu_k="bound", tq=sizes.t_q, tk=sizes.t_k)
    return fields, sizes, parts


def is_one_length(call) -> bool:
    """Do Sq and Skv in formulas equal the extents of the tensors? Not if sequences have lengths of their own."""
    return call.layout != "thd" and call.q_lens is None and call.k_lens is None


def captured_strides(names, captured):
    """The strides of captured tensors that are not dense: views are read in place."""
    words = []
    for name, x in zip(names, captured):
        pairs = zip(x.shape, x.stride(), dense_strides(x.shape))
        if any(extent > 1 and stride != dense for extent, stride, dense in pairs):
            words.append(f"{name}:{','.join(map(str, x.stride()))}")
    return " ".join(words) or None


def bound(tensor):
    return None if tensor is None else "bound"


def offset_word(number, tensor):
    """The problem says only whether there is an offset; its value is bound by the call."""
    return "1" if tensor is None and number else bound(tensor)


def forward_problem(call, q, k, v, sink, captured, capturing):
    """(problem, its partner or None, parts). The partner is the backward, if one will follow: the engine must run both."""
    fields, sizes, parts = fields_of(call, q, k, v, sink, captured, capturing)
    o = dense_like(meta(q), v.shape[-1])
    fields["o_strides"] = strides_word(o, call.layout)
    partner = None
    if call.wants:
        partner = _core.Problem(problem_line(**backward_fields(call, fields, (q, k, v), o, "lse" in call.outputs, o.dtype)))
    line = problem_line(direction="forward", **dict.fromkeys(call.written(), True), **fields)
    return _core.Problem(line), partner, parts


def prepare_forward(call, q, k, v, sink, captured, where) -> Prepared:
    """`where` is state.place() of the call."""
    check_ranks(call.layout, q, k, v)
    problem, partner, parts = forward_problem(call, q, k, v, sink, captured, where[2])
    roles = ["q", "k", "v", "o", *call.written()]
    out = prepared(problem, partner, call, q, sink, captured, parts, (), roles, where)
    o, rows = dense_like(meta(q), v.shape[-1]), tuple(rows_shape(call.layout, q))
    out.o = tuple(o.shape), o.stride()
    out.extents = {"rows": (rows, dense_strides(rows)), "heads": ((heads_of(call.layout, q),), (1,))}
    return out


def backward_fields(call, fields, inputs, grad_o, has_grad_lse, grad_dtype):
    q, k, v = (dense_like(meta(x)) for x in inputs)
    return fields | dict(
        direction="backward",
        grads=call.wants.split(","),
        dlse=has_grad_lse,
        do_dtype=DIRECT[grad_dtype],
        do_strides=strides_word(grad_o, call.layout),
        dq_strides=strides_word(q, call.layout),
        dk_strides=strides_word(k, call.layout),
        dv_strides=strides_word(v, call.layout),
        grad_dtype=fields.get("o_dtype"),
    )


def prepare_backward(call, q, k, v, sink, captured, o, grad_o, has_grad_lse, where) -> Prepared:
    fields, sizes, parts = fields_of(call, q, k, v, sink, captured, where[2])
    fields["o_strides"] = strides_word(o, call.layout)
    partner = _core.Problem(problem_line(direction="forward", lse=True, **fields))
    problem = _core.Problem(problem_line(**backward_fields(call, fields, (q, k, v), grad_o, has_grad_lse, grad_o.dtype)))
    wanted = call.wants.split(",")
    roles = ["q", "k", "v", "o", "grad_o", "lse", *(f"grad_{name}" for name in ("q", "k", "v") if name in wanted)]
    roles += ["grad_lse"] * has_grad_lse + ["grad_sink"] * ("sink" in wanted)
    out = prepared(problem, partner, call, q, sink, captured, parts, wanted, roles, where)
    out.inputs = gradients_like((q, k, v), wanted)
    return out


def gradients_like(inputs, wanted):
    """Name, shape and strides of those of q, k and v that are wanted."""
    return [(name, tuple(x.shape), dense_like(meta(x)).stride()) for name, x in zip("qkv", inputs) if name in wanted]


def prepare_tangent(call, q, k, v, sink, captured, o, grad_o, has_grad_lse, where) -> Prepared:
    """`call.wants`: the gradients whose change is asked for, perhaps none; `call.engine`: who runs it."""
    fields, _, parts = fields_of(call, q, k, v, sink, captured, where[2])
    fields["o_strides"] = strides_word(o, call.layout)
    fields = backward_fields(call, fields, (q, k, v), grad_o, has_grad_lse, grad_o.dtype)
    problem = _core.Problem(problem_line(**fields | {"direction": "tangent"}))
    wanted = call.wants.split(",") if call.wants else []
    out = prepared(problem, None, call, q, sink, captured, parts, wanted, [], where)
    out.roles, out.inputs = [], gradients_like((q, k, v), wanted)
    return out


def prepared(problem, partner, call, q, sink, captured, parts, wanted, roles, where) -> Prepared:
    out = Prepared()
    stream, _, capturing = where
    out.plan = _core.Plan(problem, call.engine or None, device_name(q.device), partner, stream if capturing else 0)
    out.on_cpu = q.device.type == "cpu"
    out.workspace = 0 if out.on_cpu else out.plan.workspace()
    out.captured = [(name, _CODES[x.dtype], tuple(x.shape), tuple(x.stride())) for name, x in zip(parts.names, captured)]
    out.gradients = [dense_strides(x.shape) if name in wanted else None for name, x in zip(parts.names, captured)]
    out.scalars = [name for name, _ in parts.scalars]
    out.wanted = frozenset(wanted)
    out.seed_at = bool(call.dropout) and not out.on_cpu
    beside = ["sink"] * (sink is not None) + [name for name, _ in call.lengths()] + ["seed_at"] * out.seed_at
    out.plain = not beside
    out.roles = roles + beside
    offsets = call.q_offset or call.k_offset or call.b_offset or call.h_offset
    out.by_value = bool(offsets or (call.dropout and not out.seed_at))
    out.caller = _core.Caller(out.plan, out.roles, template(out), [(name, 0.0) for name in out.scalars])
    out.direct = None
    return out


def template(prepared):
    """The captured tensors as Plan.run takes them, with 1 in place of pointers, which each call brings."""
    return [
        (name, 1, code, extents, strides, *(() if gradient is None else (1, code, gradient)))
        for (name, code, extents, strides), gradient in zip(prepared.captured, prepared.gradients)
    ]


def meta(x):
    """A tensor of its shape and strides without memory."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
