"""Answers in text by models of masked diffusion: what is masked, the loss, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.runs.continued import with_special
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tables.chat import ASSISTANT, USER, Message, to_text
from foreword.tables.examples import Labelled
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks._writing import AnswerForm, WritingTask
from foreword.tuning.tasks.chat import Chat
from foreword.tuning.tasks.prefer import Prefer
from foreword.tuning.tasks.text_to_text import TextToText
from foreword.tuning.tune_data import added_tokens, scoring_examples, template_for
from foreword.tuning.tune_result import save_network
from foreword.tuning.tuned_folder import Tuned
from foreword.tuning.tuned_model import TunedWriter
from tests.tuning.runs import make_run, tune

PAIRS = [("the film", "lovely"), ("a day in", "cold dull grim"), ("town we saw", "fine warm")]
EXAMPLES = [Labelled(text, answer) for text, answer in PAIRS]
ANSWERS = tuple(sorted(answer for _, answer in PAIRS))
CHATS = [
    Labelled(to_text([Message(USER, text), Message(ASSISTANT, answer)]), "1")
    for text, answer in PAIRS
]


def encoded(
    folder: Path, task: WritingTask, examples: Sequence[Labelled]
) -> tuple[AnswerExamples, TrainedModel]:
    trained = open_run(make_run(folder, "diffusion"), "cpu")
    trained = with_special(trained, added_tokens(trained, task))
    template = template_for(trained, task, None)
    labels = task.labels(examples)
    answers = scoring_examples(task, examples, labels, trained.tokenizer, template, trained)
    assert isinstance(answers, AnswerExamples)
    return answers, trained


@pytest.mark.parametrize(("task", "examples"), [(TextToText(), EXAMPLES), (Chat(12), CHATS)])
def test_the_loss_is_that_of_the_masked_answer_and_the_text_is_never_masked(
    tmp_path: Path, task: WritingTask, examples: list[Labelled]
) -> None:
    answers, trained = encoded(tmp_path, task, examples)
    mask, end = trained.vocab.id("[MASK]"), trained.vocab.id("</s>")
    network = build_network(trained, task, (), None)
    places = {n: 12 if isinstance(task, Chat) else 4 for n in range(3)}
    seen = set()
    for n, epoch in product(range(3), range(8)):
        (batch,) = answers.batches(np.asarray([n]), "cpu", epoch)
        example, size = answers.encoded[n], places[n]
        right = [*example.ids, *example.written, *[end] * (size - len(example.written))]
        [ids] = batch.batch.ids[:, : len(right)]
        hidden = ids != np.asarray(right)
        assert not hidden[: len(example.ids)].any()
        assert (ids[hidden] == mask).all()
        seen.add(int(hidden.sum()))
        # By hand: the mean of the masked tokens' nats times the number of the answer's positions.
        tokens = torch.from_numpy(np.asarray([ids]))
        states = network.run_backbone(replace(batch.to("cpu").batch, ids=tokens)).states[0]
        nats = -network.head(states).log_softmax(-1)[range(len(right)), right]
        by_hand = nats[torch.from_numpy(hidden)].mean() * size
        moved = batch.to("cpu")
        outputs = network.training_outputs(moved.features(network), moved.targets)
        loss = task.loss(outputs, moved.targets, moved.numbers)
        assert loss.total.item() == pytest.approx(by_hand.item(), rel=1e-4)
        assert loss.count.item() == pytest.approx(size)
    assert len(seen) > 3  # shares of all sizes


def test_to_score_two_readings_predict_each_token_once_without_bias(tmp_path: Path) -> None:
    """The mean over seeds is the mean over all masks of the loss of training."""
    answers, _ = encoded(tmp_path, TextToText(), EXAMPLES)
    which = np.asarray([1])
    scored = [next(answers.seeded(n).batches(which, "cpu")) for n in range(500)]
    tokens = answers.targets[1]
    for batch in scored[:20]:
        assert batch.targets[:, 0].tolist() == tokens.tolist()
        assert batch.columns.tolist() == sorted(batch.columns.tolist())
    # The weight of a token masked with s - 1 others is 1/s in each number s: in the mean 1.
    weights = np.stack([batch.targets[:, 1] for batch in scored])
    assert weights.mean(0) == pytest.approx(np.ones(len(tokens)), abs=0.12)


def test_neither_neighbours_nor_the_size_of_a_batch_change_an_example(tmp_path: Path) -> None:
    answers, trained = encoded(tmp_path, TextToText(), EXAMPLES)
    for epoch in (None, 3):
        (batch,) = answers.batches(np.arange(3), "cpu", epoch)
        states = trained.run_backbone(batch.batch).states[batch.rows, batch.columns]
        for n in range(3):
            (alone,) = answers.batches(np.asarray([n]), "cuda", epoch)  # wider rows
            expected = trained.run_backbone(alone.batch).states[alone.rows, alone.columns]
            where = batch.numbers == n
            assert np.array_equal(batch.targets[where], alone.targets)
            torch.testing.assert_close(states[where], expected, atol=1e-5, rtol=1e-5)
    by_seed = [next(answers.seeded(n).batches(np.arange(3), "cpu", 0)) for n in (1, 2)]
    assert not np.array_equal(by_seed[0].batch.ids, by_seed[1].batch.ids)


@pytest.mark.parametrize(
    ("task", "examples"),
    [(TextToText(), EXAMPLES), pytest.param(Chat(8), CHATS, marks=pytest.mark.full)],
)
def test_a_model_learns_pairs_by_heart_and_writes_them_back(
    tmp_path: Path, task: WritingTask, examples: list[Labelled]
) -> None:
    trained = open_run(make_run(tmp_path / "run", "diffusion"), "cpu")
    how = TuneSettings(
        strategy=Full(lr=1e-2), seeds=1, epochs=100, batch=48, precision="fp32", score_every=100
    )
    result = tune(trained, task, examples * 32, examples, how)
    if isinstance(task, TextToText):
        assert result.rows[0]["accuracy"] == 1
    else:
        assert result.rows[0]["perplexity"] < 2
        assert any("at most" in note for note in result.notes)
    save_network(result, tmp_path / "tuned")
    tuned = open_run(tmp_path / "tuned", "cpu")
    assert tuned.recipe.objective.end == "</s>"
    writer = TunedWriter(tuned, Tuned.read(tmp_path / "tuned"))
    asked = [text for text, _ in PAIRS]
    texts = (
        asked if isinstance(task, TextToText) else [[{"role": "user", "content": t}] for t in asked]
    )
    assert writer.predict(texts) == [answer for _, answer in PAIRS]


def test_preferences_are_refused_in_a_line(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "diffusion"), "cpu")
    with pytest.raises(UserError, match="only bounds are known; use --task chat"):
        AnswerForm.require_writer(trained, is_compared=Prefer().needs.has_reference)
