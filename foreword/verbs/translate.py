"""`foreword translate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foreword.disk import atomic
from foreword.display import lines
from foreword.display.results import Part, Result, ResultTable, Text, spaced
from foreword.errors import UserError
from foreword.settings.ranges import Count, CountOrZero, LengthPenalty
from foreword.verbs._contract import PathName, Verb
from foreword.verbs._groups import ReadsModel, ReadsText, ShowsProgress

if TYPE_CHECKING:
    from foreword.runs.trained_model import TrainedModel


@dataclass(frozen=True, repr=False)
class TranslationResult(Result):
    """The translations of a file.

    Attributes:
        translations: one per line of the source.
        record: what is saved with them: scores, beams, the command.
        kept: the files saved: the translations, and a plot of each alignment.
    """

    translations: list[str]
    record: dict[str, Any]
    kept: list[Path]

    def tables(self) -> Sequence[Part]:
        """Return the scores, or the translations if there are none."""
        parts: list[Part] = [Text(line) for line in self.translations]
        if "signatures" in self.record:
            row = {
                name: f"{value:.2f}" if isinstance(value, float) else value
                for name, value in self.record["rows"][0].items()
            }
            parts = [ResultTable([spaced(row)]), "; ".join(self.record["signatures"])]
        return [*parts, *self.record.get("notes", ()), *(f"saved to {file}" for file in self.kept)]

    def data(self) -> dict[str, Any]:
        """Return the record, the translations and the files."""
        kept = [str(file) for file in self.kept]
        return {**self.record, "translations": self.translations, "kept": kept}


@dataclass(frozen=True)
class Translate(ReadsModel, ShowsProgress, Verb[TranslationResult]):
    """Translate a file line by line; with a reference, score the result by BLEU and chrF.

        foreword.translate("runs/de", "test.en", reference="test.de")

    Translations, scores and plots are saved in RUN/evaluations.

    Attributes:
        source: source file, one text per line; .gz or .zst too.
        reference: reference translations, one per line, for BLEU and chrF.
        beams: number of beams; 1 is greedy decoding.
        length_penalty: 0 prefers short texts, 1 ranks by the mean of their tokens.
        tokens: maximum tokens per translation.
        alignment: plot the attention to the source for line N, as a PNG; repeatable.
        layer: with --alignment: decoder layer; default: the last.
        errors: bytes that are not UTF-8: strict stops, replace replaces and counts.
    """

    source: PathName
    _: KW_ONLY
    reference: PathName | None = None
    beams: Count = 5
    length_penalty: LengthPenalty = 1.0
    tokens: Count = 100
    alignment: Sequence[Count] = ()
    layer: CountOrZero | None = None
    errors: str | None = None

    def __call__(self) -> TranslationResult:
        from foreword.evaluation import translation
        from foreword.evaluation.alignment import layer_of
        from foreword.evaluation.beam import Beams

        # Read the texts and check the arguments.
        beams = Beams(self.beams, self.length_penalty, self.tokens)
        texts, references = self._texts()
        for number in self.alignment:
            if number > len(texts) or not texts[number - 1]:
                raise UserError(f"--alignment {number}: {self.source} has no text in line {number}")
        if self.layer is not None and not self.alignment:
            raise UserError("--layer: requires --alignment")
        loaded = self.opened()
        self.say_unknown(loaded, *texts)
        model = loaded.trained
        folder = model.run / "evaluations"
        atomic.require_writable(folder, is_folder=True, remedy=atomic.MOVE_AWAY)
        layer = layer_of(model, self.layer) if self.alignment else None

        # Translate, score and save.
        with atomic.guarded(model.run):
            outputs: list[str] = []
            with self.display() as display:
                advance = display.stage("translating")
                advance(0, len(texts))
                for output in translation.translate(model, texts, beams):
                    outputs.append(output)
                    advance(len(outputs), len(texts), f"{len(outputs):,} of {len(texts):,}")
            source = Path(self.source)
            record = translation.record(model, source, texts, beams, outputs, references)
            kept = [translation.save(model, record, outputs)]
            pairs = {n: (texts[n - 1], outputs[n - 1]) for n in self.alignment}
            plots, notes = _plots(model, kept[0].with_suffix(""), pairs, layer)
            if notes:
                record["notes"] = notes
                translation.save(model, record, outputs)
        return TranslationResult(outputs, record, [*kept, *plots])

    def _texts(self) -> tuple[list[str], list[str] | None]:
        """Return the lines of the source, and of the reference if there is one."""
        from foreword.data.text_files import ReadCounts, ReadSettings
        from foreword.evaluation import translation

        read = ReadsText(errors=self.errors).read_as(ReadSettings())
        counts, references = ReadCounts(), None
        texts = translation.read_lines(self.source, read, counts)
        if self.reference is not None:
            references = translation.read_lines(self.reference, read, counts)
            translation.require_as_many(texts, references, [str(self.source), str(self.reference)])
        if counts.replaced_bytes:
            lines.say(f"{counts.replaced_bytes:,} bytes replaced")
        return texts, references


def _plots(
    model: TrainedModel, stem: Path, pairs: dict[int, tuple[str, str]], layer: int | None
) -> tuple[list[Path], list[str]]:
    """Plot the attention to the source for some lines; return the files, and what was not drawn."""
    from foreword.evaluation.alignment import align
    from foreword.reports.alignment import plot_alignment

    files, notes = [], []
    for number, pair in pairs.items():
        files.append(stem.with_name(f"{stem.name}-line-{number}.png"))
        plot = plot_alignment(align(model, *pair, layer))
        atomic.write_bytes(files[-1], plot.data)
        notes += [plot.note] if plot.note else []
    return files, list(dict.fromkeys(notes))
