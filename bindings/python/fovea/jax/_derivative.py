"""Derivatives of the primitives, first and second, forward and reverse.

tangent_p is the derivative of a forward along a direction; it is linear in the direction, and its transpose is a backward.
tangent_p is also the derivative of a backward, and linear in its inputs. Second derivatives are symmetric, so the tangent_p
of a backward is its own transpose. Which gradients are wanted is known from what the caller differentiates; a backward
computes only those."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.interpreters import ad

from .._core import Unsupported
from .._request import substitute
from . import _primitive
from ._rewrite import tokens
from ._spec import Spec, gradient_roles, gradient_source, moves

_DIFFERENTIABLE = ("q", "k", "v", "qkv", "kv", "sink")
_INCOMING = ("grad_o", "grad_lse")


def attend(spec: Spec, *operands):
    """The tuple of spec.outputs."""
    return tuple(_primitive.bind("forward", spec, operands))


# shard_map that is not compiled knows no rule for primitives of others.
attend_compiled = jax.jit(attend, static_argnums=(0,))


def wanted_of(roles: Sequence[str], dtypes: Sequence) -> tuple[str, ...]:
    """The operands among `roles` whose gradients are asked for, as a Spec names them."""
    wanted: list[str] = []
    for role, dtype in zip(roles, dtypes):
        if not jnp.issubdtype(dtype, jnp.floating):
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


# --- along a direction ---


def _zero(x):
    return ad.Zero(jax.typeof(x).to_tangent_aval())


class _Operands:
    """Operands by role, with what moves of them."""

    def __init__(self, spec: Spec, operands: Sequence, tangents: Sequence):
        self.spec, self.arrays = spec, dict(zip(spec.operands, operands))
        given = zip(spec.operands, operands, tangents)
        self.moving = {role: t for role, x, t in given if type(t) is not ad.Zero and jnp.issubdtype(x.dtype, jnp.floating)}

    def wanted(self) -> tuple[str, ...]:
        return wanted_of(tuple(self.moving), [self.arrays[role].dtype for role in self.moving])


def _moving(spec: Spec, primals: Sequence, tangents: Sequence) -> _Operands:
    """If the scale moves, it is a scalar of the formula."""
    at = _Operands(spec, primals, tangents)
    if "scale" not in at.moving:
        return at
    inner, arrays = with_learned_scale(spec, primals)
    return _Operands(inner, arrays, [*tangents, _zero(arrays[-1])])


def _tangent(spec: Spec, arrays: dict, moving: dict) -> list:
    """Changes of o, lse and the gradients of spec.wanted."""
    full = {**arrays, **{f"tangent_{role}": t for role, t in moving.items()}}
    return _primitive.bind("tangent", spec.replace(operands=tuple(full)), list(full.values()))


def _jvp_forward(primals, tangents, *, spec: Spec):
    at = _moving(spec, primals, tangents)
    wanted = at.wanted()
    outputs = at.spec.outputs if "lse" in at.spec.outputs else (*at.spec.outputs, "lse")
    pair = at.spec.replace(outputs=outputs, training=bool(wanted), wanted=wanted)
    results = dict(zip(outputs, _primitive.bind("forward", pair, list(at.arrays.values()))))
    if spec.saved_as is not None:
        results.update({key: checkpoint_name(results[key], spec.saved_as) for key in ("o", "lse")})
    changes = {}
    if wanted:
        arrays = {**at.arrays, "o": results["o"], "lse": results["lse"]}
        inner = at.spec.replace(outputs=("o",), training=True, wanted=(), whole=True)
        changes = dict(zip(("o", "lse"), _tangent(inner, arrays, at.moving)))
    out = [results[key] for key in spec.outputs]
    return out, [changes.get(key, _zero(results[key])) for key in spec.outputs]


def _jvp_backward(primals, tangents, *, spec: Spec):
    if not spec.whole:
        raise Unsupported("context_attention has first derivatives in reverse mode only")
    at = _moving(spec, primals, tangents)
    out = _primitive.bind("backward", at.spec, list(at.arrays.values()))
    incoming = {role: at.moving.pop(role) for role in _INCOMING if role in at.moving}
    for role in ("o", "lse"):  # which move as q, k and v do: tangent_p knows
        at.moving.pop(role, None)
    parts = []
    if at.wanted():
        parts.append(_tangent(at.spec, at.arrays, at.moving)[2:])
    if incoming:
        zeros = {role: jnp.zeros_like(at.arrays[role]) for role in _INCOMING if role in at.arrays}
        parts.append(_primitive.bind("backward", at.spec, list({**at.arrays, **zeros, **incoming}.values())))
    if not parts:
        return out, [_zero(x) for x in out]
    return out, [ad.add_jaxvals(*pair) if len(pair) > 1 else pair[0] for pair in zip(*parts)]


def _jvp_tangent(primals, tangents, *, spec: Spec):
    at = _Operands(spec, primals, tangents)
    if any(role == moves(role) for role in at.moving):
        raise Unsupported(
            "fovea.jax.attention has no third derivative, and no second one by forward mode alone (jax.jvp of jax.jvp, jacfwd of "
            "jacfwd); jax.hessian, jacfwd of jacrev and grad of grad work"
        )
    out = _primitive.bind("tangent", spec, primals)
    still = {role: x for role, x in at.arrays.items() if role == moves(role)}
    moving = {moves(role): t for role, t in at.moving.items()}
    if not moving:
        return out, [_zero(x) for x in out]
    return out, _tangent(spec, still, moving)


# --- transposed ---


def _given(x) -> bool:
    return type(x) is not ad.Zero


def _transpose_tangent(cotangents, *operands, spec: Spec):
    """What comes in for o and lse goes through a backward, what comes in for gradients along itself."""
    arrays = dict(zip(spec.operands, operands))
    asked = {moves(role): x.aval for role, x in arrays.items() if ad.is_undefined_primal(x)}
    still = {role: x for role, x in arrays.items() if role == moves(role)}
    names = dict(zip(("o", "lse", *map(gradient_source, gradient_roles(spec))), cotangents))
    o, lse = names.pop("o"), names.pop("lse")
    wanted = wanted_of(tuple(asked), [aval.dtype for aval in asked.values()])
    plain = spec.replace(wanted=wanted, whole=True)
    parts = []
    if _given(o) or _given(lse):
        full = {role: x for role, x in still.items() if role not in _INCOMING}
        full["grad_o"] = o if _given(o) else jnp.zeros_like(still["o"])
        full.update({"grad_lse": lse} if _given(lse) else {})
        parts.append(_primitive.bind("backward", plain.replace(operands=tuple(full)), list(full.values())))
    moving = {role: c for role, c in names.items() if _given(c)}
    if moving:
        parts.append(_tangent(plain, still, {role: c.astype(still[role].dtype) for role, c in moving.items()})[2:])
    total = {}
    for part in parts:
        for role, x in zip(map(gradient_source, gradient_roles(plain)), part):
            x = x.astype(asked[role].dtype)
            total[role] = ad.add_jaxvals(total[role], x) if role in total else x
    return [total.get(moves(role), ad.Zero(x.aval)) if ad.is_undefined_primal(x) else None for role, x in arrays.items()]


def _transpose_backward(cotangents, *operands, spec: Spec):
    """It is linear in what comes in."""
    arrays = dict(zip(spec.operands, operands))
    if any(ad.is_undefined_primal(x) and role not in _INCOMING for role, x in arrays.items()):
        raise AssertionError("a backward is transposed by what it is not linear in: a bug in fovea.jax")
    still = {role: x for role, x in arrays.items() if role not in _INCOMING}
    sources = map(gradient_source, gradient_roles(spec))
    moving = {role: c.astype(still[role].dtype) for role, c in zip(sources, cotangents) if _given(c)}
    changes = {}
    if moving:
        changes = dict(zip(_INCOMING, _tangent(spec.replace(wanted=()), still, moving)))
    return [changes.get(role, ad.Zero(x.aval)) if ad.is_undefined_primal(x) else None for role, x in arrays.items()]


ad.primitive_jvps[_primitive.forward_p] = _jvp_forward
ad.primitive_jvps[_primitive.backward_p] = _jvp_backward
ad.primitive_jvps[_primitive.tangent_p] = _jvp_tangent
ad.primitive_transposes[_primitive.backward_p] = _transpose_backward
ad.primitive_transposes[_primitive.tangent_p] = _transpose_tangent
