"""What a family's sizes, rates and expected losses follow from: a file of `recipes/laws/` each.

A file holds the rules' figures with their sources, the losses that were measured, and, once there
is one, the scaling law that `foreword scale fit` wrote. A folder of the user's own may hold files
of the same names, whose keys take the place of the shipped ones.

Of measured budgets the loss is interpolated, linearly in the logarithms of both, as scaling laws
are drawn (Kaplan et al. 2020). The interval says how well that works: each inner measurement is
predicted from the others, and the largest relative error bounds the expectation on both sides. No
loss is expected far beyond the measured ones (`MARGIN`). `benchmarks/dial.py` measures again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from foreword.data.mixture import effective_epochs
from foreword.errors import UserError
from foreword.formatting import byte_size, power
from foreword.scaling.law import Law
from foreword.settings import config

FOLDER = config.FOLDER / "laws"
MARGIN = 1.5  # how far beyond the measured budgets a loss is expected, as a factor
GOOD_EPOCHS = 4  # of a text, up to which it is as good as new


@dataclass(frozen=True)
class Expectation:
    """The loss to expect of a run.

    Attributes:
        unit: the unit of the loss.
        source: what it is expected by.
        value: the loss; None if nothing is known of it.
        fit: interval for what it is expected by.
        seed: interval for the seed of one run; None if that noise was not measured.
        machine: interval for the speed of the machine; None if it was not timed.
        why: what else there is to know; why there is none.
    """

    unit: str
    source: str
    value: float | None = None
    fit: tuple[float, float] | None = None
    seed: tuple[float, float] | None = None
    machine: tuple[float, float] | None = None
    why: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the run's loss: the parts, as independent ones add up."""
        if self.value is None:
            return None
        parts = [part for part in (self.fit, self.seed, self.machine) if part is not None]
        low, high = (math.hypot(*(part[n] - self.value for part in parts)) for n in (0, 1))
        return self.value - low, self.value + high

    def __str__(self) -> str:
        if self.value is None or self.interval is None:
            return self.why
        low, high = self.interval
        return f"{self.value:.2f} {self.unit} ({low:.2f} to {high:.2f}) {self.why}"

    def figures(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "interval": self.interval}


@dataclass(frozen=True)
class Amounts:
    """What a loss depends on.

    Attributes:
        flops: of training.
        parameters: all of the model's.
        in_layers: those without embeddings.
        flops_per_token: of training.
        vocab: number of tokens.
        text_tokens: of the text.
        text_bytes: of the text.
    """

    flops: float
    parameters: float
    in_layers: float
    flops_per_token: float
    vocab: int
    text_tokens: float
    text_bytes: float

    @property
    def epochs(self) -> float:
        """How often the text is read."""
        return self.flops / self.flops_per_token / self.text_tokens


@dataclass(frozen=True)
class FamilyLaw:
    """The file of a family.

    Attributes:
        small: the recipe that its dial starts from.
        purposes: what its models are for, each with the rank of the family for it.
        large: the one whose vocabulary and row length are the largest chosen; "" without a dial.
        speed: share of the speed of matrix products that training reaches.
        speed_error: relative error of `speed`, between machines.
        longest: most tokens of a row.
        small_flops: the least budget that the small recipe's size is chosen for.
        tokens_per_parameter: at least, in any model larger than the small recipe's.
        batch_tokens: tokens of a run whose batch is doubled at 4 times as many, again at 16 times.
        rate_exponent: power of the width with which the small recipe's learning rate falls.
        narrow_keeps_rate: whether a model narrower than the small recipe's has that one's learning
            rate, if its first embeddings are counted.
        unit: of the measured losses.
        vocab: the vocabulary that they hold for; None where the unit does not depend on it.
        text: that they were measured on.
        by: what they are measured by.
        measured: pairs of FLOPs, or bytes of text, and losses, ascending; three at least.
        sources: where the figures are from.
        law: a scaling law, which sizes and losses then come from.
        file: where it was read.
    """

    small: str
    purposes: dict[str, int] = field(default_factory=dict)
    large: str = ""
    speed: float = 1.0
    speed_error: float = 0.0
    longest: int = 1 << 30
    small_flops: float = 2e14
    tokens_per_parameter: float = 10.0
    batch_tokens: float = 4e7
    rate_exponent: float = 1.0
    narrow_keeps_rate: bool = False
    unit: str = ""
    vocab: int | None = None
    text: str = ""
    by: Literal["FLOPs", "bytes of text"] = "FLOPs"
    measured: tuple[tuple[float, ...], ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    law: Law | None = None
    file: str = ""

    @property
    def error(self) -> float:
        """The largest relative error of a measurement that is predicted from the others."""
        points, errors = self.measured, list[float]()
        for index in range(1, len(points) - 1):
            amount, loss = points[index]
            errors.append(abs(_line(points[:index] + points[index + 1 :], amount) / loss - 1))
        return max(errors, default=0.0)

    def interpolated(self, amount: float) -> tuple[float, float, float] | None:
        """Return the loss by the measured ones and its bounds; None too far from all of them."""
        if not self.measured:
            return None
        if not self.measured[0][0] / MARGIN <= amount <= self.measured[-1][0] * MARGIN:
            return None
        loss, error = _line(self.measured, amount), self.error
        return loss, loss / (1 + error), loss * (1 + error)

    def law_forecast(self, run: Amounts) -> Expectation:
        """Return the loss to expect by the scaling law, of a text that may be repeated."""
        assert self.law is not None
        law = self.law
        size = run.parameters if law.parameters == "all" else run.in_layers
        tokens = run.text_tokens * effective_epochs(run.epochs)
        loss = law.forecast(size, tokens)
        why = f"by the law of {self.file}"
        if law.text:
            why += f", measured on {law.text}; another text has another loss"
        if law.largest_flops and run.flops > MARGIN * law.largest_flops:
            why += f"; {power(run.flops)} FLOPs lie beyond its runs, up to "
            why += power(law.largest_flops)
        return Expectation(law.unit, self.file, loss.value, loss.fit, loss.seed, why=why)

    def expect(self, run: Amounts, spread: float | None = None) -> Expectation:
        """Return what is known of the loss of a run.

        Args:
            run: what it depends on.
            spread: of the machine's speed, relative; None if the budget does not depend on it.
        """
        expected = self._expect(run)
        if spread is None or expected.value is None:
            return expected
        spread = min(0.9, math.hypot(spread, self.speed_error))
        runs = (replace(run, flops=factor * run.flops) for factor in (1 + spread, 1 - spread))
        ends = [self._expect(one).value or expected.value for one in runs]
        interval = (min(*ends, expected.value), max(*ends, expected.value))
        return replace(expected, machine=interval)

    def _expect(self, run: Amounts) -> Expectation:
        amount = run.flops if self.by == "FLOPs" else run.text_bytes
        shown = power(amount) + " FLOPs" if self.by == "FLOPs" else byte_size(round(amount))
        unit = self.law.unit if self.law is not None else self.unit
        nothing = Expectation(unit, self.sources.get("measured", self.file))
        why = f"none has been measured with this vocabulary, but with {self.vocab or 0:,}"
        if self.by == "FLOPs" and run.epochs > GOOD_EPOCHS and self.law is None:
            why = "none has been measured on a text that is read so often"
        elif self.vocab in (None, run.vocab):
            if self.law is not None:
                return self.law_forecast(run)
            found = self.interpolated(amount)
            if found is not None:
                loss, low, high = found
                why = f"on {self.text}, where {len(self.measured)} budgets were measured; "
                why += "another text has another loss"
                return Expectation(unit, nothing.source, loss, (low, high), why=why)
            ends = [power(point[0]) for point in (self.measured[0], self.measured[-1])]
            why = f"none has been measured for {shown}, but between {' and '.join(ends)}"
        return Expectation(unit, nothing.source, why=why)


def _line(points: tuple[tuple[float, ...], ...], amount: float) -> float:
    """Return the loss of an amount on the line through the two nearest measured ones."""
    pairs = list(pairwise(points))
    pair = next((pair for pair in pairs if amount <= pair[1][0]), pairs[-1])
    (low, first), (high, second) = pair
    share = math.log(amount / low) / math.log(high / low)
    return float(first * (second / first) ** share)


@cache
def laws(folder: str = "") -> Mapping[str, FamilyLaw]:
    """Return the families' files by family.

    Args:
        folder: files of the user's own, whose keys take the place of the shipped ones.

    Raises:
        UserError: there is no such folder, it holds none for these families, or one is wrong.
    """
    shipped = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}
    own = {name: Path(folder) / f"{name}.toml" for name in shipped if folder}
    if folder and not any(path.is_file() for path in own.values()):
        files = ", ".join(path.name for path in own.values())
        raise UserError(f"--laws: {folder} holds none of {files}; 'foreword scale fit' writes them")
    found = {}
    for name, path in shipped.items():
        table = config.read_toml(path)
        file = path.relative_to(FOLDER.parents[1]).as_posix()
        if folder and own[name].is_file():
            table, file = {**table, **config.read_toml(own[name])}, str(own[name])
        found[name] = _built(table, file)
    return found


def _built(table: dict[str, Any], file: str) -> FamilyLaw:
    """Return the file of a family from its table, in which the keys of a law may stand."""
    names, of_law = ({f.name for f in fields(cls)} for cls in (FamilyLaw, Law))
    law = {key: value for key, value in table.items() if key in of_law} if "E" in table else None
    others = {key: value for key, value in table.items() if key in names or key not in of_law}
    try:
        return config.build(
            FamilyLaw,
            others | {"file": file} | ({} if law is None else {"law": law}),
            owner="a law",
        )
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def sized_families(folder: str = "") -> Mapping[str, FamilyLaw]:
    """Return the families that have a dial."""
    return {name: family for name, family in laws(folder).items() if family.large}
