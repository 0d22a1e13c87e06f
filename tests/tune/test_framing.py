from __future__ import annotations

from pathlib import Path

import pytest

from foreword.errors import UserError
from foreword.train.opened import open_run
from foreword.tune.framing import Frame, cut_pair, frame_of
from tests.tune.runs import make_run

BERT = Frame((2,), (3,), 8, reads_first=True, is_causal=False, has_segments=True)


def test_one_text_is_wrapped_and_cut() -> None:
    framed = BERT.wrap([10, 11])
    assert framed.ids.tolist() == [2, 10, 11, 3]
    assert not framed.was_cut
    framed = BERT.wrap(list(range(10, 20)))
    assert framed.ids.tolist() == [2, 10, 11, 12, 13, 14, 15, 3]
    assert framed.was_cut


def test_a_pair_has_two_segments_and_loses_tokens_of_the_longer_text() -> None:
    framed = BERT.wrap([10, 11, 12, 13, 14, 15], [20, 21])
    assert framed.ids.tolist() == [2, 10, 11, 12, 3, 20, 21, 3]
    assert framed.segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert framed.was_cut


def test_cut_pair_takes_tokens_one_by_one_from_the_longer() -> None:
    for n in range(9):
        for m in range(9):
            for room in range(2, 12):
                a, b = n, m
                while a + b > room:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                assert cut_pair(n, m, room) == (a, b), (n, m, room)


@pytest.mark.parametrize(
    ("layout", "text", "spot"),
    [
        ("encoder", ["[CLS]", "fine", "[SEP]"], 0),
        ("decoder", ["fine", "</s>"], 1),
        ("prefix", ["fine", "</s>"], 1),  # what ends the objective's source
        ("encoder_decoder", ["fine", "</s>"], 0),
    ],
)
def test_the_frame_follows_the_recipe(
    tmp_path: Path, layout: str, text: list[str], spot: int
) -> None:
    opened = open_run(make_run(tmp_path, layout), "cpu")
    frame = frame_of(opened.recipe, opened.vocab, None)
    framed = frame.wrap(opened.tokenizer.encode("fine"))
    assert [opened.tokenizer.token(i) for i in framed.ids] == text
    assert frame.spot(len(framed.ids)) == spot
    assert frame.length == 32
    assert (frame.start is not None) == (layout == "encoder_decoder")


def test_impossible_lengths_are_refused(tmp_path: Path) -> None:
    opened = open_run(make_run(tmp_path), "cpu")
    assert frame_of(opened.recipe, opened.vocab, 48).length == 48
    with pytest.raises(UserError, match="--max-length 49: the model has 48 positions"):
        frame_of(opened.recipe, opened.vocab, 49)
    with pytest.raises(UserError, match="no room"):
        frame_of(opened.recipe, opened.vocab, 4)
