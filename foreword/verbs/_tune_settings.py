"""The arguments of verbs that fine-tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from foreword.errors import UserError
from foreword.settings import config, kinds
from foreword.settings.ranges import Count, LearningRate, Trainings
from foreword.verbs._arguments import assignments
from foreword.verbs._contract import SET, PathName, Settings
from foreword.verbs._groups import Computes, ShowsProgress, Tracks

if TYPE_CHECKING:
    from foreword.runs.trained_model import TrainedModel
    from foreword.tuning.job import ChosenOn
    from foreword.tuning.settings import TuneSettings
    from foreword.tuning.tasks._contract import Task

BEST = "best"  # the strategy that chooses
NOT_GIVEN: Mapping[str, Any] = {"from_scratch": False, "precision": "auto"}
LONGEST_NAME = 200  # bytes; files add a few of their own, and may have 255


@dataclass(frozen=True, kw_only=True)
class FineTunes(Tracks, ShowsProgress, Computes):
    """How to fine-tune, and where the results go.

    Attributes:
        strategy: what is trained: best (several ways, averaged), full, frozen (the head alone),
            lora, or another that 'foreword show strategies' lists; default: full, in tune best
            where the task allows it.
        from_scratch: train the same network from random weights.
        seeds: number of seeds; scores are their mean and deviation; default: 3, or 1 with
            strategy best.
        epochs: number of epochs; default: 3, or by the number of labels with strategy best.
        batch: examples per step; default: 16.
        examples: number of training examples, drawn anew for each seed, each label in its
            proportion; default: all.
        lr: peak learning rate; default: by the model's width and the strategy. Of several --lr the
            best is chosen.
        choose: what chooses one of several --lr: train, of which a tenth is held out; or dev, as
            papers did, whose scores are then too high.
        settings: a setting, repeatable: task.pooling=mean, tune.strategy.rank=4,
            tune.optimizer.decay=0, tune.schedule.warmup.share=0.06, tune.clip=0, tune.keep=best,
            tune.patience=2; 'foreword show tune' lists them.
        max_length: maximum tokens read at once, of an example or a window of a long text; default:
            the row length of pretraining.
        precision: training precision: auto, bf16 or fp32.
        name: name of the results; default: folder and file of --train.
        out: folder for the tuned model; default: RUN/tuned/NAME.
    """

    strategy: str | None = None
    from_scratch: bool = False
    seeds: Trainings | None = None
    epochs: Count | None = None
    batch: Count | None = None
    examples: Count | None = None
    lr: LearningRate | Sequence[LearningRate] | None = None
    choose: str = "train"
    settings: Annotated[Settings, SET] = ()
    max_length: Count | None = None
    precision: str = "auto"
    name: str = ""
    out: PathName | None = None

    @property
    def rates(self) -> tuple[tuple[float, ...], ChosenOn]:
        """The learning rates to choose from, if several are given, and what chooses.

        Raises:
            UserError: one is no rate, or occurs twice, or `choose` is neither train nor dev.
        """
        from foreword.tuning.job import ChosenOn

        on: ChosenOn = config.convert(ChosenOn, self.choose, "--choose")
        rates = self._given_rates()
        if len(set(rates)) < len(rates):
            raise UserError("--lr: the same rate twice")
        return rates if len(rates) > 1 else (), on

    def _given_rates(self) -> tuple[float, ...]:
        lr: Any = self.lr
        is_list = isinstance(lr, Sequence) and not isinstance(lr, str)
        given = lr if is_list else [] if lr is None else [lr]
        return tuple(config.convert(float, rate, "--lr") for rate in given)

    @property
    def has_rate(self) -> bool:
        """Whether the strategy's learning rate is given, as an argument or among the settings."""
        return "lr" in self._tables({})["tune"]["strategy"]

    @property
    def chosen_strategy(self) -> str:
        """The name of the strategy."""
        return self.strategy or "full"

    def _options(self, strategy: str) -> dict[str, Any]:
        names = ("from_scratch", "seeds", "batch", "examples", "max_length", "precision", "folds")
        values = {name: getattr(self, name, None) for name in names}
        if strategy != BEST:
            values["epochs"] = self.epochs
        return {n: value for n, value in values.items() if value not in (None, NOT_GIVEN.get(n))}

    @property
    def _tune_assignments(self) -> list[str]:
        """The settings of task and strategy."""
        return assignments(self.settings)

    def _tables(
        self, task: Mapping[str, Any], tune: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the settings of task and strategy: `tune`, the arguments over it, `settings`."""
        given = tune.get("strategy", {})
        given = {"kind": given} if isinstance(given, str) else given
        name = self.strategy or given.get("kind", self.chosen_strategy)
        strategy = {"kind": name, **(given if given.get("kind", name) == name else {})}
        if len(rates := self._given_rates()) == 1:
            strategy["lr"] = rates[0]
        options = self._options(name)
        if name == BEST:
            options = {"seeds": 1, **tune, **options}
            strategy |= {} if self.epochs is None else {"epochs": self.epochs}
        tables = {"task": dict(task), "tune": {**tune, **options, "strategy": strategy}}
        return config.assign(tables, self._tune_assignments)

    def tuning_task(
        self,
        task: Mapping[str, Any],
        metric: str = "",
        *,
        calibrate: bool = True,
        tune: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Task, TuneSettings]:
        """Return the task, and the settings of fine-tuning.

        Args:
            task: its kind and settings.
            metric: the score that chooses, unless the settings name one.
            calibrate: whether probabilities are fitted, unless the settings say.
            tune: settings of fine-tuning that the arguments and `settings` override.

        Raises:
            UserError: a setting is unknown, or the task has no such score.
        """
        from foreword.tuning.settings import TuneSettings
        from foreword.tuning.tasks._contract import require_score

        kinds.file_of("tuning/strategies", self.chosen_strategy, "--strategy")
        table = self._tables(task, tune)
        if unknown := sorted(table.keys() - {"task", "tune"}):
            raise UserError(f"--set {unknown[0]}: expected task.NAME=value or tune.NAME=value")
        tuning_task: Task = config.build_kind(kinds.Part("tuning/tasks"), table["task"], "task")
        tune_table = {"metric": metric, "calibrate": calibrate} | table["tune"]
        settings = config.build(TuneSettings, tune_table, "tune")
        try:
            require_score(tuning_task, settings.metric, "tune.metric")
        except ValueError as error:
            raise UserError(str(error)) from error
        return tuning_task, settings

    def as_table(self, trained: TrainedModel) -> dict[str, Any]:
        """Return everything that the results on a suite depend on."""
        from foreword.train import tensor_files

        table, (rates, chosen_on) = self._tables({}), self.rates
        return {
            "weights": tensor_files.checksum(trained.folder, "weights"),
            "task": table["task"],
            "tune": {"batch": 16, **NOT_GIVEN} | table["tune"],
            "rates": list(rates),
            "chosen_on": chosen_on,
        }

    def require_name(self) -> None:
        """Raise UserError unless the name is one that files can have."""
        if "/" in self.name:
            raise UserError(f"--name {self.name}: must be a name, not a path; --out takes a path")
        if len(self.name.encode(errors="surrogatepass")) > LONGEST_NAME:
            raise UserError(f"--name: must be at most {LONGEST_NAME} bytes, for names of files")

    def folder_of(self, trained: TrainedModel, name: str) -> Path:
        """Return the folder for the tuned model or models."""
        return trained.run / "tuned" / name if self.out is None else Path(self.out)

    def opened(self, run: PathName) -> TrainedModel:
        """Return the pretrained model.

        Raises:
            UserError: there is no such run, or it has no gradients.
        """
        from foreword.tuning.tuned_model import open_start

        trained = open_start(Path(run), self.device)
        trained.require_gradients()
        return trained

    def emulation_warning(self, trained: TrainedModel) -> str | None:
        """Return a warning that the hardware emulates the precision, if it does."""
        from foreword.train.device import choose_precision, precision_warning

        chosen = choose_precision(self.precision, trained.device)
        return precision_warning(trained.device, chosen)
