"""Labelled examples as fine-tuned models read them: with the columns and prefixes of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.disk import stored
from foreword.errors import UserError
from foreword.tables.examples import LabelledTexts
from foreword.tables.given import LABEL, PAIR, TEXT
from foreword.tables.reads_rows import ReadsLabelled
from foreword.tuning.example_reader import ExampleReader, ExampleSource, ReadPart, sources_of
from foreword.tuning.predictor import Predictor
from foreword.tuning.tuned import SCORES
from foreword.tuning.tuned_model import TunedWriter

USUAL = (TEXT, PAIR, LABEL)


@dataclass(frozen=True)
class TunedExamples:
    """Labelled examples as a fine-tuned model reads them.

    Attributes:
        read: as they were read.
        examples: with their task prefixes.
        notes: what was wrong in them, a line for each file.
    """

    read: ReadPart
    examples: LabelledTexts
    notes: Sequence[str]


def tuned_examples(
    models: Sequence[Predictor | TunedWriter],
    data: Any,
    reads: ReadsLabelled,
    option: str = "--data",
) -> list[TunedExamples]:
    """Return labelled examples in the form in which each model was tuned.

    Args:
        data: the examples; default: those that each model was scored on.
        reads: which columns hold what; default: as tuned.
        option: the option that names the examples, for messages.

    Raises:
        UserError: there are none, a file cannot be read, or they do not fit a model.
    """
    sources = None if data is None else sources_of(data, "data", models[0].task)
    return [_tuned_part(model, sources, reads, option) for model in models]


def _tuned_part(
    model: Predictor | TunedWriter,
    sources: Sequence[ExampleSource] | None,
    reads: ReadsLabelled,
    option: str,
) -> TunedExamples:
    """Return labelled examples in the form in which a model was tuned; see `tuned_examples`."""
    scores = stored.read(model.source / SCORES)
    known: Mapping[str, Any] = scores["settings"]["data"]
    # Where they are: given, or those that it was scored on, whose number is known.
    where = sources
    if where is None:
        if "dev" not in known:
            raise UserError(
                f"{model.source}: was scored in folds; {option} names examples to score"
            )
        if isinstance(known["dev"], Mapping):  # a suite's, read in its own way
            raise UserError(
                f"{model.source}: was tuned on a suite; {option} names labelled examples"
            )
        files = [known["dev"]] if isinstance(known["dev"], str) else list(known["dev"])
        if missing := [file for file in files if not Path(file).exists()]:
            raise UserError(f"{missing[0]}: no such file; {option} names labelled examples")
        where = sources_of(files, "dev", model.task)
    columns = {} if where[0].columns else {name: known.get(name) or None for name in USUAL}

    # The prefixes: given, those of its own files, or the one of training.
    prefixes = [] if reads.prefix is None else [str(reads.prefix)] * len(where)
    if reads.prefix is None and sources is None:
        prefixes = list(known.get("prefix") or [])[-len(where) :]
    bad_rows = known.get("bad_rows") if reads.bad_rows is None else reads.bad_rows
    named: dict[str, Any] = columns | reads.named
    reader = ExampleReader(
        model.task,
        ReadsLabelled(**named, columns=reads.columns, prefix=prefixes, bad_rows=bad_rows),
    )
    part = reader.read_part(where)
    model.tuned_on.require_form(is_pair=bool(model.task.reader.to_predict(part.columns[0]).pair))
    examples = part.together
    if not prefixes and model.task.reader.takes_texts and not model.task.reader.compares_texts:
        examples = LabelledTexts.of(model.tuned_on.with_prefix(e, None) for e in examples)
    if not examples:
        raise UserError(f"{part.description}: no example has a text and a label")
    if sources is None and len(examples) != scores["examples"]["dev"]:
        raise UserError(
            f"{part.description}: has {len(examples):,} examples, and {model.source} was scored on "
            f"{scores['examples']['dev']:,}; {option} names labelled examples"
        )
    return TunedExamples(part, examples, reader.bad.notes)
