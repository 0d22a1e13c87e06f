"""The contract of fine-tuning tasks: a function for each promise."""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace

import numpy as np
import torch

from foreword.errors import UserError
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tables.examples import Labelled
from foreword.testing.models import tiny_model
from foreword.tuning.input_template import template_of
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tune import tune

GOOD = ("lovely", "fine", "warm", "bright")
BAD = ("awful", "cold", "dull", "grim")
OTHER = ("the", "film", "was", "and", "a", "day", "in", "town", "we", "saw")
TEXTS = [" ".join(GOOD + BAD + OTHER)] * 3
LABELS = ("1", "4")  # words and numbers alike
FAST = TuneSettings(strategy=Full(lr=1e-3), seeds=2, epochs=1, precision="fp32")


def check_task(task: Task, examples: Sequence[Labelled] | None = None) -> None:
    """Check all that a task promises, on an encoder-decoder, or on a decoder if it has a reference.

    Args:
        task: settings of the kind, a frozen dataclass.
        examples: at least 30, in which every label is frequent; by default texts with a telling
            word, labelled `1` and `4`, which a task that `reads_texts` can read.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(task)), "a task is a frozen dataclass"
    if examples is None:
        examples = reviews(40, 1)
    for check in TASK_CHECKS:
        check(task, examples)


def reviews(count: int, seed: int) -> list[Labelled]:
    """Return texts with one telling word each."""
    rng = random.Random(seed)
    examples = []
    for n in range(count):
        words = rng.choices(OTHER, k=rng.randint(1, 8))
        words.insert(rng.randint(0, len(words)), rng.choice((BAD, GOOD)[n % 2]))
        examples.append(Labelled(" ".join(words), LABELS[n % 2]))
    return examples


def check_its_settings_read_back_equal(task: Task, examples: Sequence[Labelled]) -> None:
    """Check that the settings survive a recipe's TOML."""
    del examples
    table = tomllib.loads(config.dumps(config.to_table(task)))
    assert config.build(type(task), table, "task") == task, "settings read back differently"


def check_the_loss_is_a_sum_and_a_count(task: Task, examples: Sequence[Labelled]) -> None:
    """Check that parts of a batch have losses and counts that add up to the whole's."""
    labels = task.labels(examples)
    head, random = task.head(16, labels), torch.Generator().manual_seed(1)
    if head is None:  # it answers in text: outputs are nats
        right = torch.arange(len(examples)) % 2
        outputs = torch.randn(len(right), 2, generator=random)
        if task.needs.has_reference:  # the token, another number of it, and the reference's nats
            right = torch.stack([right, right, right], dim=1).double()
    else:
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter, generator=random)
        trained = _model(task, TEXTS)
        template = template_of(trained.recipe, trained.vocab, None)
        template = replace(template, start=None) if task.needs.reads_tokens else template
        encoded = task.encode(examples, trained.tokenizer, template)
        placed = task.targets(examples, labels, encoded)
        targets = [np.atleast_1d(target) for target in placed]
        right = torch.from_numpy(np.concatenate(targets))
        outputs = head.eval()(torch.randn(len(right), 16, generator=random))
    numbers, middle = torch.arange(len(right)), len(right) // 3
    whole = task.loss(outputs, right, numbers)
    if task.needs.loss_unit == "batch":  # it has no parts
        assert whole.count.item() == len(examples), "the count is not that of the examples"
        return
    first = task.loss(outputs[:middle], right[:middle], numbers[:middle])
    second = task.loss(outputs[middle:], right[middle:], numbers[middle:])
    total, count = (first.total + second.total).item(), (first.count + second.count).item()
    assert math.isclose(total, whole.total.item(), rel_tol=1e-5), "losses of parts do not add up"
    assert count == whole.count.item() == len(right), "the count is not that of the outputs"


def check_it_scores_a_network_and_a_baseline_alike(
    task: Task, examples: Sequence[Labelled]
) -> None:
    """Check that scores of single texts and of pairs are finite, and a chance baseline's.

    The baseline has the first metric, nan where it is undefined; it may lack others, which need
    what a network alone gives.
    """
    for pair in (
        (None, "we saw the day")
        if task.reader.takes_texts and not task.reader.compares_texts
        else (None,)
    ):
        with_pair = [example._replace(pair=pair or example.pair) for example in examples]
        trained = _model(task, [*TEXTS, *(e.text for e in examples)])
        examples_of_both = Examples(with_pair[10:], with_pair[:10])
        result = tune(trained, TuneJob(task, examples_of_both, [FAST]))
        tuned, *baselines = (row for row in result.rows if row.strategy != "not tuned")
        metrics = list(tuned.metrics)
        assert all(math.isfinite(tuned[name]) for name in metrics), "a score is not finite"
        assert {*metrics} <= {*(task.judge.names or metrics)}, "names lack a score"
        assert baselines, "there is no baseline"
        for row in baselines:
            names = list(row.metrics)
            assert names[0] == metrics[0] and {*names} <= {*metrics}, "metrics differ"
            assert not any(math.isinf(row[name]) for name in names), "a baseline is not finite"
            assert row.start == "no model"
        assert result.settings["task"]["kind"] == kinds.name_of(task)


def check_without_a_dev_example_it_is_refused(task: Task, examples: Sequence[Labelled]) -> None:
    """Check that fine-tuning without a dev example is refused."""
    trained = _model(task, TEXTS)
    try:
        tune(trained, TuneJob(task, Examples(examples, []), [FAST]))
    except UserError as error:
        assert "no dev example" in str(error)
        return
    raise AssertionError("fine-tuning without a dev example is accepted")


def _model(task: Task, texts: Sequence[str]) -> TrainedModel:
    return tiny_model("decoder" if task.needs.has_reference else "encoder_decoder", texts)


TASK_CHECKS: tuple[Callable[[Task, Sequence[Labelled]], None], ...] = (
    check_its_settings_read_back_equal,
    check_the_loss_is_a_sum_and_a_count,
    check_it_scores_a_network_and_a_baseline_alike,
    check_without_a_dev_example_it_is_refused,
)
