"""The language of a text, by `py3langid`, whose model ships in its package (Lui and Baldwin 2012).

It tells 97 languages apart, by ISO 639-1 codes: `en`, `ko`. Of short texts it is often uncertain,
and rules for any language judge those.
"""

from __future__ import annotations

import functools
from typing import Any

LOOKED_AT = 1000  # characters: the first ones and as many from the middle
UNKNOWN, CERTAIN = "unknown", 0.5  # the name of a language that is less probable than that
LANGUAGE, PROBABILITY = "language", "language_probability"  # keys of a document's metadata


def identify(document: Any) -> str:
    """Return the language of datatrove's `document`, which then carries it."""
    if LANGUAGE not in document.metadata:
        text = document.text
        if len(text) > LOOKED_AT:
            half, middle = LOOKED_AT // 2, len(text) // 2
            text = text[:half] + " " + text[middle : middle + half]
        code, probability = _identifier().classify(text)
        document.metadata[LANGUAGE] = str(code) if probability >= CERTAIN else UNKNOWN
        document.metadata[PROBABILITY] = round(float(probability), 3)
    language: str = document.metadata[LANGUAGE]
    return language


def codes() -> list[str]:
    """Return the codes of the languages that can be identified."""
    return sorted(map(str, _identifier().labels))


@functools.cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
