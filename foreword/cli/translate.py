"""`foreword translate`: a file, sentence by sentence, and its quality beside a reference."""

from __future__ import annotations

import json as jsons
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Run, open_model
from foreword.cli._reading import Errors, Reading
from foreword.ranges import Count, CountOrZero, LengthPenalty

if TYPE_CHECKING:
    from foreword.evaluate.loaded import LoadedModel


def translate(
    run: Run,
    source: Annotated[Path, typer.Option(help="A text a line, plain, .gz or .zst.")],
    reference: Annotated[
        Path | None, typer.Option(help="A translation of each, to score by: BLEU and chrF.")
    ] = None,
    beams: Annotated[Count, typer.Option(help="Beginnings kept side by side; 1 is greedy.")] = 5,
    length_penalty: Annotated[
        LengthPenalty,
        typer.Option(help="0 prefers short texts, 1 ranks by the mean of their tokens."),
    ] = 1.0,
    tokens: Annotated[Count, typer.Option(help="At most so many tokens in each.")] = 100,
    alignment: Annotated[
        list[Count] | None,
        typer.Option(help="Draw where the model looked while it wrote line N, as a PNG."),
    ] = None,
    layer: Annotated[
        CountOrZero | None,
        typer.Option(help="With --alignment: of the decoder; the last if unsaid."),
    ] = None,
    errors: Errors = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Translate a file line by line; with a reference, say how near the result is to it.

    The translations are kept in RUN/evaluations, with the scores and the drawings beside them.
    """
    from foreword.data.text_files import ReadCounts, ReadSettings
    from foreword.errors import UserError
    from foreword.evaluate import translation
    from foreword.evaluate.alignment import layer_of
    from foreword.evaluate.beam import Beams

    how = Beams(beams, length_penalty, tokens)
    read, counts = Reading(errors=errors).on(ReadSettings()), ReadCounts()
    texts = translation.read_lines(source, read, counts)
    references = None
    if reference is not None:
        references = translation.read_lines(reference, read, counts)
        translation.require_as_many(texts, references, [str(source), str(reference)])
    for number in alignment or []:
        if not 1 <= number <= len(texts) or not texts[number - 1]:
            raise UserError(f"--alignment {number}: {source} has no text in such a line")
    if counts.replaced_bytes:
        console.say(f"{counts.replaced_bytes:,} bytes replaced")
    if layer is not None and not alignment:
        raise UserError("--layer: goes with --alignment")
    loaded = open_model(run, device)
    if alignment:
        layer = layer_of(loaded.trained, layer)
    found = []
    with console.progress() as bar:
        advance = bar.stage("translating")
        advance(0, len(texts))
        for one in translation.translate(loaded.trained, texts, how):
            found.append(one)
            advance(len(found), len(texts), f"{len(found):,} of {len(texts):,}")
    result = _result(loaded, _plain_name(source), asdict(how))
    result["rows"] = [{"lines": len(texts), "empty_lines": texts.count("")}]
    if references is not None:
        quality = asdict(translation.compare(found, references))
        result["signatures"] = list(quality.pop("signatures"))
        result["rows"][0] |= quality
    kept = _keep(loaded, result, found)
    kept += [
        _draw(
            kept[0].with_suffix(""), loaded, number, (texts[number - 1], found[number - 1]), layer
        )
        for number in alignment or []
    ]
    if json:
        console.emit({**result, "translations": found, "kept": [str(path) for path in kept]})
        return
    _show(result, found)
    for path in kept:
        console.say(f"kept in {path}")


def _plain_name(file: Path) -> str:
    """A file's name without that of a compression."""
    from foreword.data.text_files import COMPRESSIONS

    return file.stem if file.suffix.lower() in COMPRESSIONS else file.name


def _result(loaded: LoadedModel, source: str, beams: dict[str, Any]) -> dict[str, Any]:
    """What is kept beside the translations, without the scores."""
    from foreword.runs.provenance import command

    return {
        "name": f"translate-{source}",
        "task": "translation",
        "checkpoint": loaded.trained.folder.name,
        "beams": beams,
        "command": command(),
    }


def _keep(loaded: LoadedModel, result: dict[str, Any], found: list[str]) -> list[Path]:
    """Writes the translations and the scores."""
    from foreword import atomic

    text = jsons.dumps(result, indent=1, ensure_ascii=False) + "\n"
    path = loaded.trained.run / "evaluations" / f"{result['name']}.txt"
    atomic.write_text(path, "\n".join(found) + "\n")
    atomic.write_text(path.with_suffix(".json"), text)
    return [path]


def _draw(
    stem: Path, loaded: LoadedModel, number: int, pair: tuple[str, str], layer: int | None
) -> Path:
    """Draws where the model looked while it wrote one line."""
    from foreword import atomic
    from foreword.evaluate.alignment import align
    from foreword.report.alignment import draw

    path = stem.with_name(f"{stem.name}-line-{number}.png")
    atomic.write_bytes(path, draw(align(loaded.trained, *pair, layer)))
    return path


def _show(result: dict[str, Any], found: list[str]) -> None:
    """The scores, or without them the translations."""
    if "signatures" not in result:
        for one in found:
            console.out.print(one, markup=False)
        return
    row = result["rows"][0]
    cells = [f"{cell:.2f}" if isinstance(cell, float) else cell for cell in row.values()]
    console.table("", [key.replace("_", " ") for key in row], [cells])
    console.say("; ".join(result["signatures"]))
