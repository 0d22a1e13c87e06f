"""`foreword predict`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Part, Remark, Result, ResultTable, Shown
from foreword.errors import UserError
from foreword.settings.ranges import OpenShare
from foreword.tables.reads_rows import ReadsRows
from foreword.verbs._arguments import path
from foreword.verbs._contract import ARGUMENT, Flag, PathName, Verb
from foreword.verbs._groups import Computes, ShowsProgress

if TYPE_CHECKING:
    from foreword.tables.write import WriteRows
    from foreword.tuning.predict_table import PredictionCounts
    from foreword.tuning.tuned_model import Predictor, TunedWriter

STANDARD = "-"  # standard input or output
ROWS_SHOWN = 5  # of a result


@dataclass(frozen=True, repr=False)
class PredictionResult(Result):
    """Predictions for texts or for the rows of a file.

    Attributes:
        out: the file they were written to; None if they are in `rows`.
        rows: each row of the input with its prediction; empty if they were written to a file.
        counts: how many there are, and of which labels.
        notes: remarks, such as how many texts were cut; a line each.
    """

    out: Path | None
    rows: list[dict[str, Any]]
    counts: PredictionCounts
    notes: tuple[str, ...]

    @property
    def predictions(self) -> list[Any]:
        """The prediction of each row: a label, a number or a text; None for a row without text."""
        from foreword.tables.columns import PREDICTION

        return [row[PREDICTION] for row in self.rows]

    def tables(self) -> Sequence[Part]:
        """Return how many rows and labels there are, where they are, and the first rows."""
        counts = self.counts
        labels = ", ".join(f"{label}: {count:,}" for label, count in counts.labels.most_common(10))
        rows = f"{counts.rows:,} {'row' if counts.rows == 1 else 'rows'}"
        parts: list[Part] = [Remark(f"{rows}{f'; {labels}' if labels else ''}")]
        parts += [] if self.out is None else [Remark(f"predictions: {self.out}")]
        parts += map(Shown, self.notes)
        return [*parts, ResultTable(self.rows[:ROWS_SHOWN])] if self.rows else parts

    def data(self) -> dict[str, Any]:
        """Return the counts, and the file or the rows."""
        if self.out is not None:
            return {"out": str(self.out), **vars(self.counts)}
        return {**vars(self.counts), "predictions": self.rows}


@dataclass(frozen=True)
class Predict(ReadsRows, ShowsProgress, Computes, Verb[PredictionResult]):
    """Predict with a fine-tuned model: a label, a number or a text for each row of a file.

        foreword.predict("runs/books/tuned/reviews", ["a fine book"]).predictions
        foreword.predict("runs/books/tuned/reviews", "new.csv", out="predicted.csv")

    The output has the rows in their order, with their columns and 'prediction'; for labels also
    'probability', calibrated. A row without text has no prediction. A file is read and written in
    parts, so it may be larger than the memory.

    Where a text may have several labels, 'prediction' and 'probability' are lists. A tagger's have
    an item for each word; a sentence given as text also gets the 'start' and 'end' of its words,
    and its 'entities', and --out with .conll has a word per line. A model of sentence embeddings
    predicts the vector of a text, or the cosine of a pair.

    Attributes:
        tuned: the folder that 'foreword tune' wrote; in Python also the model that `load` returned.
        data: rows to predict for: .tsv, .csv, .jsonl, .parquet, or what the task reads (.conllu),
            plain, .gz or .zst; - for lines of text. In Python also a table, such as a DataFrame, or
            texts, pairs of texts in tuples, or dictionaries of values by column.
        out: file to write, .jsonl, .csv, .tsv, .parquet, .conll for sentences, .json by id;
            default: JSON lines to the screen, in Python the rows of the result.
        bad_rows: share of a file's rows that may be wrong: they keep their place without a
            prediction, and are counted and named; more are refused. Default: 0.01.
        probabilities: also give the probability of each label.
        threshold: probability from which a label is predicted. Of two labels it is for the second,
            or the one tuned as task.positive; of several labels a text, for each; of a tagger of
            entities, for a word being part of one. Default: as tuned.
        precision: precision to compute in: fp32, bf16 or auto.
    """

    tuned: Annotated[PathName | Predictor | TunedWriter, ARGUMENT]
    data: Annotated[PathName | Iterable[Any], Flag(is_argument=True, metavar="FILE")]
    _: KW_ONLY
    prefix: str | None = None
    out: PathName | None = None
    probabilities: bool = False
    threshold: OpenShare | None = None
    precision: str = "fp32"

    def on_screen(self) -> Predict:
        """Return the verb, with each row written as it is predicted, where no file is named."""
        return self if self.out is not None else replace(self, out=STANDARD)

    def __call__(self) -> PredictionResult:
        from foreword.tables.table import BadRows
        from foreword.tuning.predict_table import (
            PredictOptions,
            count_rows,
            output_types,
            predict_table,
            rows_to_predict,
        )

        # Check what is cheap first, then open the model and the table.
        target, display = self._target(), self.display()
        model = self._opened()
        if emulated := _precision_warning(model):
            display.warn(emulated)
        table, table_columns = rows_to_predict(self.data, model, self.named, self.names)
        bad = BadRows.of(self.bad_rows)
        how = PredictOptions(table_columns, bad, self.prefix, self.probabilities)
        types, said = output_types(table, model, how), list[str]()
        if self.threshold is not None:
            model = model.at_threshold(self.threshold)
            decided = model.task.answers.decided(model.labels)
            said.append(f"{decided} is predicted from a probability of {self.threshold:g} on")
        total = count_rows(model, table, how)
        for warning in how.bad.notes:
            display.warn(warning)

        # Predict a window of rows at a time.
        rows: list[dict[str, Any]] = []
        with display, self._writing(target, types, rows) as write:
            advance = display.stage("predicting")

            def report(done: int) -> None:
                if total is not None:
                    advance(done, total, f"{done:,} of {total:,} rows")

            counts = predict_table(model, table, how, write, report)
        notes = (*said, *counts.notes(model.max_tokens))
        for note in notes:
            (display.warn if note.startswith("warning: ") else display.note)(note)
        return PredictionResult(target, rows, counts, (*how.bad.notes, *notes))

    def _target(self) -> Path | None:
        from foreword.disk import atomic
        from foreword.tables.files import format_of
        from foreword.tables.write import WRITTEN

        if self.out is None or self.out == STANDARD:
            return None
        target = Path(self.out)
        format_of(target, WRITTEN)
        atomic.require_writable(target, is_folder=False)
        if target.exists():
            raise UserError(f"{target}: already exists; choose another --out")
        return target

    def _opened(self) -> Predictor | TunedWriter:
        from foreword.tuning.open_tuned import open_tuned
        from foreword.tuning.tuned_model import Predictor, TunedWriter

        if not isinstance(self.tuned, Predictor | TunedWriter):
            return open_tuned(path(self.tuned, "TUNED"), self.device, self.precision)
        if (self.device, self.precision) != ("auto", "fp32"):
            raise UserError(
                "device, precision: the model is loaded; choose them with foreword.load"
            )
        return self.tuned

    @contextmanager
    def _writing(
        self, target: Path | None, types: Mapping[str, Any], rows: list[dict[str, Any]]
    ) -> Iterator[WriteRows]:
        """Yield what writes rows to a file or standard output, or appends them to `rows`."""
        from foreword.tables.write import write_json_lines, writing_rows

        if target is not None:
            with writing_rows(target, types) as write:
                yield write
        elif self.out == STANDARD:
            yield write_json_lines(sys.stdout)
        else:
            yield lambda some: rows.extend(dict(row.values) for row in some)


def _precision_warning(model: Predictor | TunedWriter) -> str | None:
    """Return a warning that the hardware emulates the model's precision."""
    from foreword.train.device import precision_warning
    from foreword.tuning.tuned_model import TunedWriter

    opened = model.trained if isinstance(model, TunedWriter) else model
    return precision_warning(opened.device, opened.dtype)
