from __future__ import annotations

import pytest

from foreword.settings import kinds
from foreword.testing.tokenizers import CORPUS
from foreword.text.tokenizer import Tokenizer

SETTINGS = {
    "wordpiece": {"vocab": 320},
    "bpe": {"vocab": 560},
    "unigram": {"vocab": 240},
    "word": {},
    "char": {},
}


@pytest.fixture(scope="session")
def trained() -> dict[str, Tokenizer]:
    """A small tokenizer of every kind there is."""
    return {
        kind: kinds.load("text/tokenizers", kind)(**SETTINGS.get(kind, {})).train(iter(CORPUS))
        for kind in kinds.names("text/tokenizers")
    }


@pytest.fixture(params=kinds.names("text/tokenizers"))
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    return trained[request.param]
