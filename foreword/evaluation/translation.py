"""Translation of files, sentence by sentence, and its quality against references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from foreword.data.text_files import ReadCounts, ReadSettings, TextFile
from foreword.disk import atomic, stored
from foreword.disk.compressed import COMPRESSIONS
from foreword.errors import UserError
from foreword.evaluation import beam
from foreword.evaluation.beam import Beams
from foreword.runs.provenance import command
from foreword.runs.trained_model import TrainedModel
from foreword.text import words

AT_ONCE = 128  # sentences between two reports of progress


@dataclass(frozen=True)
class TranslationQuality:
    """The similarity of translations to references.

    Attributes:
        bleu: 0 to 100: the precision of n-grams up to 4, with a penalty for short translations
            (Papineni et al. 2002).
        chrf: 0 to 100: the F-score of character n-grams (Popovic 2015).
        length_ratio: words of the translations per word of the references.
        signatures: settings of both scores, such as the tokenizer (Post 2018).
    """

    bleu: float
    chrf: float
    length_ratio: float
    signatures: tuple[str, str]


def read_lines(
    file: str | PathLike[str], read: ReadSettings | None = None, counts: ReadCounts | None = None
) -> list[str]:
    """Return the lines of a file, compressed or not, without surrounding white space.

    Empty lines are included.

    Args:
        file: the file.
        read: the settings of reading, such as for bytes that are not UTF-8.
        counts: receives the counts of such bytes.

    Raises:
        UserError: it cannot be read, or is empty.
    """
    path = Path(file)
    source = TextFile(path, read or ReadSettings(), ReadCounts() if counts is None else counts)
    try:
        lines = [
            source.decode(line, f"{path}:{number}", start).strip()
            for number, start, line in source.lines(are_parallel=True)
        ]
    except OSError as error:
        reason = error.strerror or f"not readable ({error})"
        raise UserError(f"{path}: {reason}") from None
    if not any(lines):
        raise UserError(f"{path}: contains no text")
    return lines


def require_as_many(sources: Sequence[str], references: Sequence[str], names: list[str]) -> None:
    """Check that there are as many sources as references.

    Raises:
        UserError: there are not.
    """
    if len(sources) != len(references):
        last = min(len(sources), len(references)) + 1
        longer, shorter = names if len(sources) > len(references) else names[::-1]
        raise UserError(
            f"{longer}:{last}: there is no line {last:,} in {shorter}; both must have the same "
            "number of lines"
        )


def translate(prompted: TrainedModel, texts: Sequence[str], beams: Beams) -> Iterator[str]:
    """Yield the likeliest translation of each text; an empty text has an empty one.

    Raises:
        UserError: the model reads no source, or a text is too long for it.
    """
    if not prompted.answers:
        raise UserError(
            f"{prompted.name}: this {prompted.description} does not translate; train one with "
            "'foreword pretrain seq2seq_mini --data NAME.en'"
        )
    for at in range(0, len(texts), AT_ONCE):
        chunk = texts[at : at + AT_ONCE]
        nonempty = [n for n, text in enumerate(chunk) if text]
        generations = beam.generate(prompted, [chunk[n] for n in nonempty], beams)
        translations = {
            n: _one_line(generation.text)
            for n, generation in zip(nonempty, generations, strict=True)
        }
        yield from (translations.get(n, "") for n in range(len(chunk)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def compare(translations: Sequence[str], *references: Sequence[str | None]) -> TranslationQuality:
    """Return corpus-level BLEU and chrF of sacrebleu, case-sensitive, with its tokenizer `13a`.

    BLEU takes each letter of a script without spaces between words as a word.

    Args:
        translations: the translations.
        references: one of each translation; further ones, or None.

    Reference: Post 2018.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(), CHRF()
    both: Any = [list(translations), *map(list, references)]
    spaced: Any = [[text and words.spaced(text) for text in texts] for texts in both]
    bleu_score = bleu.corpus_score(spaced[0], spaced[1:])
    chrf_score = chrf.corpus_score(both[0], both[1:])
    rule = "" if spaced == both else f"; {words.UNSPACED_RULE}"
    signatures = (f"{bleu.get_signature()}{rule}", str(chrf.get_signature()))
    return TranslationQuality(bleu_score.score, chrf_score.score, bleu_score.ratio, signatures)


def record(
    prompted: TrainedModel,
    source: Path,
    texts: Sequence[str],
    beams: Beams,
    translations: Sequence[str],
    references: Sequence[str] | None,
) -> dict[str, Any]:
    """Return what is saved with the translations of a file: its scores, and how it was made.

    Args:
        prompted: the model.
        source: the file.
        texts: its lines.
        beams: the settings of beam search.
        translations: one of each line.
        references: translations to compare with.
    """
    name = source.stem if source.suffix.lower() in COMPRESSIONS else source.name
    row = {"lines": len(texts), "empty_lines": list(texts).count("")}
    result: dict[str, Any] = {
        "name": f"translate-{name}",
        "task": "translation",
        "checkpoint": prompted.folder.name,
        "beams": asdict(beams),
        "command": command(),
        "rows": [row],
    }
    if references is not None:
        quality = asdict(compare(translations, references))
        result["signatures"] = list(quality.pop("signatures"))
        row |= quality
    return result


def save(prompted: TrainedModel, record: Mapping[str, Any], translations: Sequence[str]) -> Path:
    """Write translations and their record to the run; return the file of the translations."""
    path = prompted.run / "evaluations" / f"{record['name']}.txt"
    atomic.write_text(path, "\n".join(translations) + "\n")
    atomic.write_text(path.with_suffix(".json"), stored.record(record))
    return path
