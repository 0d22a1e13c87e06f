"""Strings in a text that look personal or secret: e-mail addresses, numbers, keys.

Each is found by a library that knows its form and check digits; no model is needed, so names and
postal addresses are not found.

| kind | found by |
|---|---|
| e-mail address | a pattern |
| telephone number | `phonenumbers` (Google's libphonenumber): a valid number with its country code, and of one country without |
| payment card | 13 to 19 digits that begin as cards do, with the right check digit (`python-stdnum`) |
| bank account | an IBAN with the right check digits (`python-stdnum`) |
| IP address | a public one (`ipaddress`) |
| key or password | the forms of keys of known services, private keys, passwords in URLs (`detect-secrets`) |
"""  # noqa: E501

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from foreword.errors import UserError
from foreword.text import utf8
from foreword.text.words import MARKS, UNSPACED, is_part
from foreword.types import Document

LABEL = rf"(?:(?![_{UNSPACED}])[\w{MARKS}-])+"  # of a domain, which may have letters beside ASCII
EMAIL = re.compile(
    rf"(?:(?![{UNSPACED}])[\w{MARKS}.%+-])+@{LABEL}(?:\.{LABEL})*"
    rf"\.(?:[A-Za-z]{{2,}}|(?:(?![\d_A-Za-z{UNSPACED}])[\w{MARKS}]){{2,}})"
)
CARD = re.compile(r"(?<![\d.])(?:2[2-7]|[3-6]\d)\d{2}(?:[ -]?\d){9,15}(?![ -]?\d)")
# ASCII: a letter of a script without spaces may stand beside the string.
IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b", re.ASCII)
IP = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[\da-fA-F]{1,4}:){2,7}[\da-fA-F:]+)(?![\w:]|\.\w)",
    re.ASCII,
)
FEWEST_DIGITS = 7  # of a telephone number; other lines are not looked at
KINDS = (
    "e-mail address",
    "payment card",
    "bank account",
    "telephone number",
    "IP address",
    "key or password",
)
SHOWN = 2  # characters of a string that a report shows

Match = tuple[str, str]  # kind and string


@dataclass
class PersonalCount:
    """How often a kind of string was found.

    Attributes:
        kind: one of `KINDS`.
        found: number of strings.
        documents: number of documents with one.
        first: source of the first document with one; "" if there is none.
        example: the first string, masked.
    """

    kind: str
    found: int = 0
    documents: int = 0
    first: str = ""
    example: str = ""


@dataclass(frozen=True)
class PersonalCounts:
    """The strings found in a text.

    Attributes:
        counts: one for each kind.
        documents: number of documents read.
        bytes: their size in UTF-8.
    """

    counts: tuple[PersonalCount, ...]
    documents: int
    bytes: int


def count_personal(
    documents: Iterable[Document],
    country: str | None = None,
    most_bytes: int | None = None,
    progress: Callable[[int], object] = lambda size: None,
) -> PersonalCounts:
    """Count the strings that look personal in a text.

    Args:
        documents: the text.
        country: two letters (`US`) of a country whose telephone numbers are also found without
            their country code.
        most_bytes: stop after this many bytes; default: read all.
        progress: called with the bytes read so far.

    Raises:
        UserError: a package is missing, or there is no such country.
    """
    find = finder(country)
    counts = {kind: PersonalCount(kind) for kind in KINDS}
    read = size = 0
    for document in documents:
        read, size = read + 1, size + utf8.size(document.text)
        seen = set()
        for kind, string in find(document.text):
            count = counts[kind]
            count.found += 1
            if kind not in seen:
                count.documents += 1
                seen.add(kind)
            if not count.first:
                count.first, count.example = document.source, masked(string)
        progress(size)
        if most_bytes is not None and size >= most_bytes:
            break
    return PersonalCounts(tuple(counts.values()), read, size)


def finder(country: str | None = None) -> Callable[[str], Iterator[Match]]:
    """Return a function that yields the strings of a text that look personal, line by line.

    Raises:
        UserError: a package is missing, or there is no such country.
    """
    find = _line_finder(country)
    return lambda text: (match for line in text.splitlines() for match in find(line))


def scrubber(
    country: str | None = None, kinds: Collection[str] = KINDS
) -> Callable[[str], tuple[str, list[str]]]:
    """Return a function that replaces the strings of a text that look personal, `[IP address]`.

    It returns the new text, and the kind of each string that it replaced.

    Args:
        country: as in `count_personal`.
        kinds: kinds of strings to replace, of `KINDS`.

    Raises:
        UserError: a package is missing, or there is no such country.
    """
    find = _line_finder(country)

    def scrub(text: str) -> tuple[str, list[str]]:
        replaced: list[str] = []
        lines = text.splitlines(keepends=True)
        for number, line in enumerate(lines):
            matches = [match for match in find(line) if match[0] in kinds]
            replaced += [kind for kind, _ in matches]
            for kind, string in sorted(matches, key=lambda match: -len(match[1])):
                line = line.replace(string, f"[{kind}]")
            lines[number] = line
        return "".join(lines), replaced

    return scrub


def _line_finder(country: str | None) -> Callable[[str], Iterator[Match]]:
    """Return a function that yields the strings of a line that look personal."""
    try:
        import phonenumbers
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.plugins.base import RegexBasedDetector
        from detect_secrets.plugins.ip_public import IPPublicDetector
        from stdnum import iban, luhn
    except ImportError as error:
        raise UserError(
            "--privacy: requires phonenumbers, python-stdnum and detect-secrets: "
            "pip install 'foreword[privacy]'"
        ) from error
    if country is not None and country not in phonenumbers.SUPPORTED_REGIONS:
        raise UserError(f"--country {country}: expected two letters of a country, such as US or DE")
    secrets = [
        detector()
        for detector in get_mapping_from_secret_type_to_class().values()
        if issubclass(detector, RegexBasedDetector) and detector is not IPPublicDetector
    ]

    def phones(line: str) -> Iterator[tuple[int, int]]:
        if sum(map(str.isdigit, line)) >= FEWEST_DIGITS:
            for match in phonenumbers.PhoneNumberMatcher(line, country, max_tries=len(line)):
                yield match.start, match.end

    def find(line: str) -> Iterator[Match]:
        covered: list[tuple[int, int]] = []
        spans: tuple[tuple[str, Iterable[tuple[int, int]]], ...] = (
            ("e-mail address", _spans(EMAIL, line if "@" in line else "", lambda _: True)),
            ("bank account", _spans(IBAN, line, iban.is_valid)),
            ("payment card", _spans(CARD, line, lambda s: _is_card(s, luhn.is_valid))),
            ("IP address", _spans(IP, line, _is_public)),
            ("telephone number", phones(line)),
        )
        for kind, of_kind in spans:
            for start, stop in of_kind:  # a string counts once, as the first kind that it fits
                if all(stop <= a or b <= start for a, b in covered):
                    covered.append((start, stop))
                    yield kind, line[start:stop]
        for string in {key for secret in secrets for key in secret.analyze_string(line)}:
            yield "key or password", string

    return find


def masked(string: str) -> str:
    """Return a string with its letters and digits hidden, but for the first two characters."""
    hidden = ("*" if is_part(c) else c for c in string[SHOWN:])
    return string[:SHOWN] + "".join(hidden)


def _spans(
    pattern: re.Pattern[str], line: str, is_one: Callable[[str], Any]
) -> Iterator[tuple[int, int]]:
    """Yield where a line has a string that fits a pattern and passes a check."""
    for match in pattern.finditer(line):
        if is_one(match[0]):
            yield match.span()


def _is_card(string: str, has_check_digit: Callable[[str], bool]) -> bool:
    digits = re.sub(r"\D", "", string)
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and has_check_digit(digits)


def _is_public(string: str) -> bool:
    try:
        return ipaddress.ip_address(string).is_global
    except ValueError:
        return False
