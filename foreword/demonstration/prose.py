"""Paragraphs of plain English in a docstring, if any.

Return the mean of `x`.          Return the mean of x.

Parameters
----------
x : array_like

>>> mean([1, 2])
1.5
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Sections that are tables or code; text under any other heading is read.
TABLES = frozenset(
    """
    arg args argument arguments attribute attributes author authors copyright default example
    examples input inputs kwargs methods output outputs parameter parameters raise raises
    reference references return returns see shape shapes usage warns yield yields
    """.split()  # noqa: SIM905
)
# Frequent in English text; rare in code, tables and lists of names.
FUNCTION_WORDS = frozenset(
    """
    a all an and any are as at be been but by can do does each for from has have if in into is it
    its may no not of on one only or other same should so such than that the their them then
    there these they this to use used was we when where which will with would you
    """.split()  # noqa: SIM905
)
MIN_WORDS = 8

_HEADING = re.compile(r"^[A-Z][\w ]{1,30}:{1,2}\s*$")
_UNDERLINE = re.compile(r"^\s*([-=~^*+#])\1{2,}\s*$")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\(?\w{1,2}[.)])\s+")
_CODE = re.compile(r"^\s*(?:>>>|\.\.\.|\.\. |\$ |In \[|```|:\w[^:]*:(?!`)|@\w+|[|+]|={3})")
_MARKUP = (
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),  # [text](address)
    (re.compile(r"`([^`<]*?)\s*<[^`>]*>`_{0,2}"), r"\1"),  # `text <address>`_
    (re.compile(r":[\w:+-]+:`~?([^`]*)`"), r"\1"),  # :class:`~package.Name`
    (re.compile(r"`{1,3}~?([^`]*)`{1,3}_{0,2}"), r"\1"),
    (re.compile(r"\s*\[[\w#*]+\]_"), ""),  # [1]_
    (re.compile(r"\*{1,2}([^*\s][^*]*?)\*{1,2}"), r"\1"),
    (re.compile(r"\|([^|\s]+)\|"), r"\1"),
    (re.compile(r"<?https?://[^\s>)]+>?"), ""),
    (re.compile(r"\s+([.,;:!?)])(?=\s|$)"), r"\1"),
    (re.compile(r"\s+"), " "),
)


def paragraphs(docstring: str) -> list[str]:
    """Return the paragraphs of a docstring that are English sentences, without markup.

    Args:
        docstring: the docstring without indentation, as `ast.get_docstring` returns it.
    """
    sentences = []
    for lines in _blocks(docstring):
        for item in _items(lines):
            text = plain(" ".join(item))
            if is_prose(text):
                sentences.append(text)
    return sentences


def plain(text: str) -> str:
    """Return a paragraph without the markup of reStructuredText and Markdown."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()


def is_prose(text: str) -> bool:
    """Return whether a paragraph consists of English sentences."""
    words = text.split()
    if len(words) < MIN_WORDS or not text[0].isupper() or not text.endswith((".", "!", "?")):
        return False
    if any(sign in text for sign in ("\\", "$", "=", "<", ">", "{", "::")):
        return False
    letters = sum(char.isalpha() or char == " " for char in text)
    english = sum(word.strip(".,;:()'\"").lower() in FUNCTION_WORDS for word in words)
    return letters >= 0.88 * len(text) and english >= 0.2 * len(words)


def _blocks(docstring: str) -> Iterator[list[str]]:
    """Yield the blocks between blank lines that are not code and not in a section of tables."""
    is_table, is_indented = False, False  # whether the section is a table, and its text indented
    code_indent: int | None = None  # after `::`, blocks indented at least this far are code
    for block in re.split(r"\n[ \t]*\n", docstring):
        lines = [line for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        indent = len(lines[0]) - len(lines[0].lstrip())
        # Skip code, remove headings and note the kind of their section.
        if code_indent is not None and indent >= code_indent:
            continue
        code_indent = None
        if len(lines) > 1 and _UNDERLINE.match(lines[1]):
            is_table, is_indented = _is_table(lines[0]), False
            lines = lines[2:]
        elif _HEADING.match(lines[0]):
            is_table, is_indented = _is_table(lines[0]), True
            lines = lines[1:]
        elif is_indented and indent == 0:
            is_table = False
        # Yield what is left, and note whether code follows.
        if lines and (lines[-1].rstrip().endswith("::") or lines[0].lstrip().startswith(".. ")):
            code_indent = indent + 1
        if not is_table and lines and not any(_CODE.match(line) for line in lines):
            yield lines


def _is_table(heading: str) -> bool:
    words = heading.lower().strip(" :").split()
    return any(word in TABLES for word in words)


def _items(lines: list[str]) -> Iterator[list[str]]:
    """Yield the items of a list, or the whole block."""
    item: list[str] = []
    for line in lines:
        if _BULLET.match(line):
            if item:
                yield item
            item = [_BULLET.sub("", line)]
        else:
            item.append(line.strip())
    if item:
        yield item
