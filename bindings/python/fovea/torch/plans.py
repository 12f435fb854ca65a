"""From a call and its tensors to plans of the library. Prepared plans are kept in the table of call_cache.py, in front of the
library's own cache of plans."""

import re

import torch

from .. import _core
from .._arrays import CODES, dense_strides
from .._core import OUTPUTS, InvalidArgument
from .._request import problem_line
from .arguments import check_ranks
from .call import dense_like, heads_of, part_dtype, rows_shape, sizes_of, strides_word
from .modifiers import DIRECT, Formulas

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
        "outputs",  # shape and strides of each of OUTPUTS; None if it is not written
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


def with_extents(formulas, declared):
    """Texts with the extents of captured tensors in place of `#slot.dimension`."""
    extent = lambda found: str(declared[int(found[1])][2][int(found[2])])
    return [re.sub(r"#(\d+)\.(\d+)", extent, text) or None for text in (formulas.mod, formulas.mask, formulas.bprop)]


def declarations(formulas, captured, sizes):
    """[(name, dtype, extents)]. An extent that is indexed by a position and is as large as that size is declared by the size's
    name, so that another batch or length shares the plan; so is one as large as a length that is indexed by anything else
    (k + 1)."""
    out = []
    for name, uses, tensor in zip(formulas.names, formulas.uses, captured):
        if "?" in uses:
            uses = uses_in_text(formulas, name, len(uses))
        extents = []
        for extent, leaf in zip(tensor.shape, uses):
            words = [_LEAF_SIZES[leaf]] if leaf in _LEAF_SIZES else _LENGTHS if extent > 1 else ()
            equal = [word for size, word in words if getattr(sizes, size) == extent]
            extents.append(equal[0] if equal else int(extent))
        out.append((name, DIRECT[tensor.dtype], tuple(extents)))
    return out


def uses_in_text(formulas, name, rank):
    found = ["-"] * rank
    for text in (formulas.mod, formulas.mask, formulas.bprop):
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


def fields_of(at, capturing):
    """The words of the problem line that both directions share, and the formulas."""
    call, q, k, v, sink, captured = at[:6]
    sizes = sizes_of(call, q, k, v)
    formulas = Formulas.parse(call.formulas)
    packed = call.layout == "thd"
    declared = declarations(formulas, captured, sizes)
    extents = declared if is_one_length(call) else [(None, None, x.shape) for x in captured]
    mod, mask, bprop = with_extents(formulas, extents)
    fields = {name: getattr(sizes, name) for name in ("b", "h", "hkv", "sq", "skv", "d", "dv")}
    fields.update(
        dtype=DIRECT[q.dtype],
        layout="thd" if packed else "bhsd",
        mod=mod,
        mask=mask,
        bprop=bprop,
        tensors=declared,
        tensor_strides=captured_strides(formulas.names, captured),
        scalars=formulas.scalars,
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
    return fields, formulas


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


def forward_problem(at, capturing):
    """(problem, its partner or None, formulas). The partner is the backward, if one will follow: the engine must run both."""
    call = at.call
    fields, formulas = fields_of(at, capturing)
    o = dense_like(meta(at.q), at.v.shape[-1])
    fields["o_strides"] = strides_word(o, call.layout)
    partner = None
    if call.wants:
        partner = _core.Problem(problem_line(**backward_fields(at, fields, o, "lse" in call.outputs)))
    line = problem_line(direction="forward", **dict.fromkeys(call.written(), True), **fields)
    return _core.Problem(line), partner, formulas


def prepare_forward(at, where) -> Prepared:
    """`where` is state.place() of the call."""
    call, q, v = at.call, at.q, at.v
    check_ranks(call.layout, q, at.k, v)
    *problems, formulas = forward_problem(at, where[2])
    written = call.written()
    out = prepared(problems, at, formulas, (), ["q", "k", "v", "o", *written], where)
    o, rows = dense_like(meta(q), v.shape[-1]), tuple(rows_shape(call.layout, q))
    out.o = tuple(o.shape), o.stride()
    extents = {"rows": (rows, dense_strides(rows)), "heads": ((heads_of(call.layout, q),), (1,))}
    out.outputs = [extents[extent] if name in written else None for name, extent in OUTPUTS.items()]
    return out


def backward_fields(at, fields, grad_o, has_grad_lse):
    layout = at.call.layout
    q, k, v = (dense_like(meta(x)) for x in at[1:4])
    return fields | dict(
        direction="backward",
        grads=at.call.wants.split(","),
        dlse=has_grad_lse,
        do_dtype=DIRECT[grad_o.dtype],
        do_strides=strides_word(grad_o, layout),
        dq_strides=strides_word(q, layout),
        dk_strides=strides_word(k, layout),
        dv_strides=strides_word(v, layout),
        grad_dtype=fields.get("o_dtype"),
    )


def prepare_backward(at, where) -> Prepared:
    fields, formulas = fields_of(at, where[2])
    fields["o_strides"] = strides_word(at.o, at.call.layout)
    partner = _core.Problem(problem_line(direction="forward", lse=True, **fields))
    has_grad_lse = at.grad_lse is not None
    problem = _core.Problem(problem_line(**backward_fields(at, fields, at.grad_o, has_grad_lse)))
    wanted = at.call.wants.split(",")
    roles = ["q", "k", "v", "o", "grad_o", "lse", *(f"grad_{name}" for name in ("q", "k", "v") if name in wanted)]
    roles += ["grad_lse"] * has_grad_lse + ["grad_sink"] * ("sink" in wanted)
    return prepared((problem, partner), at, formulas, wanted, roles, where)


def prepare_tangent(at, where) -> Prepared:
    """`at.call` says which gradients' changes are asked for, perhaps none, and which engine runs it."""
    fields, formulas = fields_of(at, where[2])
    fields["o_strides"] = strides_word(at.o, at.call.layout)
    incoming = at.o if at.grad_o is None else at.grad_o
    fields = backward_fields(at, fields, incoming, at.grad_lse is not None) | {"direction": "tangent"}
    wanted = at.call.wants.split(",") if at.call.wants else []
    out = prepared((_core.Problem(problem_line(**fields)), None), at, formulas, wanted, [], where)
    out.roles = []  # all is bound by name
    return out


def prepared(problems, at, formulas, wanted, roles, where) -> Prepared:
    """`problems` are the problem and its partner, or None; `roles` the pointers but for those of sinks, lengths and the seed."""
    call, q, captured = at.call, at.q, at.captured
    out = Prepared()
    stream, _, capturing = where
    problem, partner = problems
    out.plan = _core.Plan(problem, call.engine or None, device_name(q.device), partner, stream if capturing else 0)
    out.on_cpu = q.device.type == "cpu"
    out.workspace = 0 if out.on_cpu else out.plan.workspace()
    named = list(zip(formulas.names, captured))
    out.captured = [(name, _CODES[x.dtype], tuple(x.shape), tuple(x.stride())) for name, x in named]
    out.gradients = [dense_strides(x.shape) if name in wanted else None for name, x in named]
    out.inputs = [(name, tuple(x.shape), dense_like(meta(x)).stride()) for name, x in zip("qkv", at[1:4]) if name in wanted]
    out.scalars = [name for name, _ in formulas.scalars]
    out.wanted = frozenset(wanted)
    out.seed_at = bool(call.dropout) and not out.on_cpu
    beside = ["sink"] * (at.sink is not None) + [name for name, _ in call.lengths()] + ["seed_at"] * out.seed_at
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
