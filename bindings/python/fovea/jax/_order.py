"""How the tokens of a sequence are dealt out to devices."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from .._core import InvalidArgument
from .._request import one_of

ORDERS = ("contiguous", "striped", "zigzag")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a device's part of the queries ("q") or keys ("k") lies, of `length` tokens on each device."""

    word: str
    order: str
    parts: int
    length: int

    @property
    def role(self) -> str:
        """The role of the operand that has this place: an offset, a scalar, or the position of each token."""
        kinds = {"contiguous": "{}_offset", "striped": "scalar:{}_first", "zigzag": "tensor:{}_places"}
        return kinds[self.order].format(self.word)

    @property
    def name(self) -> str:
        return self.role.partition(":")[2]

    def of(self, device) -> jax.Array:
        """That operand, for this device."""
        if self.order != "zigzag":
            return device * (self.length if self.order == "contiguous" else 1)
        local, half = jnp.arange(self.length, dtype=jnp.int32), _half(self.length)
        return local + half * jnp.where(local < half, device, 2 * self.parts - 2 - device)


def reorder_sequence(
    x: jax.Array, parts: int, order: str, *, axis: int = 1, inverse: bool = False
) -> jax.Array:
    """A whole sequence in the order in which `parts` devices take contiguous shards of it, or (inverse) back.

    "striped" gives device i the tokens i, i + parts, ...; "zigzag" the i-th and the i-th last of 2 * parts
    pieces.
    """
    one_of("order", order, ORDERS)
    if order == "contiguous":
        return x
    length = x.shape[axis]
    if length % parts:
        raise InvalidArgument(f"a sequence of {length} can't be dealt out to {parts} devices")
    x = jnp.moveaxis(x, axis, 0)
    rest = x.shape[1:]
    if order == "striped":
        first, second = (parts, length // parts) if inverse else (length // parts, parts)
        x = jnp.swapaxes(x.reshape(first, second, *rest), 0, 1).reshape(length, *rest)
        return jnp.moveaxis(x, 0, axis)
    pieces = x.reshape(2 * parts, _half(length // parts), *rest)
    dealt = [j for i in range(parts) for j in (i, 2 * parts - 1 - i)]
    if inverse:
        dealt = [dealt.index(j) for j in range(2 * parts)]
    return jnp.moveaxis(pieces[jnp.array(dealt)].reshape(length, *rest), 0, axis)


def _half(length: int) -> int:
    if length % 2:
        raise InvalidArgument(
            f"order='zigzag' cuts each device's {length} tokens in two; that number must be even"
        )
    return length // 2
