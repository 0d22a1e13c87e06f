"""Prompts, blanks and sources in the input forms of each objective with a source."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.evaluation.decoding import decode, generate, start_of
from foreword.evaluation.filling import fill
from foreword.evaluation.sampling import GREEDY, Sampling
from foreword.runs.trained_model import TrainedModel
from tests.evaluation.conftest import Make


def tokens_of(prompted: TrainedModel, prompt: str) -> tuple[list[str], list[str]]:
    """Return the tokens of a prompt's source and of the beginning of its target."""
    start = start_of(prompted, prompt)
    assert start.source is not None
    name = prompted.tokenizer.token
    return [name(int(i)) for i in start.source], [name(int(i)) for i in start.target]


@pytest.mark.parametrize(
    ("family", "source", "target"),
    [
        ("encoder_decoder", ["<s>", "The", "cat", "<extra_id_0>", "</s>"], ["<extra_id_0>"]),
        ("goes_on", ["<s>", "The", "cat", "</s>"], []),
        ("deshuffles", ["<s>", "The", "cat", "</s>"], []),
        ("mixture", ["<extra_id_97>", "<s>", "The", "cat", "</s>"], []),
    ],
)
def test_a_prompt_has_the_form_of_training(
    make_prompted: Make, family: str, source: list[str], target: list[str]
) -> None:
    prompted = make_prompted(family)
    assert tokens_of(prompted, "The cat") == (source, target)
    assert generate(prompted, ["The cat"], GREEDY)[0].tokens >= 0


def test_a_mixture_uses_the_mode_that_fits_the_prompt(make_prompted: Make) -> None:
    prompted = make_prompted("mixture", length=64)
    blank = ["<extra_id_99>", "<s>", "The", "<extra_id_0>", "sat", "</s>"]
    assert tokens_of(prompted, "The <extra_id_0> sat") == (blank, [])
    with_mode = ["<extra_id_98>", "<s>", "The", "cat", "</s>"]
    assert tokens_of(prompted, "<extra_id_98> The cat") == (with_mode, [])
    assert prompted.uses_sentinels
    assert prompted.reads_plain
    assert len(fill(prompted, "The [MASK] sat.").blanks) == 1


@pytest.mark.parametrize("family", ["goes_on", "deshuffles"])
def test_the_name_of_a_special_token_in_a_plain_source_is_text(
    make_prompted: Make, family: str
) -> None:
    prompted = make_prompted(family)
    names, target = tokens_of(prompted, "The </s> [MASK] <extra_id_0>")
    assert not {"[MASK]", "<extra_id_0>"} & set(names) and names.count("</s>") == 1
    assert target == []


@pytest.mark.parametrize("family", ["goes_on", "deshuffles"])
def test_models_without_sentinels_do_not_fill_blanks(make_prompted: Make, family: str) -> None:
    prompted = make_prompted(family)
    assert not prompted.uses_sentinels
    with pytest.raises(UserError, match="does not fill blanks; it answers a source"):
        fill(prompted, "The [MASK] sat.")


@pytest.mark.parametrize(
    ("family", "prompt", "is_allowed"),
    [
        ("goes_on", "The cat", False),
        ("mixture", "The cat", False),
        ("mixture", "The <extra_id_0> sat", True),
        ("encoder_decoder", "The <extra_id_0> sat", True),
    ],
)
def test_sentinels_are_generated_only_if_the_source_calls_for_them(
    make_prompted: Make, family: str, prompt: str, is_allowed: bool
) -> None:
    prompted = make_prompted(family)
    weight = prompted.model.token_head.weight
    with torch.no_grad():  # make sentinels the likeliest tokens
        weight[torch.from_numpy(prompted.vocab.sentinels)] *= 50
    start = start_of(prompted, prompt)
    hot = Sampling(tokens=6, temperature=1.0)
    text = decode(prompted, [start], hot, np.empty(0, dtype=np.int64))[0]
    assert bool(np.isin(text.ids, prompted.vocab.sentinels).any()) == is_allowed
