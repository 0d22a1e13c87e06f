"""Looking inside of models: the requests of the page's panels, each a row of results."""

from __future__ import annotations

from foreword.serving.looks import (
    aligned,
    attention,
    beams,
    counts,
    next_token,
    pieces,
    text,
    words,
)

LOOKS = {
    "text": text.TEXT,
    "lens": text.LENS,
    "next": next_token.NEXT,
    "beam": beams.BEAM,
    "alignment": aligned.ALIGNMENT,
    "attention": attention.ATTENTION,
    "word": words.WORD,
    "analogy": words.ANALOGY,
    "counts": counts.COUNTS,
    "pieces": pieces.PIECES,
}
