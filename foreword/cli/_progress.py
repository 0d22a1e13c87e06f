"""What a person sees while a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foreword import config
from foreword.cli import console
from foreword.cli._bar import Advance, Bar, clock
from foreword.errors import UserError
from foreword.runs.corpus import TRAINING
from foreword.train.log import components

if TYPE_CHECKING:
    from foreword.runs.recipe import Recipe
    from foreword.train.budget import Budget


def with_budget(
    recipe: Recipe,
    hours: float | None,
    tokens: float | None,
    steps: int | None,
    flops: float | None,
    epochs: float | None = None,
) -> Recipe:
    """The recipe with the budget that the options name, in the place of its own.

    Raises:
        UserError: more than one is given, or it is no amount.
    """
    budget = budget_of(hours, tokens, steps, flops, epochs)
    return recipe if budget is None else replace(recipe, train=budget.put_on(recipe.train))


def budget_of(
    hours: float | None,
    tokens: float | None,
    steps: int | None,
    flops: float | None,
    epochs: float | None = None,
) -> Budget | None:
    """The budget that the options name, if any.

    Raises:
        UserError: more than one is given, or it is no amount.
    """
    from foreword.train.budget import Budget

    options = {
        "hours": hours,
        "tokens": tokens,
        "epochs": epochs,
        "steps": steps,
        "flops": flops,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) > 1:
        raise UserError(f"give one budget, not {len(given)}: {', '.join('--' + n for n in given)}")
    if not given:
        return None
    ((name, amount),) = given.items()
    return config.build(Budget, {"unit": name, "amount": amount})


def carry_on(run: Path, *, as_json: bool) -> int:
    """Trains what is left of a run, shown to whoever watches; returns the exit status."""
    from foreword.evaluate.samples import samples
    from foreword.runs.run import carry_on as train
    from foreword.train import log

    try:
        with console.progress() as bar:
            watcher = RunDisplay(bar)
            is_done = train(run, watcher, watcher.stage, samples)
    except KeyboardInterrupt:
        console.say(f"interrupted; 'foreword resume {run}' carries on")
        return 130
    last = {r["kind"]: r for r in log.read(run)}
    if as_json:
        console.emit({"run": str(run), "done": is_done, "last": last})
    elif is_done:
        console.say(f"done: {run}  (foreword report {run} shows it)")
    else:
        console.say(f"stopped and saved; 'foreword resume {run}' carries on")
    return 0 if is_done else 130


class RunDisplay:
    """Progress bars for the stages, a line per train record, a paragraph per evaluation."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._advance: Advance | None = None
        self._printed = -1.0

    def stage(self, name: str) -> Callable[[float, float], None]:
        """Begins a stage; the function returned takes what is done and what is to be done."""
        self._advance = self._bar.stage(name, is_said=True, has_lines=name != TRAINING)
        return self._advance

    def note(self, text: str) -> None:
        """A line worth reading."""
        console.say(text)

    def record(self, record: dict[str, Any], progress: float) -> None:
        """A console line now and then, the bar always."""
        kind = record["kind"]
        if record.get("fitted"):
            console.say(f"step {record['step']:>7,}  training loss {record['loss']:.4f}")
        elif kind == "train":
            self._train(record, progress)
        elif kind == "heldout":
            bits, perplexity = record["bits_per_byte"], record["perplexity"]
            said = [f"step {record['step']:>7,}", f"held-out loss {record['loss']:.4f}"]
            said += [f"perplexity {perplexity:,.2f}"] if perplexity is not None else []
            said += [f"{bits:.3f} bits per byte"] if bits is not None else []
            said += [
                f"{n.replace('_', ' ')} {value:.4f}" for n, value in components(record).items()
            ]
            console.say(console.line_of(said, [0, 0, *range(1, len(said) - 1)]))
        else:
            for sample in record["samples"]:
                console.say(console.beside(sample["prompt"], sample["text"]))

    def samples(self) -> list[dict[str, str]]:
        """The run adds these."""
        return []

    def _train(self, record: dict[str, Any], progress: float) -> None:
        loss = f"loss {record['loss']:.4f}"
        speed = f"{record['tokens_per_second']:,.0f} tokens/s"
        matmul = f"{record['share_of_matmul']:.0%} of matmul speed"
        if self._advance is not None:
            self._advance(progress, 1.0, loss, speed, matmul)
        if progress >= self._printed + 0.025 or self._printed < 0:
            self._printed = progress
            left = record["seconds"] / progress * (1 - progress) if progress else 0.0
            said = {
                f"step {record['step']:>7,}": 0,
                loss: 0,
                speed: 3,
                matmul: 5,
                f"lr {record['lr']:.2e}": 4,
                f"{progress:4.0%}": 1,
                f"{clock(left)} left": 2,
            }
            console.say(console.line_of(list(said), list(said.values())))
