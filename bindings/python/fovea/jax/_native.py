"""The library with the XLA handlers: found, loaded, and given to XLA by name. Once per process."""

from __future__ import annotations

import ctypes
import functools
import pathlib

import jax

import fovea

TARGETS = {"forward": "fovea_forward", "backward": "fovea_backward", "tangent": "fovea_tangent"}
RECORDED = {"forward": "fovea_forward_recorded", "backward": "fovea_backward_recorded"}


@functools.cache
def register() -> None:
    """Gives XLA the handlers of Fovea's custom calls; cheap if it was done before.

    Every call of attention does so. A process that only runs programs which were exported or compiled
    elsewhere calls it first.
    """
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
        host = {
            "instantiate": capsule(f"fovea_jax_{half}_instantiate_cpu"),
            "execute": capsule("fovea_jax_run_cpu"),
        }
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
