"""What each step keeps, drops and changes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove")
pytest.importorskip("py3langid")

from datatrove.data import Document
from datatrove.pipeline import filters

from foreword.cleaning.signs import signs_of
from foreword.cleaning.steps._contract import CorpusStep, DocumentStep
from foreword.cleaning.steps.c4 import C4
from foreword.cleaning.steps.decontaminate import Decontaminate
from foreword.cleaning.steps.fineweb import FineWeb
from foreword.cleaning.steps.gopher_quality import GopherQuality
from foreword.cleaning.steps.gopher_repetition import GopherRepetition
from foreword.cleaning.steps.html import HTML
from foreword.cleaning.steps.language import Language
from foreword.cleaning.steps.personal import Personal
from foreword.cleaning.words import WORDS
from foreword.errors import UserError
from foreword.settings import kinds
from tests.cleaning.texts import korean, prose

THEIRS: list[tuple[DocumentStep, Any]] = [
    (GopherQuality(), filters.GopherQualityFilter),
    (GopherRepetition(), filters.GopherRepetitionFilter),
    (C4(), filters.C4QualityFilter),
    (FineWeb(), filters.FineWebQualityFilter),
]
TEXTS = [
    prose(1),
    "Too short.",
    "the same line again and again\n" * 40,
    "\n".join(f"- item {n} of the list" for n in range(60)),
    "One, two. Three, four! Five, six? Seven, eight. Nine, ten.\nmenu\nWe use cookies here to.\n",
    prose(2).replace(".", " {x}.", 1),
    prose(3) + "\n" + "\n".join("ab" for _ in range(80)),
    "### ... " * 60,
    korean(1),
]


def document(text: str) -> Any:
    return Document(text, "source")


def opened(step: DocumentStep, folder: Path) -> Any:
    step.prepare(folder)
    return step.opened(folder)


@pytest.mark.parametrize(("step", "theirs"), THEIRS, ids=lambda one: getattr(one, "__name__", ""))
def test_defaults_decide_as_datatrove_does(step: DocumentStep, theirs: Any, tmp_path: Path) -> None:
    ours, plain = opened(step, tmp_path), theirs(language=WORDS)

    def settings(made: Any) -> dict[str, Any]:
        values = {name: v for name, v in vars(made).items() if name not in ("stats", "_lines")}
        values.pop("max_doc_words", None)
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}

    assert settings(ours) == settings(plain)
    pairs = [(document(text), document(text)) for text in TEXTS]
    decisions = [(ours.filter(one), plain.filter(other)) for one, other in pairs]
    assert all(mine == their for mine, their in decisions)
    assert {mine is True for mine, _ in decisions} == {True, False}
    assert all(one.text == other.text for one, other in pairs)


def test_repetition_is_found_as_datatrove_finds_it(tmp_path: Path) -> None:
    ours, plain = GopherRepetition().opened(tmp_path), THEIRS[1][1](language=WORDS)
    draw, verdicts = random.Random(0), []
    for seed in range(60):
        words = prose(seed, 30).split(" ")
        for _ in range(draw.randrange(8)):  # a phrase of some words, said again
            at, length = draw.randrange(len(words) - 40), draw.randrange(2, 30)
            words[at:at] = words[at + 10 : at + 10 + length] * draw.randrange(1, 4)
        text = " ".join(words)
        verdicts.append(plain.filter(document(text)))
        assert ours.filter(document(text)) == verdicts[-1]
    assert {verdict is True for verdict in verdicts} == {True, False}
    for text in ("a", "a b", "a b c d e", "a a a a a a", "one two " * 30):
        assert ours.filter(document(text)) == plain.filter(document(text))


def test_decisions_are_those_with_the_words_of_spacy(tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    for step, theirs in THEIRS:
        ours, plain = opened(step, tmp_path), theirs()
        for text in TEXTS[:-1]:
            assert ours.filter(document(text)) == plain.filter(document(text)), (theirs, text)


def test_stricter_thresholds_drop_more_and_laxer_ones_less(tmp_path: Path) -> None:
    text = document(" ".join(prose(1).split()[:55]))  # of 50 words or more
    step = GopherQuality()
    stricter, laxer = step.shifted(0.2), step.shifted(-0.2)
    assert stricter is not None and stricter.min_words == 60 and stricter.max_words == 80_000
    assert laxer is not None and laxer.min_words == 40
    assert [one.opened(tmp_path).filter(text) for one in (laxer, step)] == [True, True]
    assert stricter.opened(tmp_path).filter(text) == (False, "gopher_short_doc")


@pytest.mark.parametrize("name", kinds.names("cleaning/steps"))
def test_every_step_is_of_documents_or_of_the_corpus(name: str) -> None:
    assert issubclass(kinds.load("cleaning/steps", name), DocumentStep | CorpusStep)


def test_languages_are_kept_by_code(tmp_path: Path) -> None:
    judge = opened(Language(keep=("ko",)), tmp_path)
    kept, english = document(korean(1)), document(prose(1))
    assert judge.filter(kept) is True and kept.metadata["language"] == "ko"
    assert judge.filter(english) == (False, "language en")
    assert opened(Language(min_probability=1.0), tmp_path).filter(document("a"))[0] is False
    with pytest.raises(UserError, match="no language 'kr'"):
        Language(keep=("kr",)).prepare(tmp_path)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".txt"])
def test_overlap_with_an_evaluation_set_is_dropped(suffix: str, tmp_path: Path) -> None:
    question = "which of the two old bridges over the silver river was built before the war"
    file = tmp_path / f"test set{suffix}"
    records: Any = {"data": [{"question": question, "answers": ["the old one"]}]}
    file.write_text(question if suffix == ".txt" else json.dumps(records))
    judge = opened(Decontaminate(files=(str(file),)), tmp_path / "index")
    found = document(f"{prose(1)} WHICH of the two old bridges, over the silver river, was built!")
    assert judge.filter(found) == (False, "contaminated")
    assert judge.filter(document(prose(1))) is True


def test_an_evaluation_set_that_cannot_be_found_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "short.txt"
    file.write_text("a few words\n")
    for files, message in [((), "required"), ((str(file),), "12 words"), (("no.txt",), "No such")]:
        with pytest.raises(UserError, match=message):
            Decontaminate(files=files).prepare(tmp_path / "index")


def test_personal_strings_become_the_name_of_their_kind(tmp_path: Path) -> None:
    for name in ("phonenumbers", "stdnum", "detect_secrets"):
        pytest.importorskip(name)
    text = document("Write to jane@mail.example.org\nor from 8.8.8.8, she said.\n")
    judge = opened(Personal(kinds=("e-mail address",)), tmp_path)
    assert judge.filter(text) is True
    assert text.text == "Write to [e-mail address]\nor from 8.8.8.8, she said.\n"
    assert judge.details == {"e-mail address replaced": 1}
    with pytest.raises(UserError, match="no kind 'email'"):
        Personal(kinds=("email",)).prepare(tmp_path)


@pytest.mark.parametrize(
    ("text", "stripped", "signs"),
    [
        ("Good.<br /><br />Bad &amp; long.\n\nEnd.", "Good.\n\nBad & long.\n\nEnd.", ["HTML"]),
        ("<p class='a'>One\nline.</p><p>Two.</p>", "One line.\n\nTwo.", ["HTML"]),
        ("Before\n<script>\nif (a<b) x()\n</script>\nafter", "Before\n\nafter", ["HTML"]),
        ("<!-- note -->5 &lt; 6, it&#39;s", "5 < 6, it's", ["HTML"]),
        ("a < b, x<y>z,  AT&T; 1<p", None, []),
        ('class="wide" of a cut table', None, ["HTML"]),
        ("We use cookies. Accept cookies", None, ["cookies"]),
        ("Write to <jane@mail.example.org>", None, ["addresses"]),
        ("<b>" * 1200 + "deep", None, ["HTML"]),
    ],
)
def test_html_is_stripped_and_what_needs_a_step_is_seen(
    text: str, stripped: str | None, signs: list[str], tmp_path: Path
) -> None:
    judge, read = opened(HTML(), tmp_path), document(text)
    assert judge.filter(read) is True
    assert read.text == (text if stripped is None else stripped)
    assert [sign.split()[-1] for sign in signs_of(text)] == signs
    assert sum(judge.details.values()) == ("deep" in text)
