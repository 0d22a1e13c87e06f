from __future__ import annotations

import random
from itertools import chain, pairwise

import pytest

from foreword.testing.tokenizers import SENTENCES
from foreword.text.sentences import iterate, split
from foreword.text.tokenizer import Tokenizer

TEXTS = [
    *SENTENCES,
    "",
    "One. ",
    "  Begins with space. Then more.  Two spaces.\tA tab.\n\n\nNew lines.\r\nWindows. Ends.\n",
    'He met Dr. Smith at 3.14 p.m. "Really?" she said. "Yes." (Truly.) So… Then! What?! 4. A list.',
    "문학은 예술이다. 언어를 보라! 왜?\n\n제목\n\n끝이다.",
    "A title\n\nA line\nwrapped. [MASK] <s>. </s> \u200b\nB.\u00a0C. \u3000D. e\u0301. \u0301f",
    "...\n\n...\n \n!!! [A. <B. ▁C. ##D. 'S. \x01. \x1c. \x85. X",
]


def test_text_is_split_into_sentences() -> None:
    text = (
        'He met Dr. J. R. Smith at 3.14 p.m. "Really?" she said. (Yes.) No. 5 won. No. It... did.'
    )
    assert split(text) == [
        "He met Dr. J. R. Smith at 3.14 p.m.",
        ' "Really?" she said.',
        " (Yes.)",
        " No. 5 won.",
        " No.",
        " It... did.",
    ]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("After World War I. The end. The U.S. Navy.", 3),
        ("e.g. Paris, i.e. France, vs. Prof. Müller on Jan. 5.", 1),
        ("He left. élan stayed. Ça va. Ähm.", 3),
        ("문학은 예술이다. 언어를 보라! 왜?", 3),
        ("वह आया। वह गया॥ ما هذا؟ هذا كتاب. آیا۔ وہ", 6),
        ("A title\n\nA paragraph\nwrapped.\n\n\n", 2),
        ("Line one.\r\n\r\nLine two\r\n\r\nLine three", 3),
        ("", 0),
        (" \n\n ", 1),
    ],
)
def test_texts_have_the_expected_number_of_sentences(text: str, pieces: int) -> None:
    assert len(split(text)) == pieces


def _fuzz() -> list[str]:
    rng = random.Random(7)
    parts = [*". . ! ? … \n \n\n \r\n \t", " ", "  ", "The", "a", "문학", "é", "\u0301", "'s", '"']
    parts += ["[", "<", "]", "3", "▁", "##", "Dr", "👍", *"\u200b\u00a0\u3000\x1c\x85"]
    return ["".join(rng.choices(parts, k=rng.randrange(30))) for _ in range(600)]


def test_joined_pieces_are_the_text() -> None:
    for text in TEXTS + _fuzz():
        pieces = split(text)
        assert "".join(pieces) == text
        assert all(pieces)


def test_pieces_have_the_ids_of_the_whole(tokenizer: Tokenizer) -> None:
    texts = TEXTS + _fuzz()
    assert sum(len(split(text)) > 1 for text in texts) > 100
    for text, whole in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert list(chain(*tokenizer.encode_batch(split(text)))) == whole, repr(text)


def test_text_in_blocks_has_the_sentences_of_the_whole() -> None:
    rng = random.Random(8)
    for text in TEXTS + _fuzz():
        for longest in (1, 3, 9):
            cuts = [0]
            while cuts[-1] < len(text):
                cuts.append(cuts[-1] + rng.randint(1, longest))
            blocks = [text[a:b] for a, b in pairwise(cuts)]
            assert list(iterate(blocks)) == split(text), blocks


@pytest.mark.full
def test_long_runs_cost_no_more_than_their_length() -> None:
    """Each of these takes hours where the pattern backtracks."""
    for unit in (".", "\n", " .", ".\n", '."', "a\n", ". "):
        text = unit * 300_000 + "x"
        assert "".join(split(text)) == text
        blocks = [text[at : at + 20_000] for at in range(0, len(text), 20_000)]
        assert "".join(iterate(blocks)) == text
