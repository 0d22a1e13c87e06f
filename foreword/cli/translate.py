"""`foreword translate`: translate a file line by line, and score it against a reference."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Quiet, Run, open_model, say_unknown
from foreword.cli._options import Options
from foreword.cli._reading import Errors, Reading
from foreword.settings.ranges import Count, CountOrZero, LengthPenalty

if TYPE_CHECKING:
    from foreword.evaluation.loaded import LoadedModel


@dataclass(frozen=True)
class BeamOptions(Options):
    """The settings of beam search."""

    beams: Annotated[Count, typer.Option(help="Number of beams; 1 is greedy decoding.")] = 5
    length_penalty: Annotated[
        LengthPenalty,
        typer.Option(help="0 prefers short texts, 1 ranks by the mean of their tokens."),
    ] = 1.0
    tokens: Annotated[Count, typer.Option(help="Maximum tokens per translation.")] = 100


@dataclass(frozen=True)
class AlignmentOptions(Options):
    """Which attention to plot."""

    alignment: Annotated[
        list[Count] | None,
        typer.Option(help="Plot the attention to the source for line N, as a PNG; repeatable."),
    ] = None
    layer: Annotated[
        CountOrZero | None,
        typer.Option(help="With --alignment: decoder layer; default: the last."),
    ] = None

    def check(self, source: Path, texts: list[str]) -> None:
        """Check that each line has a text, and that a layer is of an alignment.

        Raises:
            UserError: a line has none, or there is no alignment.
        """
        from foreword.errors import UserError

        for number in self.alignment or []:
            if not 1 <= number <= len(texts) or not texts[number - 1]:
                raise UserError(f"--alignment {number}: {source} has no text in line {number}")
        if self.layer is not None and not self.alignment:
            raise UserError("--layer: requires --alignment")


def translate(
    run: Run,
    source: Annotated[Path, typer.Option(help="Source file, one text per line; .gz or .zst too.")],
    beam_options: BeamOptions,
    alignment_options: AlignmentOptions,
    reference: Annotated[
        Path | None, typer.Option(help="Reference translations, one per line, for BLEU and chrF.")
    ] = None,
    errors: Errors = None,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Translate a file line by line; with a reference, score the result by BLEU and chrF.

    Translations, scores and plots are saved in RUN/evaluations.
    """
    from foreword.api.progress import progress_of
    from foreword.disk import atomic
    from foreword.evaluation import translation
    from foreword.evaluation.alignment import layer_of
    from foreword.evaluation.beam import Beams

    # Read the texts and check the options.
    beams = Beams(beam_options.beams, beam_options.length_penalty, beam_options.tokens)
    texts, references = _read_texts(source, reference, errors)
    alignment_options.check(source, texts)
    alignment = alignment_options.alignment or []

    # Translate.
    loaded = open_model(run, device)
    say_unknown(loaded, texts)
    atomic.require_writable(
        loaded.trained.run / "evaluations", is_folder=True, remedy=atomic.MOVE_AWAY
    )
    layer = layer_of(loaded.trained, alignment_options.layer) if alignment else None
    outputs: list[str] = []
    with progress_of(not quiet) as display:
        advance = display.stage("translating")
        advance(0, len(texts))
        for output in translation.translate(loaded.trained, texts, beams):
            outputs.append(output)
            advance(len(outputs), len(texts), f"{len(outputs):,} of {len(texts):,}")

    # Score, save and show.
    result = _result(loaded, _plain_name(source), asdict(beams))
    result["rows"] = [{"lines": len(texts), "empty_lines": texts.count("")}]
    if references is not None:
        quality = asdict(translation.compare(outputs, references))
        result["signatures"] = list(quality.pop("signatures"))
        result["rows"][0] |= quality
    saved = _save(loaded, result, outputs)
    stem = saved[0].with_suffix("")
    undrawn = []
    for number in alignment:
        pair = texts[number - 1], outputs[number - 1]
        path, note = _plot_alignment(stem, loaded, number, pair, layer)
        saved.append(path)
        undrawn += [note] if note else []
    if undrawn:
        result["notes"] = list(dict.fromkeys(undrawn))
        _save(loaded, result, outputs)
    if json:
        console.emit({**result, "translations": outputs, "kept": [str(path) for path in saved]})
        return
    _show(result, outputs)
    for note in result.get("notes", ()):
        console.say(note)
    for path in saved:
        console.say(f"saved to {path}")


def _read_texts(
    source: Path, reference: Path | None, errors: str | None
) -> tuple[list[str], list[str] | None]:
    """Return the lines of the source, and of the reference if there is one."""
    from foreword.data.text_files import ReadCounts, ReadSettings
    from foreword.evaluation import translation

    read, counts = Reading(errors=errors).on(ReadSettings()), ReadCounts()
    texts = translation.read_lines(source, read, counts)
    references = None
    if reference is not None:
        references = translation.read_lines(reference, read, counts)
        translation.require_as_many(texts, references, [str(source), str(reference)])
    if counts.replaced_bytes:
        console.say(f"{counts.replaced_bytes:,} bytes replaced")
    return texts, references


def _plain_name(file: Path) -> str:
    """Return a file's name without the suffix of a compression."""
    from foreword.disk.compressed import COMPRESSIONS

    return file.stem if file.suffix.lower() in COMPRESSIONS else file.name


def _result(loaded: LoadedModel, source: str, beams: dict[str, Any]) -> dict[str, Any]:
    """Return the result to save with the translations, before it has scores."""
    from foreword.runs.provenance import command

    return {
        "name": f"translate-{source}",
        "task": "translation",
        "checkpoint": loaded.trained.folder.name,
        "beams": beams,
        "command": command(),
    }


def _save(loaded: LoadedModel, result: dict[str, Any], outputs: list[str]) -> list[Path]:
    """Write the translations and the scores."""
    from foreword.disk import atomic, stored

    text = stored.record(result)
    path = loaded.trained.run / "evaluations" / f"{result['name']}.txt"
    atomic.write_text(path, "\n".join(outputs) + "\n")
    atomic.write_text(path.with_suffix(".json"), text)
    return [path]


def _plot_alignment(
    stem: Path, loaded: LoadedModel, number: int, pair: tuple[str, str], layer: int | None
) -> tuple[Path, str]:
    """Plot the attention to the source while one line was written; return the file and a note."""
    from foreword.disk import atomic
    from foreword.evaluation.alignment import align
    from foreword.reports.alignment import plot_alignment

    path = stem.with_name(f"{stem.name}-line-{number}.png")
    plot = plot_alignment(align(loaded.trained, *pair, layer))
    atomic.write_bytes(path, plot.data)
    return path, plot.note


def _show(result: dict[str, Any], outputs: list[str]) -> None:
    """Print the scores, or the translations if there are none."""
    if "signatures" not in result:
        for output in outputs:
            console.out.print(output)
        return
    row = result["rows"][0]
    cells = [f"{cell:.2f}" if isinstance(cell, float) else cell for cell in row.values()]
    console.table("", [key.replace("_", " ") for key in row], [cells])
    console.say("; ".join(result["signatures"]))
