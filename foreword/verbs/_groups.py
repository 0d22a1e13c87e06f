"""The arguments that several verbs share, in groups, with what belongs to each."""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display import lines
from foreword.display.progress import ProgressDisplay, progress_of
from foreword.errors import UserError
from foreword.settings import config
from foreword.settings.ranges import (
    Count,
    CountOrZero,
    EpochsOfText,
    Flops,
    Hours,
    LengthPenalty,
    PositiveShare,
    Seed,
    ShareBelowOne,
    Temperature,
    TokensOfText,
)
from foreword.trackers._contract import Tracker
from foreword.verbs._arguments import paths, texts_file
from foreword.verbs._contract import ARGUMENT, PYTHON_ONLY, Flag, PathName, Paths

if TYPE_CHECKING:
    from foreword.data.text_files import ReadSettings
    from foreword.data.write_shards import PrepareSettings
    from foreword.evaluation.beam import Beams
    from foreword.evaluation.loaded import LoadedModel
    from foreword.evaluation.sampling import Sampling
    from foreword.train.budget import Budget

Examples = PathName | Iterable[Any]
TUNED = Flag(is_argument=True, metavar="TUNED...")


@dataclass(frozen=True, kw_only=True)
class ShowsProgress:
    """Work whose progress is shown.

    Attributes:
        progress: whether to show the progress, or what shows it.
    """

    progress: Annotated[bool | ProgressDisplay, PYTHON_ONLY] = True

    def display(self, *, announces: bool = False) -> ProgressDisplay:
        """Return what shows the progress; see `progress_of`."""
        return progress_of(self.progress, announces=announces)


@dataclass(frozen=True, kw_only=True)
class Computes:
    """Where it computes.

    Attributes:
        device: where to compute: auto, cpu, cuda or mps.
    """

    device: str = "auto"


@dataclass(frozen=True)
class ReadsModel(Computes):
    """A trained model.

    Attributes:
        run: a run folder, or one of its checkpoints/step-*.
    """

    run: Annotated[PathName, ARGUMENT]

    def opened(self) -> LoadedModel:
        """Return the model, and print what was skipped on the way.

        Raises:
            UserError: there is no such run or device.
        """
        from foreword.evaluation.loaded import load

        loaded = load(Path(self.run), self.device)
        for note in loaded.trained.notes:
            lines.say(note)
        return loaded

    def say_unknown(self, loaded: LoadedModel, *texts: str) -> None:
        """Say how many tokens of the texts the model cannot tell apart, if any."""
        ids = [i for text in texts for i in loaded.tokenizer.encode(text, special=True).tolist()]
        if count := ids.count(loaded.tokenizer.vocab.unknown):
            lines.say(
                f"{count:,} of {len(ids):,} tokens of the text are [UNK]: unknown to the model"
            )


@dataclass(frozen=True, kw_only=True)
class Tracks:
    """Where records go.

    Attributes:
        track: also send the records to tensorboard or wandb, or, in Python, to a tracker object;
            repeatable.
    """

    track: Annotated[str | Tracker | Sequence[str | Tracker], Flag(takes=list[str])] = ()


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """A budget, in one of its units; default: that of the recipe.

    Attributes:
        hours: budget in hours of training; tokenizer and token shards are made before.
        tokens: budget in tokens.
        epochs: budget in epochs.
        steps: budget in steps.
        flops: budget in FLOPs.
    """

    hours: Hours | None = None
    tokens: TokensOfText | None = None
    epochs: EpochsOfText | None = None
    steps: Count | None = None
    flops: Flops | None = None

    def budget(self) -> Budget | None:
        """Return the budget; None if none is given.

        Raises:
            UserError: more than one is given.
        """
        from foreword.train.budget import Budget

        amounts = {f.name: getattr(self, f.name) for f in fields(Budgets)}
        given = {unit: amount for unit, amount in amounts.items() if amount is not None}
        if len(given) > 1:
            flags = ", ".join(f"--{unit}" for unit in given)
            raise UserError(f"give one budget, not {len(given)}: {flags}")
        budgets = [
            config.build(Budget, {"unit": unit, "amount": amount}) for unit, amount in given.items()
        ]
        return budgets[0] if budgets else None


@dataclass(frozen=True, kw_only=True)
class ReadsText:
    """How to read text; what is given overrides the recipe.

    Attributes:
        field: field of JSON or column of Parquet that holds the text.
        target: for parallel text: the field of the target side.
        documents: what is one document in plain text: file, paragraph or line.
        errors: bytes that are not UTF-8: strict stops, replace replaces and counts.
    """

    field: str | None = None
    target: str | None = None
    documents: str | None = None
    errors: str | None = None

    @property
    def reading(self) -> dict[str, Any]:
        """The settings that are given, as a recipe has them."""
        values = {f.name: getattr(self, f.name) for f in fields(ReadsText)}
        given = {name: value for name, value in values.items() if value is not None}
        if given.get("documents", "line") != "line":
            given["blank_lines"] = False  # there are none to count
        return given

    def refuse_reading(self, why: str) -> None:
        """Raise UserError, with the reason `why`, if one is given where no text is read."""
        if self.reading:
            raise UserError(f"--{next(iter(self.reading))}: {why}")

    def read_as(self, settings: ReadSettings) -> ReadSettings:
        """Return `settings` with what is given.

        Raises:
            UserError: a value is not a choice.
        """
        try:
            return replace(settings, **self.reading)
        except ValueError as error:
            raise UserError(f"--{error}") from None


@dataclass(frozen=True, kw_only=True)
class TakesTexts(ReadsText):
    """Documents in place of files.

    Attributes:
        texts: documents in place of `data`, any iterable of texts, read once; they are kept in
            `OUT.jsonl`, to be read again.
    """

    texts: Annotated[Iterable[str] | None, PYTHON_ONLY] = None

    def files(self, data: Sequence[str], out: Path, *, is_needed: bool = True) -> list[str]:
        """Return the files to read: `data`, or the one in which the texts will be kept.

        Raises:
            UserError: there are files and texts, or neither where text `is_needed`, or arguments of
                reading with texts.
        """
        given = [data, self.texts is not None]
        if all(given) or (is_needed and not any(given)):
            raise UserError(
                "give data, which takes paths, or texts, which takes the texts themselves"
            )
        if self.texts is None:
            return list(data)
        self.refuse_reading("cannot be combined with texts, which are documents as they are")
        return [str(texts_file(out))]


@dataclass(frozen=True, kw_only=True)
class HoldsOut:
    """The text to hold out.

    Attributes:
        heldout: text never trained on: a share of the documents, or files, folders, globs.
    """

    heldout: Annotated[Paths | ShareBelowOne | None, Flag(metavar="SHARE|TEXT")] = None

    def held_out(self, settings: PrepareSettings) -> tuple[PrepareSettings, tuple[str, ...]]:
        """Return the settings with the share to hold out, and the held-out texts.

        Raises:
            UserError: both are given, or several shares, or an impossible one.
        """
        values = self._values()
        if not any(map(_is_share, values)):
            return settings, values
        if len(values) > 1:
            raise UserError(f"--heldout: expected one share, or texts; got {' and '.join(values)}")
        try:
            return replace(settings, heldout=float(values[0])), ()
        except ValueError as error:
            raise UserError(f"--{error}") from None

    @property
    def holds_out_text(self) -> bool:
        """Whether text is held out, and not a share."""
        return not all(map(_is_share, self._values()))

    def _values(self) -> tuple[str, ...]:
        value: Any = self.heldout
        return (str(value),) if isinstance(value, numbers.Real) else paths(value)


def _is_share(value: str) -> bool:
    """Return whether a value of `heldout` is a number, not a path."""
    try:
        float(value)
    except ValueError:
        return False
    return True


@contextmanager
def naming(part: str, options: Mapping[str, str]) -> Iterator[None]:
    """Name settings as the command line does in the messages of user errors.

    Args:
        part: the part of a recipe that has them: "tokenizer".
        options: the option of each: {"vocab": "--vocab"}.
    """
    try:
        yield
    except UserError as error:
        setting = rf"\b{part}\.({'|'.join(options)})\b(=?)"
        text = re.sub(setting, lambda m: options[m[1]] + (m[2] and " "), str(error))
        raise UserError(text) from error


@dataclass(frozen=True, kw_only=True)
class Decodes:
    """How to decode: sampling, or beam search.

    Attributes:
        tokens: maximum number of new tokens.
        temperature: sampling temperature; 0 always takes the likeliest token.
        top_k: sample from the k likeliest tokens; 0 for all.
        top_p: sample from the likeliest tokens that sum up to p.
        seed: equal seeds give equal texts.
        steps: of masked diffusion: steps in which all tokens are written; 0 for one each.
        block: of masked diffusion: tokens of a block, filled before the next one.
        beams: use beam search with this many beams; 0 samples.
        length_penalty: with beams: 0 prefers short texts, 1 ranks by the mean.
    """

    tokens: Count = 100
    temperature: Temperature = 0.8
    top_k: CountOrZero = 50
    top_p: PositiveShare = 1.0
    seed: Seed = 1
    steps: CountOrZero = 0
    block: Count = 32
    beams: CountOrZero = 0
    length_penalty: LengthPenalty = 1.0

    def beam_search(self) -> Beams:
        """Return the settings of beam search."""
        from foreword.evaluation.beam import Beams

        return Beams(self.beams, self.length_penalty, self.tokens)

    def sampling(self) -> Sampling:
        """Return the settings of sampling."""
        from foreword.evaluation.sampling import Sampling

        return Sampling(
            self.tokens,
            self.temperature,
            self.top_k,
            self.top_p,
            self.seed,
            self.steps,
            self.block,
        )
