"""The primitives: attention forward and backward, the derivative of both along a direction, and the custom call of each.

forward_p, backward_p and tangent_p are what transformations see: they batch (`_batching`), are partitioned (`_partition`)
and differentiated (`_derivative`). call_p is one custom call on one device; its lowering asks Fovea whether an engine can
run it, so that a problem that none can run fails at compile time, with every engine's reasons. The library with the XLA
handlers is found, loaded and registered with XLA by name, once per process."""

from __future__ import annotations

import ctypes
import functools
import pathlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax._src import (
    dispatch,  # its set of primitives that, like custom_partitioning, must know their devices
)
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir, xla
from jax.sharding import NamedSharding, PartitionSpec

import fovea

from .. import _core
from .._core import Unsupported
from . import _batching, _partition
from ._rewrite import without_b_offset
from ._spec import Spec, check_types, gradient_roles, gradient_source, moves, problem_line, result_roles, result_shapes

forward_p = Primitive("fovea_forward")
backward_p = Primitive("fovea_backward")
tangent_p = Primitive("fovea_tangent")
call_p = Primitive("fovea_call")
TARGETS = {"forward": "fovea_forward", "backward": "fovea_backward", "tangent": "fovea_tangent"}
RECORDED = {"forward": "fovea_forward_recorded", "backward": "fovea_backward_recorded"}
OUTER = {"forward": forward_p, "backward": backward_p, "tangent": tangent_p}


def bind(direction: str, spec: Spec, operands: Sequence[jax.Array]) -> list[jax.Array]:
    """Attention on arrays in the order of spec.operands."""
    register()
    return OUTER[direction].bind(*operands, spec=spec)


def _abstract(direction: str, *avals, spec: Spec):
    check_types(spec, avals)
    results = result_shapes(spec, direction, avals)
    manual = getattr(avals[0], "manual_axis_type", None)
    if manual is None or manual.empty:
        return [jax.core.ShapedArray(shape, dtype) for shape, dtype in results]
    # Inside shard_map results vary over the mesh as the operands do, which were made alike before.
    mesh = avals[0].sharding.mesh
    return [
        jax.core.ShapedArray(
            shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*(None for _ in shape))), manual_axis_type=manual
        )
        for shape, dtype in results
    ]


# --- one custom call ---


def _problem(spec: Spec, direction: str, line: str):
    """The problem and its partner."""
    if not spec.training or direction == "tangent":
        return _core.Problem(line), None
    forward, backward = _core.problem_pair(line)
    return (forward, backward) if direction == "forward" else (backward, forward)


def _require(spec: Spec, direction: str, line: str, device: str) -> None:
    problem, partner = _problem(spec, direction, line)
    answer, reasons = _core.supported(problem, engine=spec.engine, device=device, partner=partner)
    if not answer:
        raise _core.Unsupported(f"attention on {device}: {reasons}")


def _custom_call(ctx, operands, target: str, spec: Spec, results: Sequence[str], line: str):
    attributes = {"problem": line, "engine": spec.engine or ""}
    attributes.update(operands=",".join(spec.operands), results=",".join(results))
    return jax.ffi.ffi_lowering(target)(ctx, *operands, **attributes)


def _lower_cpu(ctx, *operands, spec: Spec, direction: str):
    line = problem_line(spec, ctx.avals_in, direction)
    _require(spec, direction, line, "cpu")
    return _custom_call(ctx, operands, TARGETS[direction], spec, result_roles(spec, direction), line)


def _lower_cuda(ctx, *operands, spec: Spec, direction: str):
    if direction == "tangent":
        raise Unsupported(
            "fovea.jax has forward mode (jax.jvp, jax.jacfwd, jax.linearize) and second derivatives on the CPU only, not yet "
            "on GPUs: run this part with jax.default_device(jax.devices('cpu')[0])"
        )
    spec = without_b_offset(spec)
    roles = result_roles(spec, direction)
    line = problem_line(spec, ctx.avals_in, direction, gpu=True, capture=True)
    workspace = _recorded_workspace(spec, direction, line)
    if workspace is None:
        line = problem_line(spec, ctx.avals_in, direction, gpu=True)
        if _has_cuda():
            _require(spec, direction, line, "cuda:0")
        return _custom_call(ctx, operands, TARGETS[direction], spec, roles, line)
    # XLA may record this call into a command buffer, so its workspace has to be a buffer of the program.
    memory = jax.core.ShapedArray((max(workspace, 1),), jnp.uint8)
    wider = ctx.replace(avals_out=[*ctx.avals_out, memory])
    return _custom_call(wider, operands, RECORDED[direction], spec, (*roles, "workspace"), line)[:-1]


@functools.cache
def _has_cuda() -> bool:
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


def _recorded_workspace(spec: Spec, direction: str, line: str) -> int | None:
    """Bytes of workspace of a plan that runs under graph capture; None: there is none, or no GPU to ask."""
    if not _has_cuda():
        return None
    problem, partner = _problem(spec, direction, line)
    answer, _ = _core.supported(problem, engine=spec.engine, device="cuda:0", partner=partner)
    if not answer:
        return None
    return _core.Plan(problem, engine=spec.engine, device="cuda:0", partner=partner).workspace()


# --- the handlers that XLA calls ---


@functools.cache
def register() -> None:
    """Registers the handlers of Fovea's custom calls with XLA; cheap if it was done before.

    Every call of attention does this. A process that only runs programs exported or compiled elsewhere must call it first."""
    # XLA needs types before the handlers that use them. JAX keeps that order only if a backend has been
    # started: otherwise the start of the backend fails.
    jax.default_backend()
    library = _library()

    def capsule(name: str):
        return jax.ffi.pycapsule(getattr(library, name))

    def address(name: str):
        function = getattr(library, name)
        function.restype = ctypes.c_void_p
        return jax.ffi.pycapsule(ctypes.c_void_p(function()))

    for platform in ("cpu", "CUDA"):
        kinds = ("type_id", "type_info")
        types = {kind: address(f"fovea_jax_{kind}_{platform.lower()}") for kind in kinds}
        jax.ffi.register_ffi_type(f"fovea_jax_call_{platform.lower()}", types, platform=platform)
    for direction in TARGETS:
        half = "backward" if direction == "backward" else "forward"  # of a pair; a tangent is none
        host = {"instantiate": capsule(f"fovea_jax_{half}_instantiate_cpu"), "execute": capsule("fovea_jax_run_cpu")}
        jax.ffi.register_ffi_target(TARGETS[direction], host, platform="cpu")
    for direction in RECORDED:
        device = {
            "instantiate": capsule(f"fovea_jax_{direction}_instantiate_cuda"),
            "initialize": capsule("fovea_jax_initialize_cuda"),
        }
        for name, run in ((TARGETS, "fovea_jax_run_cuda"), (RECORDED, "fovea_jax_run_cuda_recorded")):
            jax.ffi.register_ffi_target(name[direction], {**device, "execute": capsule(run)}, platform="CUDA")


def _library() -> ctypes.CDLL:
    folders = (pathlib.Path(fovea.__file__).parent, pathlib.Path(__file__).resolve().parent.parent)
    found = next((path for folder in folders if (path := folder / "_jax_ffi.so").exists()), None)
    if found is None:
        raise ImportError(
            f"fovea.jax was built without jaxlib: {folders[0] / '_jax_ffi.so'} is missing. Install jax, then "
            "build again (./dev build, or pip install with jax in the build's environment)"
        )
    return ctypes.CDLL(str(found))


def custom_call_targets() -> tuple[str, ...]:
    """The names of Fovea's custom calls, as jax.export wants to be told them."""
    return (*TARGETS.values(), *RECORDED.values())


# --- registration ---


def _lower_outer(direction: str, ctx, *operands, spec: Spec):
    def cut(spec, arrays):
        return _partition.partitioned(direction, spec, arrays, functools.partial(_call, direction))

    def whole(*arrays):
        return _complete_tangent(spec, arrays, cut) if direction == "tangent" else cut(spec, arrays)

    return mlir.lower_fun(whole, multiple_results=True)(ctx, *operands)


def _complete_tangent(spec: Spec, arrays: Sequence[jax.Array], cut):
    """Tangents are bound for q, k, v and sinks, each on its own, and run on the one engine that has them."""
    operands: dict[str, jax.Array] = {}
    for role, x in zip(spec.operands, arrays):
        if role == "o":  # for the backward that a tangent transposes into
            continue
        before, packed = role[: len(role) - len(moves(role))], moves(role) in ("qkv", "kv")
        parts = enumerate(moves(role)) if packed else [(None, moves(role))]
        operands.update({before + name: x if i is None else x[..., i, :, :] for i, name in parts})
    for name in ("q", "k", "v", "sink"):
        if name in operands:
            operands.setdefault(f"tangent_{name}", jnp.zeros_like(operands[name]))
    apart = spec.replace(operands=tuple(operands), engine="reference", training=False)
    results = dict(zip(result_roles(apart, "tangent"), cut(apart, list(operands.values()))))
    together = {
        role: jnp.stack([results[f"grad_{name}"] for name in gradient_source(role)], -3)
        for role in ("grad_qkv", "grad_kv")
        if role in gradient_roles(spec)
    }
    return tuple((results | together)[role] for role in result_roles(spec, "tangent"))


def _call(direction: str, spec: Spec, *operands):
    return tuple(call_p.bind(*operands, spec=spec, direction=direction))


def _setup() -> None:
    for direction, primitive in OUTER.items():
        primitive.multiple_results = True
        primitive.def_impl(functools.partial(xla.apply_primitive, primitive))
        primitive.def_abstract_eval(functools.partial(_abstract, direction))
        batching.primitive_batchers[primitive] = functools.partial(_batching.batch, direction, bind)
        mlir.register_lowering(primitive, functools.partial(_lower_outer, direction))
        dispatch.prim_requires_devices_during_lowering.add(primitive)
    call_p.multiple_results = True
    call_p.def_impl(functools.partial(xla.apply_primitive, call_p))
    call_p.def_abstract_eval(lambda *avals, spec, direction: _abstract(direction, *avals, spec=spec))
    mlir.register_lowering(call_p, _lower_cpu, platform="cpu")
    mlir.register_lowering(call_p, _lower_cuda, platform="cuda")


_setup()
