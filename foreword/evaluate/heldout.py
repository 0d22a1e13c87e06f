"""The loss of a run's own objective on text it has not seen, and what counting would reach."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from foreword.data.prepared_text import PreparedText, data_warnings
from foreword.data.shards import Shards
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.errors import UserError
from foreword.evaluate import entropy
from foreword.evaluate.prompting import PromptedModel
from foreword.runs.corpus import Stage, unwatched
from foreword.runs.measure import measure, perplexity_of
from foreword.runs.provenance import read_state
from foreword.text.special import UNK
from foreword.types import Vocab

ALL = 1 << 62
_COUNTED = 1 << 24  # tokens searched at once


@dataclass(frozen=True)
class HeldOut:
    """A loss on held-out text.

    Attributes:
        what: the model, or the counts it is compared with.
        loss: nats per prediction.
        predictions: how many; a masked language model predicts a share of the tokens.
        bits_per_byte: where every token of the text is predicted, else None.
        has_perplexity: whether it is the logarithm of one; a sum of several losses is not, nor are
            scores that are no probabilities.
        components: nats per prediction of each term of a sum, and the means beside them.
        unknown: share of the text's tokens that are [UNK]; these cost little, so the more there
            are, the less the figures compare.
    """

    what: str
    loss: float
    predictions: int
    bits_per_byte: float | None
    has_perplexity: bool = True
    components: Mapping[str, float] = field(default_factory=dict)
    unknown: float = 0.0

    @property
    def perplexity(self) -> float | None:
        """exp of the loss, where it has a meaning; infinite of a text that is impossible."""
        return perplexity_of(self.loss) if self.has_perplexity else None

    def as_row(self) -> dict[str, float | int | str | None]:
        """Flat, for tables and JSON."""
        return {
            "what": self.what,
            "loss": _finite(self.loss),
            "perplexity": _finite(self.perplexity),
            "bits_per_byte": _finite(self.bits_per_byte),
            "predictions": self.predictions,
        }


def run_shards(run: Path, option: str = "--file") -> PreparedText:
    """Return the token shards that a run was trained on.

    Args:
        run: its folder.
        option: the command-line option that names a text instead.

    Raises:
        UserError: they are gone.
    """
    texts = read_state(run).get("texts") or []
    is_given = len(texts) == 1 and (Path(texts[0]) / "prepared.json").is_file()
    folder = Path(texts[0]) if is_given else run / "shards"
    if not (folder / "prepared.json").is_file():
        raise UserError(
            f"{folder}: the run's token shards are not there; name a text with {option}"
        )
    return PreparedText.load(folder)


def shards_of(prompted: PromptedModel, run: Path, option: str = "--file") -> PreparedText:
    """Return the token shards of a run, which must match the model's tokenizer.

    Raises:
        UserError: they are gone, or were made with another tokenizer.
    """
    prepared = run_shards(run, option)
    if prepared.manifest["tokenizer"]["fingerprint"] != prompted.tokenizer.fingerprint:
        raise UserError(f"{prepared.folder}: these shards were made with another tokenizer")
    return prepared


def on_run(
    prompted: PromptedModel, run: Path, rows: int = ALL, streams: int = 0, stage: Stage = unwatched
) -> list[HeldOut]:
    """Return the loss on a run's held-out text, and those of count-based baselines.

    The rows and their masks are those of the held-out loss during training.

    Args:
        prompted: the run's model.
        run: its folder.
        rows: the most rows to read.
        streams: parts that the text of a model with a memory is read in, side by side: 1 reads it
            as one stream; 0 for as many as training measures itself by.
        stage: receives what is being done, and its progress.

    Raises:
        UserError: the shards are gone, or hold out too little.
    """
    return on_prepared(prompted, shards_of(prompted, run), rows, streams, stage)


def on_prepared(
    prompted: PromptedModel,
    prepared: PreparedText,
    rows: int = ALL,
    streams: int = 0,
    stage: Stage = unwatched,
) -> list[HeldOut]:
    """Return what `on_run` does, of the run's token shards.

    Raises:
        UserError: they hold out too little.
    """
    per_token = prepared.bytes_per_token(ends=prompted.recipe.ends_texts)
    found = on_shards(prompted, (prepared.heldout, per_token), rows, streams, stage)
    if prepared.heldout.tokens_total and prepared.train.tokens_total:
        stage("counting words to compare with")
        counts = entropy.baselines(prepared.train, prepared.heldout, prompted.vocab.size)
        levels = [("unigram counts", counts.unigram)]
        if found[0].bits_per_byte is not None:  # a model that sees both sides is no bigram's rival
            levels.insert(0, ("bigram counts", counts.bigram))
        for what, nats in levels:
            bits = entropy.bits_per_byte(nats, prepared.bytes_per_token())
            found.append(HeldOut(what, nats, counts.tokens, bits))
    return found


def on_texts(
    prompted: PromptedModel,
    texts: Sequence[str],
    rows: int = ALL,
    streams: int = 0,
    note: Callable[[str], None] | None = None,
    stage: Stage = unwatched,
) -> list[HeldOut]:
    """Return the loss on other text.

    Args:
        prompted: the model.
        texts: files, folders, globs.
        rows: the most rows to read.
        streams: as in `on_run`.
        note: receives the data warnings.
        stage: receives what is being done, and its progress.

    Raises:
        UserError: the text cannot be read, or is shorter than a row.
    """
    with shards_of_texts(prompted, texts, note, stage) as shards:
        return on_shards(prompted, shards, rows, streams, stage)


def on_shards(
    prompted: PromptedModel,
    shards: tuple[Shards, float],
    rows: int = ALL,
    streams: int = 0,
    stage: Stage = unwatched,
) -> list[HeldOut]:
    """Return what `on_texts` does, of what `shards_of_texts` yields.

    Raises:
        UserError: the text is shorter than a row.
    """
    watch = stage("measuring the loss")
    return [_measure(prompted, *shards, rows, streams, watch)]


@contextmanager
def shards_of_texts(
    prompted: PromptedModel,
    texts: Sequence[str],
    note: Callable[[str], None] | None = None,
    stage: Stage = unwatched,
) -> Iterator[tuple[Shards, float]]:
    """Prepare texts as temporary shards; yield them and their bytes per predicted token.

    Args:
        prompted: the model.
        texts: files, folders, globs.
        note: receives the data warnings.
        stage: receives what is being done, and its progress.

    Raises:
        UserError: they cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings = PrepareSettings(heldout=0.0)
        read = prompted.recipe.read
        progress = stage("cutting text into tokens")
        prepared = prepare(texts, prompted.tokenizer, Path(folder), settings, read, progress)
        odd = data_warnings(prepared.manifest["read"]["counts"], prepared.counts["train"].unknown)
        if note is not None and odd:
            note("; ".join(f"{count:,} {what}" for what, count in odd.items()))
        yield prepared.train, prepared.bytes_per_token("train", ends=prompted.recipe.ends_texts)


def _measure(
    prompted: PromptedModel,
    shards: Shards,
    bytes_per_token: float,
    rows: int,
    streams: int,
    watch: Callable[[float, float], None],
) -> HeldOut:
    recipe, vocab, dtype = prompted.recipe, prompted.vocab, prompted.dtype
    found = measure(
        recipe, prompted.model, shards, vocab, rows=rows, streams=streams, dtype=dtype, watch=watch
    )
    if found is None:
        least = recipe.packing.length
        raise UserError(
            f"{shards.tokens_total} tokens of held-out text do not fill one row of {least}; name a "
            "longer text with --file"
            if shards.tokens_total
            else "there is no held-out text; name a text with --file"
        )
    return HeldOut(
        prompted.family,
        found.loss,
        found.predictions,
        found.bits_per_byte(bytes_per_token),
        found.has_perplexity,
        found.components,
        unknown_in(shards, vocab),
    )


def unknown_in(shards: Shards, vocab: Vocab) -> float:
    """Return the share of a text's tokens that are [UNK]."""
    unknown = vocab.special.get(UNK, -1)
    starts = range(0, shards.tokens_total, _COUNTED)
    count = sum(int((shards.tokens[at : at + _COUNTED] == unknown).sum()) for at in starts)
    return count / max(1, shards.tokens_total)


def _finite(value: float | None) -> float | None:
    """Return the value if JSON can hold it, else None."""
    return value if value is not None and math.isfinite(value) else None
