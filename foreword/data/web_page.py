"""The text of a web page: its charset, and what of it is not navigation.

By `resiliparse`, whose extraction of the main content DataComp-LM chose for its 240 trillion tokens
(Li et al. 2024, https://arxiv.org/abs/2406.11794, section 4.2).
"""

from __future__ import annotations

import functools
from typing import Any

DEEPEST = 1000  # elements within each other; the time to extract text grows with their square
WRONG = 0.1  # share of a page's bytes beyond ASCII that do not fit a charset which is the page's
ESCAPE = b"\x1b"  # of ISO-2022-JP, which is valid UTF-8 and not meant as such


class UnreadablePageError(Exception):
    """A page whose text cannot be extracted; the message says why in a few words."""


def decode(data: bytes, declared: str | None) -> tuple[str, int]:
    """Return the text of a page's bytes, and the number of places that were replaced by U+FFFD.

    UTF-8 is tried first, whatever is declared, since text in another charset hardly ever is valid
    UTF-8; then what the server declares, what the page declares, and what the bytes look like.

    Args:
        data: the page.
        declared: the server's charset, if it names one.

    Raises:
        UnreadablePageError: no charset fits.
    """
    from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

    if ESCAPE not in data:
        try:
            return data.decode("utf-8-sig"), 0
        except UnicodeDecodeError:
            pass
    beyond = len(data.translate(None, bytes(range(128))))
    names = (declared, detect_encoding(data, from_html_meta=True), detect_encoding(data))
    encodings = (map_encoding_to_html5(name.strip("\"' ")) for name in names if name)
    for name in dict.fromkeys(filter(None, encodings)):
        text = data.decode(name, "replace")
        replaced = text.count("\ufffd")
        if replaced <= WRONG * beyond:
            return text.removeprefix("\ufeff"), replaced
    raise UnreadablePageError("charset unknown")


def extract(page: str, *, main_content: bool = True) -> str:
    """Return the text of a page of HTML, a paragraph or list item a line.

    Args:
        page: the page.
        main_content: whether to leave out navigation and the like.

    Raises:
        UnreadablePageError: it is nested too deeply.
    """
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree: Any = HTMLTree.parse(page)
    if tree.document.query_selector(_deep()) is not None:
        raise UnreadablePageError("nested too deeply")
    text: str = extract_plain_text(
        tree, main_content=main_content, preserve_formatting=True, alt_texts=False
    )
    return text


@functools.cache
def _deep() -> str:
    return " > ".join("*" * DEEPEST)
