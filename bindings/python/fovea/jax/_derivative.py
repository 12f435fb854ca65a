"""Attention with its derivative: outputs, and gradients of whatever is asked for.

Which gradients are wanted is known in the forward pass, from what the caller differentiates; the backward
computes those and no others.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import SymbolicZero

from .._core import Unsupported
from . import _primitive
from ._rewrite import substitute, tokens
from ._spec import Spec, gradient_roles, gradient_source

_DIFFERENTIABLE = ("q", "k", "v", "qkv", "kv", "sink")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(spec: Spec, name: str | None, *operands):
    """The tuple of spec.outputs. `name` is for jax.checkpoint policies."""
    return tuple(_primitive.bind("forward", spec, operands))


@jax.tree_util.register_pytree_node_class
class Residuals:
    """What a forward keeps, and of which attention: its Spec and the gradients that are wanted."""

    def __init__(self, arrays, known: tuple[Spec, tuple[str, ...]]):
        self.arrays = arrays
        self.known = known

    def tree_flatten(self):
        return (self.arrays,), self.known

    @classmethod
    def tree_unflatten(cls, known, children):
        return cls(children[0], known)


def _forward(spec: Spec, name: str | None, *primals):
    operands = [p.value for p in primals]
    learns_scale = any(p.perturbed for role, p in zip(spec.operands, primals) if role == "scale")
    if learns_scale:
        spec, operands = with_learned_scale(spec, operands)
    wanted = wanted_of(spec, primals)
    outputs = spec.outputs if "lse" in spec.outputs else (*spec.outputs, "lse")
    pair = spec.replace(outputs=outputs, training=bool(wanted), wanted=wanted)
    results = dict(zip(outputs, _primitive.bind("forward", pair, operands)))
    if name is not None:
        results.update({key: checkpoint_name(results[key], name) for key in ("o", "lse")})
    saved = (tuple(operands), results["o"], results["lse"])
    return tuple(results[key] for key in spec.outputs), Residuals(saved, (spec, wanted))


def wanted_of(spec: Spec, primals) -> tuple[str, ...]:
    """The operands whose gradients the caller's differentiation needs, by role."""
    wanted: list[str] = []
    for role, primal in zip(spec.operands, primals):
        if not primal.perturbed or not jnp.issubdtype(primal.value.dtype, jnp.floating):
            continue
        if role in ("qkv", "kv"):
            wanted += list(role)
        elif role in _DIFFERENTIABLE or role.startswith(("tensor:", "scalar:")):
            wanted.append(role)
        elif role == "scale":
            raise Unsupported("scale has no gradient here; multiply q by what is to be learned instead")
    return tuple(wanted)


def with_learned_scale(spec: Spec, operands) -> tuple[Spec, list[jax.Array]]:
    """The same attention with a scale of 1, and the caller's as a scalar of the formula, which has a gradient."""
    if spec.bprop is not None:
        raise Unsupported("scale has no gradient beside score_mod_bprop; multiply the score by it in score_mod")
    mod, name = spec.mod or "score", "scale"
    used = {n for n, _ in spec.scalars} | {t.name for t in spec.tensors} | {*tokens(mod), *tokens(spec.mask or "")}
    while name in used:
        name += "_"
    roles = tuple(f"scalar:{name}" if role == "scale" else role for role in spec.operands)
    changed = spec.replace(
        operands=(*roles, "scale"),
        mod=substitute(mod, {"score": f"(score * {name})"}),
        scalars=(*spec.scalars, (name, "f32")),
    )
    return changed, [*operands, jnp.ones_like(operands[spec.operands.index("scale")])]


def _backward(spec: Spec, name: str | None, residuals: Residuals, cotangents):
    operands, o, lse = residuals.arrays
    count = len(spec.operands)
    spec, wanted = residuals.known
    given = {key: None if isinstance(c, SymbolicZero) else c for key, c in zip(spec.outputs, cotangents)}
    if not wanted or (given.get("o") is None and given.get("lse") is None):
        return (None,) * count
    if given.get("o") is None:
        given["o"] = jnp.zeros_like(o)
    spec = spec.replace(training=True, wanted=wanted)
    roles, extra = ["o", "lse", "grad_o"], [o, lse, given["o"].astype(o.dtype)]
    if given.get("lse") is not None:
        roles.append("grad_lse")
        extra.append(given["lse"].astype(lse.dtype))
    full = spec.replace(operands=(*spec.operands, *roles))
    results = _primitive.bind("backward", full, [*operands, *extra])
    gradients = {gradient_source(role): g for role, g in zip(gradient_roles(full), results)}
    each = [_as_cotangent(gradients.get(role), x) for role, x in zip(spec.operands, operands)]
    return tuple(each[:count])


def _as_cotangent(gradient, operand):
    return None if gradient is None else gradient.astype(operand.dtype)


attend.defvjp(_forward, _backward, symbolic_zeros=True)
# shard_map that is not compiled refuses functions with such derivatives, but not inside of others.
attend_compiled = jax.jit(attend, static_argnums=(0, 1))
