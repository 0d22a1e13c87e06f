"""The pieces that all pages are made of, as HTML; every text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def note(text: str) -> str:
    """Return a remark; "" without a text."""
    return f'<p class="note">{escape(text)}</p>' if text else ""


def side_by_side(cards: Iterable[str]) -> str:
    """Return figures in two columns; "" without one."""
    inner = "".join(cards)
    return f'<div class="pair">{inner}</div>' if inner else ""


def folded(summary: str, content: str, *, is_open: bool = False, is_chapter: bool = False) -> str:
    """Return a content that a click unfolds, a chapter under its heading; "" without one."""
    if not content:
        return ""
    opened, name = " open" * is_open, escape(summary)
    kind, name = (' class="chapter"', f"<h2>{name}</h2>") if is_chapter else ("", name)
    return f"<details{kind}{opened}><summary>{name}</summary><div>{content}</div></details>"


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Return key numbers, each with its name; "" without one."""
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in pairs
    )
    return f'<div class="tiles">{cells}</div>' if cells else ""
