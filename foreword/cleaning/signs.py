"""Signs that a text needs another step: what is left of HTML, cookie notices, addresses."""

from __future__ import annotations

import re
from html.entities import html5

from foreword.cleaning.personal import EMAIL

NAMES = """a abbr address article aside audio b big blockquote body br button caption center cite
code col dd del div dl dt em embed fieldset figcaption figure font footer form h[1-6] head header hr
html i iframe img input ins kbd label li link main map mark meta nav noscript object ol option p
param picture pre q s samp script section select small source span strike strong style sub summary
sup svg table tbody td textarea tfoot th thead time title tr tt u ul var video wbr"""
TAG = rf"/?(?:{'|'.join(NAMES.split())})(?=[\s/>])[^<>]*>"
MARKUP = re.compile(rf"<(?:{TAG}|!--|!doctype\b)", re.I)
ENTITY = re.compile(r"&(#\d+;|#x[\da-f]+;|\w+;)", re.I)
ATTRIBUTE = re.compile(r"\b(?:class|style|href|onclick)\s*=\s*[\"']", re.I)
COOKIES = re.compile(r"\b(?:accept (?:all )?cookies|(?:we|site|website) uses? cookies)\b", re.I)

HTML, COOKIE_NOTICES, ADDRESSES = "look like HTML", "ask about cookies", "contain e-mail addresses"
STEPS = {HTML: "html", COOKIE_NOTICES: "c4", ADDRESSES: "personal"}  # that treat them


def has_markup(text: str) -> bool:
    """Return whether a text has tags, comments or entities of HTML."""
    if "<" in text and MARKUP.search(text):
        return True
    names = ENTITY.findall(text) if "&" in text else []
    return any(name.startswith("#") or name in html5 for name in names)


def signs_of(text: str) -> list[str]:
    """Return the signs that a text shows."""
    found = {
        HTML: has_markup(text) or bool("=" in text and ATTRIBUTE.search(text)),
        COOKIE_NOTICES: bool(COOKIES.search(text)),
        ADDRESSES: bool("@" in text and EMAIL.search(text)),
    }
    return [sign for sign, is_shown in found.items() if is_shown]
