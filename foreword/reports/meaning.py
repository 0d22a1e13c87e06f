"""What the figures mean, in sentences made from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from foreword.evaluation.statistics import LEVEL, Interval, Spread, difference, half_width_of_share
from foreword.formatting import at_most, figure
from foreword.reports.folder import Record, number
from foreword.tuning.scores import as_gain, is_lower_better, metric_name
from foreword.tuning.tasks._contract import BOUND

# Metrics that people read in percent and points.
SHARES = ("accuracy", "f1", "entity_f1", "answer_f1", "exact_match")
PRETRAINED, SCRATCH = "pretrained", "from scratch"
COUNTS = {
    "unigram counts": "by its frequency alone",
    "bigram counts": "by its frequency after the token before",
}
NOT_BETTER = {
    "unigram counts": "It has not learned more than frequencies tell.",
    "bigram counts": "It has learned more than frequencies tell, not more than pairs of tokens do.",
}
SUM_OF_LOSSES = "{total} nats, a sum of which its tokens are {part}"
# What a difference says about pretraining: with one seed, above zero, below it, or around it.
GAINS = {
    "one seed": "Pretraining {verb} {over}; with one seed there is no interval over seeds, so this "
    "may be chance.",
    "known": "Pretraining {verb} {over} ({interval}).",
    "unknown": "Against {over} the difference is {mean} {what} ({interval}): the interval includes "
    "zero, so these runs do not show that pretraining helps.",
}
VERBS = {  # by whether a lower score is better: of a higher mean, of a lower one
    False: ("adds {amount} over", "costs {amount} against"),
    True: ("raises {what} by {points} against", "lowers {what} by {points} against"),
}
SEEDS_AND_EXAMPLES = "The interval is over seeds of fine-tuning and examples."
SEEDS_ALONE = (
    "The interval is over seeds of fine-tuning; having {dev:,} examples to score moves an accuracy "
    "by up to ± {half:.1f} points besides."
)


def loss_sentence(rows: Sequence[Record], prediction: str, text: str = "held-out text") -> str:
    """Return what a held-out loss means, next to those of counts; "" without a loss.

    Args:
        rows: the model's loss first, then the part of it that counts compare with, if it is a sum,
            and the counts.
        prediction: what one prediction is: `token`, `masked token`.
        text: what it was measured on.
    """
    if not rows or math.isnan(number(rows[0], "loss")):
        return ""
    # In a sum of losses, the part that predicts tokens is the one to be compared.
    has_part = len(rows) > 1 and not str(rows[1].get("what", "")).endswith(" counts")
    model = rows[1] if has_part else rows[0]
    loss, total = number(model, "loss"), number(rows[0], "loss")
    counts = {str(row.get("what")): number(row, "loss") for row in rows}
    known = {name: nats for name in COUNTS if (nats := counts.get(name, math.nan)) == nats}
    is_bound = bool(rows[0].get("is_bound"))
    measured = f"{at_most(figure(loss, 3), is_bound)} nats per {prediction}"
    if has_part:
        measured = SUM_OF_LOSSES.format(total=figure(total, 3), part=measured)
    said = f"On {text} the loss is {measured}"
    if not (has_part or known or model.get("perplexity") is not None):
        return f"On {text} the loss of the objective is {figure(loss, 3)} nats."
    compared = (f"{COUNTS[n]}, {_odds(nats)} ({figure(nats, 3)} nats)" for n, nats in known.items())
    odds = _odds_words(loss, is_bound=is_bound)
    said = "; ".join([f"{said}: the model gives {odds}", *compared]) + "."
    beaten = [words for name, words in NOT_BETTER.items() if loss >= counts.get(name, math.inf)]
    return f"{said} {beaten[0]}" if beaten and not is_bound else said


def _odds_words(nats: float, *, is_bound: bool = False) -> str:
    least = "at least " if is_bound else ""
    return f"the right token a probability of {least}{_odds(nats)} (geometric mean)"


def _odds(nats: float) -> str:
    """Return the probability of a loss as `1 in 80`."""
    if nats > 690:
        return "almost 0"
    times = math.exp(nats)
    return f"1 in {times:.2g}" if times < 10 else f"1 in {float(f'{times:.2g}'):,.0f}"


def score_sentence(rows: Sequence[Record], metric: str) -> str:
    """Return the score of fine-tuning next to those of baselines without a network.

    Args:
        rows: a row per variant and per baseline.
    """
    pretrained = _variant(rows, PRETRAINED, metric)
    if pretrained is None:
        return ""
    score = number(pretrained, metric)
    baselines = [row for row in rows if is_baseline(row) and not math.isnan(number(row, metric))]
    named = [f"{row['strategy']} {_score(number(row, metric), metric)}" for row in baselines]
    is_bound = metric == BOUND and "is_bound" in pretrained
    reached = at_most(_score(score, metric), is_bound)
    text = f"Fine-tuned, the pretrained model reaches {reached}"
    text += f"; without a network: {', '.join(named)}." if named else "."
    least = math.inf if is_bound else as_gain(metric, score)
    better = [
        str(row["strategy"]) for row in baselines if as_gain(metric, number(row, metric)) >= least
    ]
    return text + (f" It is no better than {' and '.join(better)}." if better else "")


def pretraining_gain(
    rows: Sequence[Record], metric: str, dev: int, margins: Sequence[Record] = ()
) -> str:
    """Return what pretraining adds to fine-tuning; "" unless it was done from scratch too.

    Args:
        rows: a row per variant and per baseline.
        dev: number of examples scored; 0 if unknown.
        margins: margins of accuracies, as `foreword.evaluation.margins` returns them.
    """
    pretrained, scratch = (_variant(rows, start, metric) for start in (PRETRAINED, SCRATCH))
    if pretrained is None or scratch is None:
        return ""
    seeds = min(int(number(row, "seeds")) for row in (pretrained, scratch))
    names = f"{PRETRAINED}, full", f"{SCRATCH}, full"
    if metric == "accuracy" and (paired := _paired_gain(margins, *names, seeds)) is not None:
        return f"{gain_sentence(paired, metric)} {SEEDS_AND_EXAMPLES}"
    gain = difference(_sample(pretrained, metric), _sample(scratch, metric))
    text = gain_sentence(gain, metric)
    if dev and metric == "accuracy" and not math.isnan(gain.half_width):
        text += " " + SEEDS_ALONE.format(dev=dev, half=100 * half_width_of_share(dev))
    return text


def _paired_gain(margins: Sequence[Record], name: str, over: str, seeds: int) -> Interval | None:
    """Return the gain of one way over another by their margin; None if unknown or of one seed."""
    for one in margins if seeds > 1 else ():
        if (one["name"], one["over"]) == (name, over):
            half = max(one["high"] - one["difference"], one["difference"] - one["low"])
            return Interval(one["difference"], half, seeds)
    return None


def _variant(rows: Sequence[Record], start: str, metric: str) -> Record | None:
    """Return the row that was fine-tuned in full from this start, if it has the score."""
    return next(
        (
            row
            for row in rows
            if row.get("start") == start
            and row.get("strategy") == "full"
            and not math.isnan(number(row, metric))
        ),
        None,
    )


def gain_sentence(gain: Interval, metric: str, over: str = "the same network from scratch") -> str:
    """Return what a difference and its interval say about pretraining, zero included."""
    scale, digits, unit = (100.0, 1, "points of ") if metric in SHARES else (1.0, 3, "")
    mean, half = scale * gain.mean, scale * gain.half_width
    low, high = mean - half, mean + half
    what = f"{unit}{metric_name(metric)}"
    points = f"{abs(mean):.{digits}f}"
    verb = VERBS[is_lower_better(metric)][mean < 0].format(
        amount=f"{points} {what}", what=metric_name(metric), points=f"{abs(mean):.3f}"
    )
    kind = "one seed" if math.isnan(half) else "known" if low > 0 or high < 0 else "unknown"
    interval = f"{LEVEL:.0%} interval {_signed(low, digits)} to {_signed(high, digits)}"
    return GAINS[kind].format(
        verb=verb, over=over, interval=interval, mean=_signed(mean, digits), what=what
    )


def comparison_sentences(results: Mapping[str, Any]) -> list[str]:
    """Return what a comparison's results say: the lowest loss, and on each task the best cell."""
    sentences = []
    losses = {
        cell["cell"]: cell["heldout_loss"]["mean"]
        for cell in results["cells"]
        if cell.get("heldout_loss")
    }
    if results["is_one_objective"] and len(losses) > 1:
        best = min(losses, key=lambda name: losses[name])
        sentences.append(
            f"{best} has the lowest held-out loss, {figure(losses[best], 3)} nats per token: it "
            f"gives {_odds_words(losses[best])}."
        )
    for task, metric in results["metrics"].items():
        sentences += _task_sentence(results, task, metric)
    return sentences


def _task_sentence(results: Mapping[str, Any], task: str, metric: str) -> list[str]:
    """Return what a task's scores say, as a list of one sentence or none."""
    samples = {
        (cell["cell"], start): Spread.of(values)
        for cell in results["cells"]
        for start in (PRETRAINED, SCRATCH)
        if (values := _values(results, cell["cell"], task, start, metric))
        and not any(map(math.isnan, values))
    }
    ranked = sorted(
        (name for name, start in samples if start == PRETRAINED),
        key=lambda name: -as_gain(metric, samples[name, PRETRAINED].mean),
    )
    if not ranked:
        return []
    best, shown = ranked[0], _score(samples[ranked[0], PRETRAINED].mean, metric)
    tied = [n for n in ranked if _score(samples[n, PRETRAINED].mean, metric) == shown]
    place = "lowest" if is_lower_better(metric) else "highest"
    text = f"{task}: {best} is {place}, {shown}"
    if tied[1:]:
        text = f"{task}: {', '.join(tied[:-1])} and {tied[-1]} tie for {place}, {shown}"
    elif ranked[1:]:
        text += f", before {ranked[1]} at {_score(samples[ranked[1], PRETRAINED].mean, metric)}"
    text += "."
    for name in tied:
        if (name, SCRATCH) in samples:
            sides = samples[name, PRETRAINED], samples[name, SCRATCH]
            margins = [one for one in results.get("margins", ()) if one["task"] == task]
            gain = _paired_gain(margins, name, SCRATCH, min(side.count for side in sides))
            whose = f" {name}:" if tied[1:] else ""
            text += f"{whose} {gain_sentence(gain or difference(*sides), metric)}"
    return [text]


def _values(
    results: Mapping[str, Any], cell: str, task: str, start: str, metric: str
) -> list[float]:
    """Return a cell's scores: means of seeds of pretraining if there are several."""
    by_seed: dict[int, list[float]] = {}
    for score in results["scores"]:
        is_ours = (score["cell"], score["task"], score.get("start")) == (cell, task, start)
        if is_ours and metric in score["scores"]:
            by_seed.setdefault(score.get("seed", 0), []).append(number(score["scores"], metric))
    if len(by_seed) == 1:
        return next(iter(by_seed.values()))
    return [sum(values) / len(values) for values in by_seed.values()]


def is_baseline(row: Record) -> bool:
    """Return whether a row of scores is a baseline's: of no model, or of no network."""
    return str(row.get("start", "")).startswith("no ")


def _sample(row: Record, metric: str) -> Spread:
    seeds = number(row, "seeds")
    count = int(seeds) if seeds == seeds else 1
    return Spread(number(row, metric), number(row, f"{metric}_std"), count)


def _score(value: float, metric: str) -> str:
    name = metric_name(metric)
    return f"{100 * value:.1f} % {name}" if metric in SHARES else f"{value:.3f} {name}"


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
