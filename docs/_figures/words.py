"""The pictures of subwords and word vectors."""

from __future__ import annotations

import re

import numpy as np

from _figures.drawing import ACCENT, DOCS, MUTED, squares, svg, text
from foreword.text import trace as bpe
from foreword.vectors.cooccurrence import learn_vectors

# 5. Subwords

DICTIONARY = {"low": 5, "lower": 2, "newest": 6, "widest": 3}


def merges() -> str:
    """The tree of merges of each word, with the number of the merge at each join."""
    steps = bpe.learn(DICTIONARY)
    number_of = {step.pair: number for number, step in enumerate(steps, 1)}
    width, level, left, parts = 24, 24, 20.0, list[str]()
    bottom = 24 + level * 4
    for word in (*DICTIONARY, "lowest"):
        symbols = [(letter, left + width * (n + 0.5), 0) for n, letter in enumerate(word)]
        parts += [text(x, bottom + 16, letter) for letter, x, _ in symbols]
        label = f"{word}, {DICTIONARY[word]} times" if word in DICTIONARY else f"{word}, unseen"
        parts.append(text(left + width * len(word) / 2, bottom + 34, label, fill=MUTED, size=11))
        for step in steps:
            merged, at = [], 0
            while at < len(symbols):
                pair = symbols[at : at + 2]
                if tuple(symbol for symbol, _, _ in pair) != step.pair:
                    merged.append(symbols[at])
                    at += 1
                    continue
                (a, xa, ha), (b, xb, hb) = pair
                high = max(ha, hb) + 1
                y = bottom - level * high
                path = f"M{xa},{bottom - level * ha} V{y} H{xb} V{bottom - level * hb}"
                parts.append(f'<path d="{path}" fill="none" stroke="{ACCENT}" stroke-width="1.5"/>')
                number = str(number_of[step.pair])
                parts.append(text((xa + xb) / 2 + 3, y - 4, number, "start", size=11))
                merged.append((a + b, (xa + xb) / 2, high))
                at += 2
            symbols = merged
        left += width * len(word) + 28
    return svg(left, bottom + 44, "Merges of byte-pair encoding as trees", parts)


# 6. Word vectors

LOOKED_UP = [
    "loss",
    "perplexity",
    "encoder",
    "decoder",
    "tokens",
    "words",
    "hours",
    "minutes",
    "seeds",
    "labels",
]


def counted() -> str:
    """Cosines of word vectors that are counted from the text of these documents."""
    prose = " ".join(file.read_text(encoding="utf-8") for file in sorted(DOCS.glob("**/*.md")))
    words = re.findall(r"[a-z]+", prose.lower())
    names = sorted(set(words))
    index = {name: n for n, name in enumerate(names)}
    ids = np.array([index[word] for word in words])
    is_word = np.ones(len(names), dtype=bool)
    vectors = learn_vectors([(ids, len(ids))], is_word, 32, 1).vectors
    chosen = vectors[[index[word] for word in LOOKED_UP]]
    cosines = np.clip(chosen @ chosen.T, 0, 1)
    return squares([("", cosines)], "Cosines of word vectors", LOOKED_UP, LOOKED_UP)
