"""Translating files, sentence by sentence, and holding the result against a reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from foreword.data.text_files import ReadCounts, ReadSettings, TextFile
from foreword.errors import UserError
from foreword.evaluate import beam
from foreword.evaluate.beam import Beams
from foreword.evaluate.prompting import PromptedModel

AT_ONCE = 128  # sentences between two words on how far it is


@dataclass(frozen=True)
class TranslationQuality:
    """How near translations are to references.

    Attributes:
        bleu: 0 to 100: n-grams up to 4 that are in the reference too, and a penalty where the
            translations are shorter (Papineni et al. 2002).
        chrf: 0 to 100: the same of characters, F-score (Popovic 2015).
        length_ratio: words of the translations per word of the references.
        signatures: of both, which say how texts are cut into words (Post 2018).
    """

    bleu: float
    chrf: float
    length_ratio: float
    signatures: tuple[str, str]


def read_lines(
    file: str | Path, read: ReadSettings | None = None, counts: ReadCounts | None = None
) -> list[str]:
    """The lines of a file, compressed or not, without white space around them; empty ones too.

    Args:
        file: to read.
        read: what to do about bytes that are not UTF-8.
        counts: what to count these in.

    Raises:
        UserError: it cannot be read, or is empty.
    """
    path = Path(file)
    source = TextFile(path, read or ReadSettings(), ReadCounts() if counts is None else counts)
    try:
        lines = [
            source.decode(line, f"{path}:{number}", start).strip()
            for number, start, line in source.lines()
        ]
    except OSError as error:
        reason = error.strerror or f"not readable ({error})"
        raise UserError(f"{path}: {reason}") from None
    if not any(lines):
        raise UserError(f"{path}: there is no text in it")
    return lines


def require_as_many(sources: Sequence[str], references: Sequence[str], names: list[str]) -> None:
    """Makes sure that every source has its reference.

    Raises:
        UserError: it has not.
    """
    if len(sources) != len(references):
        last = min(len(sources), len(references)) + 1
        longer, shorter = names if len(sources) > len(references) else names[::-1]
        raise UserError(
            f"{longer}:{last}: there is no line {last:,} in {shorter}; the two must have as many "
            "lines: find the line that one lacks"
        )


def translate(prompted: PromptedModel, texts: Sequence[str], beams: Beams) -> Iterator[str]:
    """The likeliest translation of each text; of an empty one it is empty.

    Raises:
        UserError: the model reads no source, or a text is too long for it.
    """
    if not prompted.answers:
        raise UserError(
            f"{prompted.name}: this {prompted.family} does not translate; train one with "
            "'foreword pretrain seq2seq_mini --data NAME.en'"
        )
    for at in range(0, len(texts), AT_ONCE):
        some = texts[at : at + AT_ONCE]
        asked = [n for n, text in enumerate(some) if text]
        found = beam.generate(prompted, [some[n] for n in asked], beams)
        written = {n: _one_line(one.text) for n, one in zip(asked, found, strict=True)}
        yield from (written.get(n, "") for n in range(len(some)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def compare(translations: Sequence[str], references: Sequence[str]) -> TranslationQuality:
    """BLEU and chrF of the whole, by sacrebleu; its tokenizer `13a`, case counts.

    Reference: Post 2018.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(), CHRF()
    one = bleu.corpus_score(list(translations), [list(references)])
    other = chrf.corpus_score(list(translations), [list(references)])
    signatures = (str(bleu.get_signature()), str(chrf.get_signature()))
    return TranslationQuality(one.score, other.score, one.ratio, signatures)
