"""The sample of text that `foreword check` reads, and what it says of the sources of a mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foreword.cli import console

if TYPE_CHECKING:
    from foreword.api.request import RunRequest
    from foreword.data.prepared_text import PreparedText
    from foreword.data.text_files import ReadSettings
    from foreword.runs.recipe import Recipe
    from foreword.runs.setup import TrainingSetup

_ABOUT = (
    "worth: epochs of new text that the epochs read are worth: U tokens repeated R times count as",
    "U + U R* (1 - exp(-R / R*)), R* = 15.4 (Muennighoff et al. 2023). Up to 4 epochs are worth",
    "nearly as much as new text; no number of them is worth more than 16.4.",
)


@dataclass(frozen=True)
class SourceEstimate:
    """What training reads of a source.

    Attributes:
        name: of the source.
        tokens: its training tokens, estimated if it is long.
        share: of the rows of training.
        stage: when it is read; "" for always.
        epochs: how many times it is read.
        worth: how many epochs of new text that is worth.
        effective_tokens: the number of new tokens that those read are worth.
        worth_it: epochs up to which repeated tokens are worth nearly as much as new ones.
    """

    name: str
    tokens: int
    share: float
    stage: str
    epochs: float
    worth: float
    effective_tokens: int
    worth_it: float


def sample(
    texts: Sequence[str], read: ReadSettings, file: Path, most: int
) -> tuple[float, dict[str, Any]]:
    """Write the first `most` characters of text to `file`; return their share of it, and counts."""
    from foreword.data.read_documents import ReadCounts, find_files, read_documents
    from foreword.disk import stored
    from foreword.text import utf8

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
    from foreword.runs.sources import is_prepared, without_limits

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


def estimate_sources(
    recipe: Recipe,
    setup: TrainingSetup,
    prepared: PreparedText,
    sampled: Mapping[str, float],
    steps: int,
) -> list[SourceEstimate]:
    """Return what training reads of each source; nothing without a mixture.

    Args:
        recipe: of the run, with its limits of epochs.
        setup: the set-up on the sample.
        prepared: the shards of the sample.
        sampled: share of each source that the sample is.
        steps: estimated steps of training.

    Raises:
        UserError: no source is left to read before training ends.
    """
    from foreword.data.mixed_rows import MixedRows
    from foreword.data.mixture import WORTH_IT, effective_epochs
    from foreword.runs.sources import plan_of

    if not isinstance(setup.feed.packed, MixedRows):
        return []
    names = [source.name for source in recipe.data.sources]
    tokens = [prepared.sources[name].train.tokens_total / sampled[name] for name in names]
    per_epoch = [
        rows / sampled[name]
        for name, rows in zip(names, setup.feed.packed.source_rows_per_epoch, strict=True)
    ]
    plan = plan_of(recipe, tokens, per_epoch)
    rows = plan.rows_read(steps * recipe.rows_per_step)
    return [
        SourceEstimate(
            source.name,
            round(size),
            float(read / rows.sum()),
            source.stage,
            float(read / each),
            effective_epochs(read / each),
            round(size * effective_epochs(read / each)),
            WORTH_IT,
        )
        for source, size, each, read in zip(
            recipe.data.sources, tokens, per_epoch, rows, strict=True
        )
    ]


def show_sources(sources: Sequence[SourceEstimate]) -> None:
    """Print a table of sources, and a line for each that is repeated too often."""
    from foreword.formatting import quantity

    columns = ("source", "tokens", "share", "stage", "epochs", "worth", "effective tokens")
    rows = [
        (
            source.name,
            quantity(source.tokens),
            f"{source.share:.2%}",
            source.stage or "all",
            f"{source.epochs:,.3g}",
            f"{source.worth:,.3g}",
            quantity(source.effective_tokens),
        )
        for source in sources
    ]
    console.table("sources", columns, rows)
    for line in _ABOUT:
        console.out.print(line)
    for source in sources:
        if source.epochs > source.worth_it:
            console.out.print(
                f"{source.name}: {source.epochs:,.3g} epochs are more than the {source.worth_it:g} "
                "that are worth it; lower its weight, or set its epochs"
            )
