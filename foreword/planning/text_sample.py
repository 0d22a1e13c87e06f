"""The beginning of a text, in place of all of it, for a run that is only checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from foreword.data.prepared_text import PreparedText
from foreword.data.read_documents import find_files, read_documents
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.disk import stored
from foreword.planning.conditions import text_bytes
from foreword.planning.request import RunRequest
from foreword.runs import corpus
from foreword.runs.sources import without_limits
from foreword.text import utf8

Shares = tuple[float, float]  # shares read of the training text and of the held-out text


@dataclass(frozen=True)
class SampledRun:
    """A run on a sample of its texts.

    Attributes:
        request: the run.
        shares: the share sampled of the training text, and that of the held-out text.
        counts: what was read of the text; None for prepared text and sources.
        of_sources: the share sampled of each source.
    """

    request: RunRequest
    shares: Shares = (1.0, 1.0)
    counts: dict[str, Any] | None = None
    of_sources: Mapping[str, float] = field(default_factory=dict)

    def shares_of(self, prepared: PreparedText) -> Shares:
        """Return the shares, of a mixture by the tokens that its shards have."""
        return shares_read(prepared, self.of_sources) if self.of_sources else self.shares


def sampled(request: RunRequest, folder: Path, most: int) -> SampledRun:
    """Return the run on the first `most` characters of its texts; prepared text stays as it is.

    Limits of epochs are taken away from sources: they would be those of the sample.

    Args:
        request: the run.
        folder: the folder for the samples.
        most: characters.

    Raises:
        UserError: a text cannot be read.
    """
    recipe, inputs, read = without_limits(request.recipe), request.inputs, request.recipe.read
    if corpus.is_prepared(inputs.texts) and not recipe.data.sources:
        return SampledRun(request)
    # A sample of each source, or of all of the text.
    each = [[text] for text in inputs.texts] if recipe.data.sources else [inputs.texts]
    texts, shares, counts = list[str](), list[float](), dict[str, Any]()
    for number, part in enumerate(each):
        share, file = 1.0, part[0]
        if not corpus.is_prepared(part):
            file = str(folder / f"sample-{number}.jsonl")
            share, counts = sample(part, read, Path(file), most // len(each))
        texts.append(file)
        shares.append(share)
    held_share, heldout = shares[0], inputs.heldout
    if heldout:
        heldout = (str(folder / "heldout.jsonl"),)
        held_share, _ = sample(inputs.heldout, read, Path(heldout[0]), most)
    target = "target" if read.target else ""
    recipe = replace(recipe, read=replace(read, field="text", target=target))
    inputs = replace(inputs, texts=tuple(texts), heldout=heldout)
    request = replace(request, recipe=recipe, inputs=inputs)
    if not recipe.data.sources:
        return SampledRun(request, (shares[0], held_share), counts)
    names = [source.name for source in recipe.data.sources]
    return SampledRun(request, of_sources=dict(zip(names, shares, strict=True)))


def sample(
    texts: Sequence[str], read: ReadSettings, file: Path, most: int
) -> tuple[float, dict[str, Any]]:
    """Write the first `most` characters of text to `file`; return their share of it, and counts."""
    counts = ReadCounts()
    files = find_files(texts, counts, read)
    characters, bytes_written, share, is_parallel = 0, 0, 1.0, bool(read.target)
    with file.open("w", encoding="utf-8") as out:
        for document in read_documents(files, read, counts):
            text = document.text
            if not is_parallel:
                text = text[: most - characters]
            characters, bytes_written = characters + len(text), bytes_written + utf8.size(text)
            sides = text.split("\n") if is_parallel else [text]
            out.write(stored.to_json(dict(zip(("text", "target"), sides, strict=False))) + "\n")
            if characters >= most:
                share = bytes_written / text_bytes(texts, read)
                break
    return min(share, 1.0), asdict(counts)


def shares_read(prepared: PreparedText, sampled: Mapping[str, float]) -> tuple[float, float]:
    """Return the sampled share of the training text, and that of the held-out text."""
    shares = []
    for side in ("train", "heldout"):
        read = {name: source.counts[side].tokens for name, source in prepared.sources.items()}
        whole = sum(count / sampled[name] for name, count in read.items())
        shares.append(sum(read.values()) / whole if whole else 1.0)
    return shares[0], shares[1]
