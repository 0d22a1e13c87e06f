"""Which cells are better than which, with tests between all pairs, and a sentence that says it.

The p-values of a measure's pairs are corrected for their number (Holm 1979): at most one measure
in twenty without differences has a pair that seems to differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from foreword.comparison.grid import Cell, GridTask
from foreword.comparison.margins import PRETRAINED
from foreword.comparison.probing import GridText
from foreword.comparison.results import Measure, Results
from foreword.evaluation.margins import margin
from foreword.evaluation.statistics import (
    LEVEL,
    Difference,
    holm,
    paired_differences,
    unpaired_differences,
)
from foreword.settings import kinds
from foreword.tuning.scores import is_lower_better, metric_name

LOSS = "held-out loss"
LOWER = ("loss", "heldout_loss", "bits_per_byte")


@dataclass(frozen=True)
class Pair:
    """Two cells on one measure, the better mean first.

    Attributes:
        better: name of a cell.
        worse: name of another.
        difference: how much better, 0 or more.
        p: two-sided p-value of no difference, uncorrected.
        corrected: the same, corrected for the number of pairs.
    """

    better: str
    worse: str
    difference: float
    p: float
    corrected: float

    @property
    def differs(self) -> bool:
        """Whether the better cell is better beyond chance."""
        return self.corrected < 1 - LEVEL


@dataclass(frozen=True)
class Verdict:
    """What the tests between all pairs of cells say of one measure.

    Attributes:
        measure: name of the loss, task or probe.
        metric: the score.
        over: what the tests are over: "3 seeds", "1 seed and 200 examples"; "" without tests.
        cells: the cells compared, the best first.
        pairs: all pairs of them; none if nothing can be tested.
        left_out: cells with fewer seeds than others, which are not compared.
        text: the verdict in words.
    """

    measure: str
    metric: str
    over: str
    cells: tuple[str, ...]
    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...] = ()
    text: str = ""


def verdicts(results: Results) -> list[Verdict]:
    """Return the verdict of each measure on which two cells at one budget have a score."""
    grid = results.comparison.grid
    if grid.has_budgets:
        return []
    found = [_loss_verdict(results)] if not grid.sources else []
    found += [_measure_verdict(results, measure) for measure in grid.measures]
    return [replace(one, text=_words(one, grid.seeds)) for one in found if one is not None]


def notes(all_verdicts: Sequence[Verdict], seeds: int) -> list[str]:
    """Return how to read the verdicts; none without tests."""
    if not any(one.pairs for one in all_verdicts):
        return []
    line = (
        f"Verdicts are t tests between all pairs of cells, corrected for their number (Holm; "
        f"{1 - LEVEL:.0%} in all): of differences paired by seed, by example or by piece of text, "
        "with the noise of all cells, and unpaired over the questions of a probe; "
        "results.csv and results.json have every pair."
    )
    if seeds == 1:
        line += (
            " Each cell was pretrained once, so they hold for these models, not for their recipes: "
            "another seed may turn them round."
        )
    return [line]


def _loss_verdict(results: Results) -> Verdict | None:
    """Return the verdict on the held-out loss, of cells whose losses are comparable."""
    by_cell, metric = _comparable_losses(results)
    if len(by_cell) < 2:
        return None
    if (by_seeds := _over_seeds(by_cell, "seed")) is not None:
        cells, differences, over = by_seeds
    else:
        cells, differences, over = list(by_cell), *_over_batches(results, "", list(by_cell))
    means = {cell: float(np.mean(list(by_cell[cell].values()))) for cell in cells}
    left_out = tuple(cell for cell in by_cell if cell not in means)
    verdict = _verdict(LOSS, metric, means, differences, over, lower=True)
    return replace(verdict, left_out=left_out)


def _comparable_losses(results: Results) -> tuple[dict[str, dict[int, float]], str]:
    """Return the losses of cells by seed: bits per byte, or of one objective on the same rows."""
    by_key: dict[str, dict[str, dict[int, float]]] = {"bits_per_byte": {}, "heldout_loss": {}}
    ranked = {cell.name for cell in results.ranked()}
    for run in results.runs:
        for key, losses in by_key.items():
            if run.cell not in ranked:
                continue
            if (value := getattr(run, key)) is not None and math.isfinite(value):
                losses.setdefault(run.cell, {})[run.seed] = value
    if len(by_key["bits_per_byte"]) > 1:
        return by_key["bits_per_byte"], "bits_per_byte"
    cells = [cell for cell in results.comparison.grid.cells if cell.name in by_key["heldout_loss"]]
    is_one = len({_predictions(results, cell) for cell in cells}) == 1
    return (by_key["heldout_loss"], "heldout_loss") if is_one else ({}, "")


def _predictions(results: Results, cell: Cell) -> str:
    """Return what decides which tokens of held-out text a cell predicts, and from what."""
    recipe = results.comparison.recipes[cell.name, 1]
    name = kinds.name_of(recipe.objective)
    objective = name if name == "causal" else recipe.objective  # held-out inputs are not masked
    parts = (objective, recipe.layout, recipe.packing, recipe.tokenizer, recipe.read)
    return repr((*parts, recipe.prepare, recipe.train.heldout_rows))


def _measure_verdict(results: Results, measure: Measure) -> Verdict | None:
    """Return the verdict on a task, a probe or the text of a source."""
    metric, cells = results.metric(measure), results.ranked(measure)
    values = {
        cell.name: seeds
        for cell in cells
        if (seeds := results.values_by_seed(cell.name, measure, PRETRAINED))
        and not any(map(math.isnan, seeds.values()))
    }
    if isinstance(measure, GridText):
        is_one = len({_predictions(results, cell) for cell in cells if cell.name in values}) == 1
        values = values if is_one else {}
    if len(values) < 2:
        return None
    lower = metric in LOWER or is_lower_better(metric)
    of = "seed" if results.comparison.grid.seeds > 1 else "seed of fine-tuning"
    names, differences, over = list(values), list[Difference](), ""
    if isinstance(measure, GridTask) and metric == "accuracy":
        differences, over = _over_examples(results, measure, names, of)
    if not differences and (by_seeds := _over_seeds(values, of)) is not None:
        names, differences, over = by_seeds
    elif not differences and isinstance(measure, GridText):
        differences, over = _over_batches(results, measure.name, names)
    elif not differences:
        spreads = results.over_items(measure)
        if len(spreads) == len(names):
            differences = unpaired_differences(spreads)
            over = f"1 seed and {spreads[0].count:,} questions" if differences else ""
    means = {name: float(np.mean(list(values[name].values()))) for name in names}
    left_out = tuple(name for name in values if name not in means)
    verdict = _verdict(measure.name, metric, means, differences, over, lower=lower)
    return replace(verdict, left_out=left_out)


def _over_seeds(
    values: Mapping[str, Mapping[int, float]], of: str
) -> tuple[list[str], list[Difference], str] | None:
    """Return the cells that have all seeds, their differences, and over what; None with one."""
    most = max((set(seeds) for seeds in values.values()), key=len)
    cells = [cell for cell, seeds in values.items() if set(seeds) == most]
    if len(most) < 2 or len(cells) < 2:
        return None
    table = np.array([[values[cell][seed] for seed in sorted(most)] for cell in cells])
    differences = paired_differences(table)
    first, _, rest = of.partition(" ")
    return cells, differences, f"{len(most)} {first}s {rest}".rstrip() if differences else ""


def _over_batches(
    results: Results, measure: str, cells: Sequence[str]
) -> tuple[list[Difference], str]:
    """Return the differences of losses over pieces of text, if all cells predicted the same."""
    known = [results.batches.get((cell, measure)) for cell in cells]
    pieces = [one for one in known if one is not None and len(one) > 1]
    if len(pieces) < len(cells) or any(
        one.shape != pieces[0].shape or (one[:, 1] != pieces[0][:, 1]).any() for one in pieces
    ):
        return [], ""
    same = np.stack(pieces)
    same = same[:, same[0, :, 1] > 0]
    differences = paired_differences(same[:, :, 0] / same[:, :, 1])
    return differences, f"1 seed and {same.shape[1]:,} pieces of text" if differences else ""


def _over_examples(
    results: Results, task: GridTask, cells: Sequence[str], of: str
) -> tuple[list[Difference], str]:
    """Return the differences of accuracies over examples and seeds, if all answers are known."""
    known = [results.correct(cell, task) for cell in cells]
    answers = [one for one in known if one is not None and one.shape[1] > 1]
    if len(answers) < len(cells):
        return [], ""
    is_paired = results.comparison.grid.seeds == 1
    differences = []
    for (n, one), (m, other) in combinations(enumerate(answers), 2):
        between = margin(cells[n], one, cells[m], other, is_paired=is_paired)
        equal = 1.0 if between.difference == 0 else math.nan
        p = equal if between.p is None else between.p
        differences.append(Difference(n, m, between.difference, p))
    if any(math.isnan(one.p) for one in differences):
        return [], ""
    seeds, examples = answers[0].shape
    first, _, rest = of.partition(" ")
    noun = f"{first}{'s' * (seeds != 1)} {rest}".rstrip()
    return differences, f"{seeds} {noun} and {examples:,} examples"


def _verdict(
    measure: str,
    metric: str,
    means: Mapping[str, float],
    differences: Sequence[Difference],
    over: str,
    *,
    lower: bool,
) -> Verdict:
    names, sign = list(means), -1.0 if lower else 1.0
    pairs = []
    for one, corrected in zip(differences, holm([d.p for d in differences]), strict=True):
        sides = names[one.one], names[one.other]
        better, worse = sides if sign * one.mean >= 0 else sides[::-1]
        pairs.append(Pair(better, worse, abs(one.mean), one.p, corrected))
    ranked = sorted(names, key=lambda name: -sign * means[name])
    return Verdict(measure, metric, over if pairs else "", tuple(ranked), tuple(pairs))


def _words(verdict: Verdict, seeds: int) -> str:
    """Return the verdict in words: who beats whom, and who cannot be told apart."""
    cells = verdict.cells
    if not verdict.pairs:
        why = "a test needs two seeds, or scores on the same text or examples"
        return f"{_name(cells[0])} has the best mean, but nothing can be tested: {why}"
    clear = [pair for pair in verdict.pairs if pair.differs]
    beaten = {cell: [pair.worse for pair in clear if pair.better == cell] for cell in cells}
    # Winners over the same cells are named together.
    winners: dict[tuple[str, ...], list[str]] = {}
    for cell in cells:
        if beaten[cell]:
            losers = tuple(sorted(beaten[cell], key=cells.index))
            winners.setdefault(losers, []).append(cell)
    parts = [
        f"{_names(who)} beat{'s' * (len(who) == 1)} {_names(losers)}"
        for losers, who in winners.items()
    ]
    # Groups in which no pair differs, so that each such pair is in one of them.
    apart = {frozenset((pair.better, pair.worse)) for pair in clear}
    groups: list[tuple[str, ...]] = []
    for pair in combinations(cells, 2):
        if frozenset(pair) in apart or any(set(pair) <= set(group) for group in groups):
            continue
        group: tuple[str, ...] = pair
        for cell in cells:
            if cell not in group and not any(frozenset((cell, one)) in apart for one in group):
                group = (*group, cell)
        groups.append(tuple(sorted(group, key=cells.index)))
    fewer = f"; {_names(verdict.left_out)} left out, with fewer seeds" if verdict.left_out else ""
    is_one = seeds == 1 or verdict.over.startswith("1 seed ")
    of = " (these models, not their recipes)" if is_one else ""
    with_what = f" with {verdict.over}{of}{fewer}"
    if not parts:
        return f"{_names(cells)} cannot be told apart{with_what}"
    parts += [f"{_names(group)} cannot be told apart" for group in groups]
    return "; ".join(parts) + with_what


def _names(cells: Sequence[str]) -> str:
    names = [_name(cell) for cell in cells]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _name(cell: str) -> str:
    """Return a name, in quotes if it would not end where it does in a sentence."""
    return f"'{cell}'" if any(mark in cell for mark in (",", ";", " and ")) else cell


def title(verdict: Verdict) -> str:
    """Return the measure with its metric, for people."""
    if verdict.measure == LOSS:
        return f"{LOSS}, bits per byte" if verdict.metric == "bits_per_byte" else LOSS
    return f"{verdict.measure}, {metric_name(verdict.metric)}".rstrip(", ")
