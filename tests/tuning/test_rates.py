"""What chooses a learning rate, and what it may see."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast

import pytest

from foreword.errors import TrainingStoppedError, UserError
from foreword.tables.examples import Labelled
from foreword.tuning.drawing import hold_out
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.scores import single
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Judge
from foreword.tuning.tasks.chat import PerplexityJudge
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tune_and_save import tune_at_best_rate
from foreword.tuning.tune_result import TuneResult
from tests.tuning.runs import reviews

TRAIN = [e._replace(source=f"train:{n}") for n, e in enumerate(reviews(200, 1))]
DEV = [e._replace(source=f"dev:{n}") for n, e in enumerate(reviews(20, 2))]
VALUES = (1e-4, 3e-4, 1e-3)
SCORES = {1e-4: 0.6, 3e-4: 0.8, 1e-3: 0.7}


@dataclass
class Call:
    train: set[str]
    dev: set[str]
    settings: TuneSettings


class Tuner:
    """Stands for fine-tuning: notes what it is given and scores by the rate."""

    def __init__(self, scores: dict[float, float | None]) -> None:
        self.calls: list[Call] = []
        self._scores = scores

    def __call__(self, job: TuneJob, report: object) -> TuneResult:
        (settings,), examples = job.variants, job.examples
        sources = [{e.source for e in part} for part in (examples.train, examples.dev)]
        self.calls.append(Call(*sources, settings))
        score = self._scores[settings.strategy.lr]  # type: ignore[attr-defined]
        if score is None:
            raise TrainingStoppedError("not finite")
        scores = {"accuracy": score, "f1": 1 - score, "perplexity": 10 * score}
        nothing: dict[str, Any] = dict.fromkeys((f.name for f in fields(TuneResult)), ())
        return TuneResult(
            **nothing | {"rows": [single("pretrained", "full", scores)], "further": {}}
        )


@dataclass(frozen=True)
class Perplexed(Classify):
    """A task with a score of which the lower one is better."""

    judge: ClassVar[Judge] = PerplexityJudge()


def choose(tuner: Tuner, task: Classify | None = None, **settings: Any) -> TuneResult:
    chosen_on = settings.pop("chosen_on", "train")
    examples = Examples(settings.pop("train", TRAIN), DEV)
    variants = [TuneSettings(seeds=3, **settings)]
    job = TuneJob(task or Classify(), examples, variants, VALUES, chosen_on)
    return tune_at_best_rate(job, tuner, cast("Any", lambda name: None))


def chosen(result: TuneResult) -> float:
    return float(result.further["rate"]["chosen"])


def test_trials_see_neither_the_dev_set_nor_the_examples_that_score_them() -> None:
    tuner = Tuner(dict(SCORES))
    result = choose(tuner)
    *tried, last = tuner.calls
    everything = {e.source for e in TRAIN}
    for call in tried:
        assert call.settings.seeds == 1
        assert len(call.dev) == 20
        assert call.train | call.dev == everything
        assert not call.train & call.dev
    assert tried[0].dev == tried[2].dev
    # The best rate then trains every seed on all examples, and the dev set scores it.
    assert (last.train, last.dev) == (everything, {e.source for e in DEV})
    assert last.settings.seeds == 3
    assert last.settings.strategy.lr == chosen(result) == 3e-4  # type: ignore[attr-defined]
    trials = [(trial["lr"], trial["score"]) for trial in result.further["rate"]["trials"]]
    assert trials == [(1e-4, 0.6), (3e-4, 0.8), (1e-3, 0.7)]
    assert "0.0003 chosen by accuracy on 20 training examples held out" in result.notes[-1]


def test_the_metric_that_chooses_can_be_named() -> None:
    assert chosen(choose(Tuner(dict(SCORES)), metric="f1")) == 1e-4


def test_the_lowest_perplexity_is_the_best() -> None:
    tuner = Tuner(dict(SCORES))
    assert chosen(choose(tuner, Perplexed(), metric="perplexity")) == 1e-4


def test_a_rate_whose_score_is_no_number_is_not_chosen() -> None:
    assert chosen(choose(Tuner({**SCORES, 1e-4: float("nan")}))) == 3e-4


def test_the_dev_set_chooses_where_it_is_told_to_and_this_is_said() -> None:
    tuner = Tuner(dict(SCORES))
    result = choose(tuner, chosen_on="dev")
    assert len(tuner.calls) == 3  # the best trial is the result
    assert all(call.settings.seeds == 3 and len(call.dev) == 20 for call in tuner.calls)
    assert result.rows[0]["accuracy"] == 0.8
    assert "on the dev examples themselves, whose scores are therefore a little" in result.notes[-1]


def test_few_examples_are_drawn_before_some_are_held_out() -> None:
    tuner = Tuner(dict(SCORES))
    choose(tuner, examples=100)
    assert [len(call.train) for call in tuner.calls] == [90, 90, 90, 200]
    assert [call.settings.examples for call in tuner.calls] == [None, None, None, 100]


def test_a_rate_that_diverges_is_passed_over() -> None:
    tuner = Tuner({**SCORES, 3e-4: None})
    result = choose(tuner)
    assert chosen(result) == 1e-3
    assert "0.0003 (diverged)" in result.notes[-1]


def test_divergence_at_every_rate_is_an_error() -> None:
    with pytest.raises(TrainingStoppedError, match=r"diverged at every learning rate: 0\.0001, "):
        choose(Tuner(dict.fromkeys(VALUES)))


def test_too_few_examples_to_hold_some_out_are_refused() -> None:
    with pytest.raises(UserError, match=r"--lr: 50 training examples are too few to choose a lear"):
        choose(Tuner(dict(SCORES)), train=TRAIN[:50])


def test_a_part_is_held_out_of_more_labels_than_it_has_examples() -> None:
    examples = [Labelled(f"text {n}", f"label {n % 40}", None, f"t:{n}") for n in range(120)]
    rest, part = hold_out(examples, 12, Classify())
    assert len(rest) == 108
    assert len(part) == 12
    assert not {e.source for e in rest} & {e.source for e in part}


def test_a_label_that_only_the_part_has_is_not_scored() -> None:
    examples = [Labelled("a", str(n % 2), None, f"t:{n}") for n in range(99)]
    rest, part = hold_out([*examples, Labelled("b", "once", None, "t:99")], 10, Classify())
    assert {e.label for e in part} <= {e.label for e in rest}
