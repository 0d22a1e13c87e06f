"""Forecasts of losses: before a run's first step, and beside what the runs reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.nn.model import neural_settings
from foreword.planning.conditions import known_bytes_per_token, machine, text_bytes
from foreword.planning.dial import Conditions, amounts_of
from foreword.planning.dial_sizes import ModelSize, sizes
from foreword.planning.laws import Expectation, FamilyLaw, sized_families
from foreword.planning.request import RunRequest
from foreword.planning.timed import tokens_per_second
from foreword.runs.provenance import read_state
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.run import known_vocab
from foreword.runs.run_folder import is_run, require_recipe
from foreword.runs.trained_model import TrainedModel, is_checkpoint
from foreword.settings import config
from foreword.train import checkpoint
from foreword.train.budget import Budget

TIMED_FROM = 300.0  # seconds of a budget
# What sizes, budgets and rates change; any other setting makes a run unlike those measured.
FREE = {
    "model": ("d_model", "layers", "heads", "d_ff", "init_std", "dropout", "attention_dropout"),
    "optimizer": ("lr", "beta2", "decay"),
    "tokenizer": ("vocab",),
    "packing": ("length",),
    "objective": (),
    "layout": (),
}


def forecast_of(request: RunRequest) -> Expectation | None:
    """Return the loss that is expected of a run; None where nothing is known of the like.

    Known are recipes of a dial, and those that differ from a family's small one in size, rate and
    budget alone, trained from the start on one text.

    Raises:
        UserError: the text cannot be read.
    """
    recipe = request.recipe
    if request.starting_model is not None or recipe.changes or recipe.data.sources:
        return None
    likes = [name for name, law in sized_families().items() if _is_like(recipe, law.small)]
    if not likes:
        return None
    law = sized_families()[likes[0]]
    vocab = known_vocab(request.inputs, None)
    size = _size(recipe, law, recipe.tokenizer.vocab if vocab is None else vocab.size)
    if size is None:
        return None
    text = text_bytes(request.inputs.texts, recipe.read)
    known = known_bytes_per_token(request.inputs.texts)
    hour = Conditions(likes[0], 1.0, 1.0, text, bytes_per_token=known)
    flops, error = _flops(likes[0], recipe, size, hour.text_tokens(size.vocab))
    hour = replace(hour, flops_per_second=flops / 3600 / law.speed)
    expected = law.expect(amounts_of(hour, size), error)
    return None if expected.value is None else expected


def counting_suffices(trained: TrainedModel, labels: int) -> str:
    """Return that counting words is as good for so few labels of texts, if it was; "" else.

    Known of models that are like those of a dial, with no more compute than those measured.
    """
    likes = [law for law in sized_families().values() if _is_like(trained.recipe, law.small)]
    if not likes or not is_checkpoint(trained.folder):
        return ""
    spent = checkpoint.read_state(trained.folder).get("spent", {})
    return likes[0].counting_suffices(spent["flops"], labels) if spent else ""


def forecast_notes(request: RunRequest) -> dict[str, Any]:
    """Return the field of `run.json` for the loss that is expected of a run; none if unknown."""
    expected = forecast_of(request)
    return {} if expected is None else {"forecast": expected.figures()}


def _is_like(recipe: Recipe, small: str) -> bool:
    """Return whether a recipe differs from a small one in nothing but `FREE` and its budget."""
    measured = load_recipe(small)
    if type(recipe.train.embedding_init) is not type(measured.train.embedding_init):
        return False
    tables = config.to_table(recipe), config.to_table(measured)
    one, other = (
        {part: {k: v for k, v in table[part].items() if k not in free}
         for part, free in FREE.items()} for table in tables
    )  # fmt: skip
    return one == other


def _size(recipe: Recipe, law: FamilyLaw, vocab: int) -> ModelSize | None:
    """Return the size of a recipe; None for a shape that a family's dial does not have."""
    model = neural_settings(recipe.model)
    known = sizes(law.rules, load_recipe(law.small), load_recipe(law.large), 1e15, vocab)
    alike = (model.d_model, model.layers)
    return next((size for size in known if (size.d_model, size.layers) == alike), None)


def _flops(
    name: str, recipe: Recipe, size: ModelSize, text_tokens: float
) -> tuple[float, float | None]:
    """Return the FLOPs of a recipe's budget, about, and their relative error if it is in hours.

    The speed is timed where that takes no more than a hundredth of the hours.
    """
    budget = Budget.of(recipe.train)
    if budget.unit == "flops":
        return budget.amount, None
    if budget.unit == "hours":
        here = machine(name, budget.amount, recipe)
        is_long = 3600 * budget.amount >= TIMED_FROM
        timed = tokens_per_second(recipe) if is_long else None
        if timed is None:
            return here.flops, here.law.speed_error
        tokens, error = timed
        return 3600 * budget.amount * tokens * size.flops_per_token, error
    tokens = {
        "tokens": budget.amount,
        "epochs": budget.amount * text_tokens,
        "steps": budget.amount * recipe.rows_per_step * recipe.packing.length,
    }[budget.unit]
    return tokens * size.flops_per_token, None


@dataclass(frozen=True)
class ForecastRecord:
    """A forecast and what the run reached.

    Attributes:
        run: the run folder.
        unit: of the losses.
        forecast: the loss that was expected.
        low: the lower end of its interval.
        high: the upper end.
        result: the loss at the end; None if the run is not done.
    """

    run: str
    unit: str
    forecast: float
    low: float
    high: float
    result: float | None

    @property
    def is_inside(self) -> bool | None:
        """Whether the result lies in the interval; None if there is none yet."""
        return None if self.result is None else self.low <= self.result <= self.high


def records(paths: Sequence[str]) -> list[ForecastRecord]:
    """Return the forecasts of runs, or of all runs in folders, that have one.

    Raises:
        UserError: a path is neither a run nor a folder with runs.
    """
    found = []
    for path in map(Path, paths):
        runs = [path] if is_run(path) else sorted(each.parent for each in path.rglob("run.json"))
        if not runs:
            require_recipe(path)
        found += [record for run in runs if (record := _record(run)) is not None]
    return found


def _record(run: Path) -> ForecastRecord | None:
    noted: dict[str, Any] = read_state(run).get("forecast") or {}
    if not noted.get("interval") or noted.get("value") is None:
        return None
    low, high = noted["interval"]
    return ForecastRecord(str(run), noted["unit"], noted["value"], low, high, noted.get("result"))
