"""The settings of fine-tuning as callers give them to `tune` and to suites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foreword.api._arguments import Settings, assignments
from foreword.errors import UserError
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.settings.ranges import LearningRate, check
from foreword.train import tensor_files
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


def _rates_of(lr: float | Sequence[float] | None, choose: str) -> tuple[float | None, Rates]:
    """Return the learning rate, None for the default, or several to choose from.

    Raises:
        UserError: one is no rate, or occurs twice, or `choose` is neither train nor dev.
    """
    on = config.convert(ChosenOn, choose, "--choose")
    rate_or_rates: Any = lr
    is_list = isinstance(rate_or_rates, Sequence) and not isinstance(rate_or_rates, str)
    values = [] if rate_or_rates is None else list(rate_or_rates) if is_list else [rate_or_rates]
    rates = tuple(config.convert(float, value, "--lr") for value in values)
    for rate in rates:
        check(LearningRate, rate, "--lr")
    if len(set(rates)) < len(rates):
        raise UserError("--lr: the same rate twice")
    if len(rates) > 1:
        return None, Rates(rates, on)
    return (rates[0] if rates else None), Rates((), on)


@dataclass(frozen=True)
class GivenSettings:
    """How a caller of `tune` or `tune_suite` fine-tunes.

    Attributes:
        strategy: its kind and settings.
        options: the options of fine-tuning that are not None.
        assignments: `task.NAME=value` and `tune.NAME=value`, which override.
        rates: learning rates to choose from; without values a suite has its own, unless a rate is
            given (`has_rate`).
    """

    strategy: Mapping[str, Any]
    options: Mapping[str, Any]
    assignments: Sequence[str]
    rates: Rates

    @classmethod
    def of(
        cls,
        *,
        strategy: str,
        lr: float | Sequence[float] | None,
        choose: str,
        settings: Settings,
        **options: Any,
    ) -> GivenSettings:
        """Return the arguments of a call; an option that is None has its default.

        Raises:
            UserError: a learning rate is none, or occurs twice, or an argument is no choice.
        """
        rate, rates = _rates_of(lr, choose)
        return cls(
            {"kind": strategy} | ({} if rate is None else {"lr": rate}),
            {name: value for name, value in options.items() if value is not None},
            assignments(settings),
            rates,
        )

    @property
    def has_rate(self) -> bool:
        """Whether the strategy's learning rate is given, as an argument or by an assignment."""
        return "lr" in self._tables({})["tune"]["strategy"]

    def _tables(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of task and fine-tuning, with the assignments above the arguments."""
        arguments = {"task": dict(task), "tune": {"strategy": dict(self.strategy)}}
        return config.assign(arguments, self.assignments)

    def variants(
        self, task: Mapping[str, Any], *, metric: str = "", compare: bool = False
    ) -> tuple[Task, list[TuneSettings]]:
        """Return the task, and the settings of each variant to fine-tune.

        Args:
            task: its kind and settings.
            metric: the score that chooses, unless the assignments name one.
            compare: whether the usual variants are compared.

        Raises:
            UserError: arguments contradict each other, or a setting is unknown.
        """
        # Check what compares variants.
        if compare and self.rates.values:
            raise UserError("--lr: several cannot be combined with --compare")
        if compare and (self.options["from_scratch"] or self.strategy["kind"] != "full"):
            raise UserError(
                "--compare cannot be combined with --strategy or --from-scratch: it compares full "
                "fine-tuning, the frozen model and the same network from scratch"
            )
        table = self._tables(task)
        if unknown := sorted(table.keys() - {"task", "tune"}):
            raise UserError(f"--set {unknown[0]}: expected task.NAME=value or tune.NAME=value")
        # Build task and settings.
        tuning_task: Task = config.build_kind(kinds.Part("tuning/tasks"), table["task"], "task")
        tune_table = {"metric": metric} | dict(self.options) | table["tune"]
        settings = config.build(TuneSettings, tune_table, "tune")
        try:
            tuning_task.require_score(settings.metric, "tune.metric")
        except ValueError as error:
            raise UserError(str(error)) from error
        if compare:
            has_frozen = not (tuning_task.scores_untuned or tuning_task.has_reference)
            return tuning_task, variants(settings, has_frozen=has_frozen)
        return tuning_task, [settings]

    def as_table(self, trained: TrainedModel) -> dict[str, Any]:
        """Return everything that the results of a call on a suite depend on."""
        table = self._tables({})
        return {
            "weights": tensor_files.checksum(trained.folder, "weights"),
            "task": table["task"],
            "tune": dict(self.options) | table["tune"],
            "rates": list(self.rates.values),
            "chosen_on": self.rates.chosen_on,
        }
