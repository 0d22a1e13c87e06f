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
from foreword.planning.request import RunRequest
from foreword.runs import corpus
from foreword.runs.sources import is_prepared, without_limits
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

    Args:
        request: the run.
        folder: the folder for the samples.
        most: characters.

    Raises:
        UserError: a text cannot be read.
    """
    recipe, inputs = request.recipe, request.inputs
    if recipe.data.sources:
        request, shares = sample_sources(request, folder, most)
        return SampledRun(request, of_sources=shares)
    if corpus.is_prepared(inputs.texts):
        return SampledRun(request)
    file, heldout_file = folder / "sample.jsonl", folder / "heldout.jsonl"
    share, counts = sample(inputs.texts, recipe.read, file, most)
    held_share = share
    if inputs.heldout:
        held_share = sample(inputs.heldout, recipe.read, heldout_file, most)[0]
    heldout = (str(heldout_file),) if inputs.heldout else ()
    target = "target" if recipe.read.target else ""
    recipe = replace(recipe, read=replace(recipe.read, field="text", target=target))
    inputs = replace(inputs, texts=(str(file),), heldout=heldout)
    return SampledRun(replace(request, recipe=recipe, inputs=inputs), (share, held_share), counts)


def sample(
    texts: Sequence[str], read: ReadSettings, file: Path, most: int
) -> tuple[float, dict[str, Any]]:
    """Write the first `most` characters of text to `file`; return their share of it, and counts."""
    counts = ReadCounts()
    files = find_files(texts, counts, read)
    total = sum(path.stat().st_size for path in files)
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
                share = bytes_written / counts.total_bytes(total)
                break
    return min(share, 1.0), asdict(counts)


def sample_sources(
    request: RunRequest, folder: Path, most: int
) -> tuple[RunRequest, dict[str, float]]:
    """Return the run on a sample of each source, and the share of each that was sampled.

    Limits of epochs are taken away: they would be those of the sample. Prepared sources stay.
    """
    recipe, texts, shares = without_limits(request.recipe), [], {}
    target = "target" if recipe.read.target else ""
    for source, text in zip(recipe.data.sources, request.inputs.texts, strict=True):
        if is_prepared(text):
            texts.append(text)
            shares[source.name] = 1.0
            continue
        file = folder / "sources" / f"{source.name}.jsonl"
        file.parent.mkdir(exist_ok=True)
        each = most // len(recipe.data.sources)
        shares[source.name], _ = sample([text], recipe.read, file, each)
        texts.append(str(file))
    recipe = replace(recipe, read=replace(recipe.read, field="text", target=target))
    inputs = replace(request.inputs, texts=tuple(texts))
    return replace(request, recipe=recipe, inputs=inputs), shares


def shares_read(prepared: PreparedText, sampled: Mapping[str, float]) -> tuple[float, float]:
    """Return the sampled share of the training text, and that of the held-out text."""
    shares = []
    for side in ("train", "heldout"):
        read = {name: source.counts[side].tokens for name, source in prepared.sources.items()}
        whole = sum(count / sampled[name] for name, count in read.items())
        shares.append(sum(read.values()) / whole if whole else 1.0)
    return shares[0], shares[1]
