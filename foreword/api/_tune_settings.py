"""The settings of fine-tuning as callers give them to `tune` and to suites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foreword import config, kinds
from foreword.errors import UserError
from foreword.ranges import LearningRate, check
from foreword.tuning.rates import ChosenOn, Rates
from foreword.tuning.run import TuneSettings, variants
from foreword.tuning.tasks._contract import Task

LONGEST_NAME = 200  # bytes; files add a few of their own, and may have 255


def require_name(name: str) -> None:
    """Check that a name is one that files can have.

    Raises:
        UserError: it is a path, or too long.
    """
    if "/" in name:
        raise UserError(f"--name {name}: must be a name, not a path; --out takes a path")
    if len(name.encode(errors="surrogatepass")) > LONGEST_NAME:
        raise UserError(f"--name: must be at most {LONGEST_NAME} bytes, for names of files")


def rates_of(lr: float | Sequence[float] | None, choose: str) -> tuple[float | None, Rates]:
    """Return the learning rate, None for the default, or several to choose from.

    Raises:
        UserError: one is no rate, or occurs twice, or `choose` is neither train nor dev.
    """
    on = config.convert(ChosenOn, choose, "--choose")
    given: Any = lr
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    values = [] if given is None else list(given) if is_list else [given]
    rates = tuple(config.convert(float, value, "--lr") for value in values)
    for rate in rates:
        check(LearningRate, rate, "--lr")
    if len(set(rates)) < len(rates):
        raise UserError("--lr: the same rate twice")
    if len(rates) > 1:
        return None, Rates(rates, on)
    return (rates[0] if rates else None), Rates((), on)


def variants_of(
    task: Mapping[str, Any],
    strategy: Mapping[str, Any],
    options: Mapping[str, Any],
    assignments: Sequence[str],
    *,
    compare: bool = False,
) -> tuple[Task, list[TuneSettings]]:
    """Return the task, and the settings of each variant to fine-tune.

    Args:
        task: its kind and settings.
        strategy: its kind and settings.
        options: of fine-tuning; None for the default.
        assignments: `task.NAME=value` and `tune.NAME=value`, which override.
        compare: whether the usual variants are compared.

    Raises:
        UserError: arguments contradict each other, or a setting is unknown.
    """
    if compare and (options["from_scratch"] or strategy["kind"] != "full"):
        raise UserError(
            "--compare cannot be combined with --strategy or --from-scratch: it runs them all"
        )
    chosen = {"task": dict(task), "tune": {"strategy": dict(strategy)}}
    table = config.assign(chosen, assignments)
    if unknown := sorted(table.keys() - {"task", "tune"}):
        raise UserError(f"--set {unknown[0]}: expected task.NAME=value or tune.NAME=value")
    made: Task = config.build_kind(kinds.Part("tuning/tasks"), table["task"], "task")
    given = {name: value for name, value in options.items() if value is not None} | table["tune"]
    settings = config.build(TuneSettings, given, "tune")
    try:
        made.require_score(settings.metric, "tune.metric")
    except ValueError as error:
        raise UserError(str(error)) from error
    usual = (
        variants(settings, has_frozen=not (made.scores_untuned or made.has_reference))
        if compare
        else [settings]
    )
    return made, usual
