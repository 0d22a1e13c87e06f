"""User names, passwords and signatures in URLs, which stay out of files, pages and messages.

`masked` is applied where text leaves the program: by the writers of JSON and TOML, errors, lines on
the error stream, results and pages. Whole URLs are only in `FOREWORD_URLS`, where the processes
that this one starts find them; it may be set by hand to give credentials that a run did not keep.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

VARIABLE = "FOREWORD_URLS"  # whole URLs, separated by spaces
MASK = "***"
_USER = re.compile(  # also one with a slash, which no URL may have
    r"(?<=[A-Za-z0-9+.-]{2}:/)(/?)(?:[^\s/?#<>]*|[^\s/?#:@<>]+:(?!\d+[/?#])[^\s@<>]*)@"
)
_SECRET = (
    r"[\w.-]*(?:signature|token|secret|passw(?:or)?d|credential|api[-_]?key|access[-_]?key(?:id)?)"
    "|sig|auth|authorization|key|key-pair-id|policy|pwd|hmac|md5"
)
_QUERY = re.compile(
    rf"(?<=\S)\?(?=(?:[^\s\"'<>]*[&;])?(?:{_SECRET})=)[^\s\"'<>]*[^\s\"'<>:;,.]", re.IGNORECASE
)


def masked(text: str) -> str:
    """Return a text with `***` for the credentials of each URL in it.

    A query is masked as a whole if one of its parameters is known to be secret.
    """
    if ":/" in text and "@" in text:
        text = _USER.sub(rf"\1{MASK}@", text)
    return _QUERY.sub(f"?{MASK}", text) if "?" in text and "=" in text else text


def masked_values(value: Any) -> Any:
    """Return a JSON value with each text in it masked."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {masked_values(key): masked_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked_values(item) for item in value]
    return value


def remember(url: str) -> None:
    """Keep the credentials of a URL for this process and those that it starts; the latest count."""
    if masked(url) != url and MASK not in url:
        others = (other for other in _remembered() if other != url)
        os.environ[VARIABLE] = " ".join([*others, url])


def with_credentials(url: str) -> str:
    """Return a URL with the credentials given for it, for its folder or for its pattern.

    Without any, it is returned as it is.
    """
    place, _, query = url.partition("?")
    for given in reversed(_remembered()):
        bare, _, secret_query = given.partition("?")
        shown, _, shown_query = masked(given).partition("?")
        lead = len(shown) - len(bare)  # by how much masking changes the length
        before_pattern = re.split(r"[*\[]", shown.replace(MASK, "---"))[0]  # as long
        is_pattern = len(before_pattern) < len(shown)
        length = before_pattern.rfind("/") if is_pattern else len(shown.rstrip("/"))
        folder = shown[:length]
        if query == shown_query and (place == shown or place.startswith(f"{folder}/")):
            secret_query = f"?{secret_query}" if query else ""
            return bare[: length - lead] + place[length:] + secret_query
    return url


def _remembered() -> list[str]:
    return os.environ.get(VARIABLE, "").split()
