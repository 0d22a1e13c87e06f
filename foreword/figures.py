"""Plots in one style, with a font of the machine for each script in them.

Matplotlib's own font has no Korean, Chinese, Japanese, Thai or Hindi letters: characters that it
lacks are drawn with the first fonts of the machine that have them.
"""

from __future__ import annotations

import io
import unicodedata
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

FONT_SIZE = 9.5  # points, of all text in all plots
FONT = "DejaVu Sans"  # Matplotlib brings it along
STYLE = {  # of every plot
    "font.family": [FONT],
    "font.size": FONT_SIZE,
    **{f"{name}.labelsize": FONT_SIZE for name in ("axes", "xtick", "ytick")},
    "axes.titlesize": FONT_SIZE,
    "legend.fontsize": FONT_SIZE,
    "text.parse_math": False,
}
PLACEHOLDER_FONTS = ("last resort", "lastresort", "adobe blank")  # they draw boxes for anything


@dataclass(frozen=True)
class Rendered:
    """A plot as a file.

    Attributes:
        data: its content.
        note: what could not be drawn and what helps, for people; "" if all was.
    """

    data: bytes
    note: str = ""


def render(figure: Figure, dpi: int = 150) -> Rendered:
    """Draw a figure as PNG, its text in fonts that have the characters."""
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)  # makes the labels of ticks
        else:
            figure.draw_without_rendering()
        texts = [one for one in figure.findobj(Text) if isinstance(one, Text)]
        families, missing = _fonts_for(one.get_text() for one in texts)
        if len(families) > 1:
            for one in texts:
                one.set_fontfamily(list(families))
        else:
            figure.set_layout_engine(None)  # the places stay: finding them takes long
        figure.savefig(data, format="png", dpi=dpi, metadata={"Software": None})
    return Rendered(data.getvalue(), _note(missing))


def _fonts_for(texts: Iterable[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the fonts to draw texts with, in order, and the characters that none of them has."""
    characters = {c for text in texts for c in text if c.isprintable() and not c.isspace()}
    return _fonts_of(frozenset(c for c in characters if not c.isascii()))


@lru_cache(maxsize=64)
def _fonts_of(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    default = font_manager.findfont(FONT)
    missing = {c for c in characters if not _has(default, c)}
    families = [FONT]
    for entry in _fonts_of_machine():
        if not missing:
            break
        try:
            covered = {c for c in missing if _has(entry.fname, c)}
        except (OSError, RuntimeError):  # a font that cannot be read
            continue
        if covered:
            families.append(entry.name)
            missing -= covered
    return tuple(families), frozenset(missing)


def _fonts_of_machine() -> list[font_manager.FontEntry]:
    """Return the upright fonts of normal weight, those without serifs first."""
    entries = [
        entry
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal"
        and entry.weight in (400, "normal", "regular", "book")
        and not entry.name.lower().startswith(PLACEHOLDER_FONTS)
    ]
    return sorted(entries, key=lambda e: (not _is_sans(e.name), e.name, e.fname))


def _is_sans(name: str) -> bool:
    return any(word in name.lower() for word in ("sans", "gothic", "heiti", "arial"))


def _has(path: str, character: str) -> bool:
    return _face(path).get_char_index(ord(character)) != 0


@lru_cache(maxsize=256)
def _face(path: str) -> FT2Font:
    return FT2Font(path)


def _note(missing: frozenset[str]) -> str:
    if not missing:
        return ""
    scripts = {unicodedata.name(c, "other").split()[0].split("-")[0].title() for c in missing}
    scripts = {"Chinese" if name == "Cjk" else name for name in scripts}
    return (
        f"no font on this machine has the {', '.join(sorted(scripts))} characters of the plot, so "
        "they are drawn as boxes; install one, such as Noto Sans CJK, and plot again"
    )
