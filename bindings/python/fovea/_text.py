"""Texts for people that a notebook shows as they are."""

from __future__ import annotations

import html


class Text(str):
    """A string whose repr is itself, and which a notebook shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"
