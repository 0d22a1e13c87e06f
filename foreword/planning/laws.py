"""What a family's sizes, rates and expected losses follow from: a file of `recipes/laws/` each.

A file holds the family's figures with their sources, above those that all families share
(`common.toml`), the losses that were measured and, once there is one, the scaling law that
`foreword scale fit` wrote. A folder of the user's own may hold files of the same names, whose keys
take the place of the shipped ones.

Of measured budgets the loss is interpolated, linearly in the logarithms of both, as scaling laws
are drawn (Kaplan et al. 2020). The interval says how well that works: each inner measurement is
predicted from the others, and the largest relative error bounds the expectation on both sides. No
loss is expected far beyond the measured ones. `benchmarks/dial.py` measures again.
"""

from __future__ import annotations

import functools
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
COMMON = "common"  # the file that all families share


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
class Rules:
    """The figures of the dial's rules; `common.toml` says what each is, and where it is from."""

    bytes_per_token: float
    halving_bytes: float
    whole_vocab: int
    uses_per_token: float
    least_vocab: int
    heldout_tokens: float
    most_heldout: float
    vocab_exponent: float
    widths: tuple[float, ...]
    small_flops: float
    tokens_per_parameter: float
    useful_epochs: float
    memory_share: float
    bytes_per_parameter: int
    repeated_epochs: float
    repeated_decay: float
    repeated_dropout: float
    repeated_error: float
    most_epochs: float
    batch_tokens: float
    layer_seconds: float
    least_steps: int
    most_warmup_steps: int
    least_beta2: float
    vectors_hours: float
    rate_exponent: float
    narrow_keeps_rate: bool
    gpu_share: float
    gpu_error: float
    margin: float

    def is_supported(self, vocab: int, text_bytes: float) -> bool:
        """Return whether each token of a vocabulary occurs often enough in a text to be learned."""
        most = text_bytes / self.bytes_per_token / self.uses_per_token
        return vocab <= max(self.least_vocab, most)

    def tokens(self, text_bytes: float, vocab: int) -> float:
        """Return the tokens of a text, about, by a tokenizer of `vocab` tokens."""
        halvings = max(0.0, math.log2(self.whole_vocab / vocab))
        each = max(1.0, self.bytes_per_token - self.halving_bytes * halvings)
        return max(1.0, text_bytes / each)


@dataclass(frozen=True)
class Measured:
    """Losses of a few budgets.

    Attributes:
        unit: of the losses.
        vocabulary: that they hold for; None where the unit does not depend on it.
        text: that they were measured on.
        by: what they are measured by.
        losses: pairs of FLOPs, or bytes of text, and losses, ascending; three at least.
    """

    unit: str = ""
    vocabulary: int | None = None
    text: str = ""
    by: Literal["FLOPs", "bytes of text"] = "FLOPs"
    losses: tuple[tuple[float, ...], ...] = ()

    @property
    def error(self) -> float:
        """The largest relative error of a measurement that is predicted from the others."""
        points, errors = self.losses, list[float]()
        for index in range(1, len(points) - 1):
            amount, loss = points[index]
            errors.append(abs(_line(points[:index] + points[index + 1 :], amount) / loss - 1))
        return max(errors, default=0.0)

    def interpolated(self, amount: float, margin: float) -> tuple[float, float, float] | None:
        """Return the loss by the measured ones and its bounds.

        Args:
            amount: FLOPs, or bytes of text.
            margin: how far beyond the measured ones a loss is known, as a factor; None beyond.
        """
        if not self.losses:
            return None
        if not self.losses[0][0] / margin <= amount <= self.losses[-1][0] * margin:
            return None
        loss, error = _line(self.losses, amount), self.error
        return loss, loss / (1 + error), loss * (1 + error)


@dataclass(frozen=True)
class Worth:
    """What models brought a task with few labels, over counting words.

    Attributes:
        task: the task.
        labels: the number of labels.
        flops: of pretraining.
        points: margin of `tune --strategy best` over its best candidate that counts alone.
        low: lower end of the 95 % interval.
        high: upper end.
        own_text: whether texts of the task itself, without labels, were pretrained on too.
    """

    task: str
    labels: int
    flops: float
    points: float
    low: float
    high: float
    own_text: bool = False

    def __str__(self) -> str:
        interval = f"{self.low:+.1f} to {self.high:+.1f}"
        return f"{self.points:+.1f} points ({interval}) on {self.labels:,} labels of {self.task}"


@dataclass(frozen=True)
class FamilyLaw:
    """The file of a family, above the common one.

    Attributes:
        small: the recipe that its dial starts from.
        rules: the figures of the dial's rules.
        scores: what its models are for, each with what one scored and half of the score's 95 %
            interval, or neither.
        worth: what its models bring tasks with few labels, beside counting; () if not measured.
        purposes: what each purpose is scored by.
        stages: training's stages before the last, by the purposes that such a model serves better.
        large: the recipe whose vocabulary and row length are the largest chosen; "" without a dial.
        speed: share of the speed of matrix products that training reaches.
        speed_error: relative error of `speed`, between machines.
        longest: most tokens of a row.
        measured: losses of a few budgets.
        sources: where the figures are from.
        law: a scaling law, which sizes and losses then come from.
        file: where it was read.
    """

    small: str
    rules: Rules
    scores: dict[str, tuple[float, ...]] = field(default_factory=dict)
    worth: tuple[Worth, ...] = ()
    purposes: dict[str, str] = field(default_factory=dict)
    stages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    large: str = ""
    speed: float = 1.0
    speed_error: float = 0.0
    longest: int = 1 << 30
    measured: Measured = Measured()
    sources: dict[str, str] = field(default_factory=dict)
    law: Law | None = None
    file: str = ""

    @property
    def unit(self) -> str:
        """The unit of its losses."""
        return self.measured.unit if self.law is None else self.law.unit

    @property
    def has_losses(self) -> bool:
        """Whether any loss is known."""
        return self.law is not None or bool(self.measured.losses)

    @property
    def vocabulary(self) -> int | None:
        """The vocabulary that its losses hold for; None where the unit does not depend on it."""
        if self.unit == "bits per byte":
            return None
        return (self.law and self.law.vocabulary) or self.measured.vocabulary

    def counting_suffices(self, flops: float, labels: int | None = None) -> str:
        """Return that counting words is as good for few labels, if it was; "" else.

        Args:
            flops: of pretraining.
            labels: the number of labels; None for any of those measured.
        """
        known = [
            one
            for one in self.worth
            if flops <= self.rules.margin * one.flops and (labels or 0) <= one.labels
        ]
        # Of the least number of labels that are enough, or of the most, what pretraining did best.
        counts = [one.labels for one in known if not one.own_text]
        count = min(counts, default=0) if labels else max(counts, default=0)
        alike = [one for one in known if one.labels == count and not one.own_text]
        best = max(alike, key=lambda one: one.points, default=None)
        if best is None or best.low > 0:
            return ""
        line = f"with so little, counting words is as good for {count:,} labels or fewer: "
        line += f"models of {power(best.flops)} FLOPs brought {best}"
        own = max((one for one in known if one.own_text), key=lambda one: one.points, default=None)
        if own is not None:
            line += f"; with the task's own texts without labels {own}"
        return f"{line} ({self.sources.get('worth', self.file)})"

    def law_forecast(self, run: Amounts) -> Expectation:
        """Return the loss to expect by the scaling law, of a text that may be repeated."""
        assert self.law is not None
        law, worth = self.law, effective_epochs(run.epochs)
        size = run.parameters if law.parameters == "all" else run.in_layers
        loss = law.forecast(size, run.text_tokens * worth)
        why = f"the law of {law.text or 'a text that it does not name'}; others have other losses"
        if law.vocabulary not in (None, run.vocab):
            why += f"; of {law.vocabulary:,} tokens in the vocabulary, not {run.vocab:,}"
        fit = loss.fit
        if run.epochs >= self.rules.repeated_epochs:
            fit = (fit[0], max(fit[1], loss.value * (1 + self.rules.repeated_error)))
            why += f"; {run.epochs:.2g} epochs count as {worth:.2g} (Muennighoff et al. 2023), and "
            why += f"may end {self.rules.repeated_error:.0%} higher"
            if source := self.sources.get("repeated_error"):
                why += f" ({source})"
        if law.largest_flops and run.flops > self.rules.margin * law.largest_flops:
            why += f"; {power(run.flops)} FLOPs lie beyond its runs, up to "
            why += power(law.largest_flops)
        if self.rules.margin * run.flops < law.smallest_flops:
            why += f"; {power(run.flops)} FLOPs lie below its runs, from "
            why += power(law.smallest_flops)
        why += "".join(f"; marked: {mark}" for mark in law.marks)
        return Expectation(law.unit, self.file, loss.value, fit, loss.seed, why=why)

    def expect(self, run: Amounts, spread: float | None = None) -> Expectation:
        """Return what is known of the loss of a run.

        Args:
            run: what it depends on.
            spread: relative error of the training's speed; None if the budget does not depend on
                it.
        """
        expected = self._expect(run)
        if spread is None or expected.value is None:
            return expected
        spread = min(0.9, spread)
        runs = (replace(run, flops=factor * run.flops) for factor in (1 + spread, 1 - spread))
        ends = [value for one in runs if (value := self._expect(one).value) is not None]
        if len(ends) == 1:  # beyond the measured budgets as far as on this side of them
            ends.append(2 * expected.value - ends[0])
        interval = (min(*ends, expected.value), max(*ends, expected.value))
        return replace(expected, machine=interval)

    def _expect(self, run: Amounts) -> Expectation:
        known = self.measured
        nothing = Expectation(self.unit, self.sources.get("losses", self.file))
        if self.vocabulary not in (None, run.vocab):
            why = f"none has been measured with this vocabulary, but with {self.vocabulary:,}"
            return replace(nothing, why=why)
        if self.law is not None:
            return self.law_forecast(run)
        if known.by == "FLOPs" and run.epochs > self.rules.repeated_epochs:
            return replace(nothing, why="none has been measured on a text that is read so often")
        of = (known.losses[0][0], known.losses[-1][0]) if known.losses else ()
        amount, shown = run.flops, power(run.flops) + " FLOPs"
        ends = " and ".join(map(power, of))
        if known.by != "FLOPs":
            amount, shown = run.text_bytes, byte_size(round(run.text_bytes))
            ends = " and ".join(byte_size(round(end)) for end in of)
        found = known.interpolated(amount, self.rules.margin)
        if found is not None:
            loss, low, high = found
            why = f"on {known.text}, where {len(known.losses)} budgets were measured; "
            why += "another text has another loss"
            return replace(nothing, value=loss, fit=(low, high), why=why)
        if not known.losses:
            return replace(nothing, why="none has been measured")
        return replace(nothing, why=f"none has been measured for {shown}, but between {ends}")


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
    paths = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}
    own = {name: Path(folder) / path.name for name, path in paths.items() if folder}
    own = {name: path for name, path in own.items() if path.is_file()}
    if folder and not own:
        if not Path(folder).is_dir():
            raise UserError(f"--laws: {folder}: no such folder")
        files = ", ".join(path.name for path in paths.values())
        why = "'foreword scale fit' writes them for the families of its table"
        if (Path(folder) / "all.toml").is_file():
            why = "the law of a table without families, all.toml, is to be named after its family"
        raise UserError(f"--laws: {folder} holds none of {files}; {why}")
    tables = {name: config.read_toml(path) for name, path in paths.items()}
    users = {name: _own_table(path) for name, path in own.items()}
    found = {}
    for name in paths.keys() - {COMMON}:
        layers = [tables[COMMON], tables[name], users.get(COMMON, {}), users.get(name, {})]
        file = own.get(name, paths[name].relative_to(FOLDER.parents[1]))
        table = functools.reduce(config.merge, layers) | {"file": str(file)}
        if law := layers[-1].get("law"):
            table["law"] = law  # whole, not key by key
        try:
            found[name] = config.build(FamilyLaw, table, owner="a law file")
        except UserError as error:
            raise UserError(f"{own.get(name, own.get(COMMON, file))}: {error}") from error
    return dict(sorted(found.items()))


def _own_table(path: Path) -> dict[str, Any]:
    """Return the table of a user's file, whose figures are from there unless it names a source.

    The keys of a law may stand alone, and its family is that of the file.
    """
    table = config.read_toml(path)
    names = {f.name for f in fields(Law)} if "E" in table else set()
    law = {key: value for key, value in table.items() if key in names}
    found = {key: value for key, value in table.items() if key not in names}
    if law:
        found["law"] = {"family": path.stem} | law
    rules, measured, sources = (found.get(part, {}) for part in ("rules", "measured", "sources"))
    if all(isinstance(part, dict) for part in (rules, measured, sources)):
        found["sources"] = dict.fromkeys((*found, *rules, *measured), str(path)) | sources
        if "losses" in measured:
            found["measured"] = {"text": "a text that it does not name"} | measured
    return found


def sized_families(folder: str = "") -> Mapping[str, FamilyLaw]:
    """Return the families that have a dial."""
    return {name: family for name, family in laws(folder).items() if family.large}
