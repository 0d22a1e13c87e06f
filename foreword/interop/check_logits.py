"""Comparing our logits with those of `transformers`: the greatest difference between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.interop.hf._contract import Design, Family
from foreword.layouts.encoder import Encoder
from foreword.nn.model import Model
from foreword.nn.stack_settings import StackSettings
from foreword.settings import kinds
from foreword.types import Array, Batch, Example, Tokens, Vocab

LENGTHS = (150, 15)  # of two texts, the second padded; 150 exceeds T5's maximum distance
LONGEST = 1_100  # of a text beyond a window or blocks, so that a check takes seconds
IGNORED_LABEL = -100  # their label of a position that is not predicted
TOLERANCE = 1e-3  # of logits; rounding in another order differs by 1e-5


def is_checkable() -> bool:
    """Return whether `transformers` is installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def transformers_errors(message: str) -> Iterator[None]:
    """Turn errors of the readers of `transformers`, of any type, into one line after `message`."""
    try:
        yield
    except Exception as error:
        raise UserError(f"{message}: {' '.join(str(error).split())}") from error


def difference(
    model: Model, design: Design, vocab: Vocab, family: Family, folder: Path
) -> tuple[float, float]:
    """Return the greatest difference between the logits, and the greatest logit, in float32.

    The inputs are two texts, of two segments if the model has segments, and a text so long that
    windowed or block attention leaves something out, if the model has enough positions.

    Args:
        model: our model.
        design: its design.
        vocab: the vocabulary.
        family: the family whose class in `transformers` reads `folder`.
        folder: their folder.

    Raises:
        UserError: `transformers` cannot read the folder.
    """
    # Load their model from the folder.
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with transformers_errors(f"{folder}: transformers cannot read it"):
        theirs = getattr(transformers, family.architecture_of(design)).from_pretrained(
            folder,
            local_files_only=True,
            dtype=torch.float32,
            attn_implementation="eager",
            **dict.fromkeys(family.keys.dropout, 0.0),
        )
    # Compare the logits of all heads on each batch. Families with `keys.dropout` run in training
    # mode, with dropout 0, since only then theirs computes what ours does.
    model.eval()
    theirs.train(bool(family.keys.dropout))
    differences, greatest = [], []
    for lengths in _lengths(design):
        tokens = _texts(vocab, lengths, _segments(design))
        batch = _batch(tokens, design, vocab).to("cpu")
        counts = torch.from_numpy(tokens.documents >= 0)
        with torch.no_grad():
            ours = _logits(model, batch, counts)
            expected = _their_logits(theirs(**_call(batch, counts)), counts)
        differences += [(a - b).abs().max() for a, b in zip(ours, expected, strict=True)]
        greatest += [logits.abs().max() for logits in expected]
    return float(torch.stack(differences).max()), float(torch.stack(greatest).max())


def _lengths(design: Design) -> list[tuple[int, ...]]:
    """Return the text lengths of each batch, the longest first.

    BigBird in `transformers` attends in full for good once it has read a short text.
    """
    sparse = design.model.attention.sparse_length
    long = [] if sparse is None else [(min(sparse, LONGEST),)]
    limit = design.model.limit or LONGEST
    return [tuple(min(length, limit) for length in batch) for batch in (*long, LENGTHS)]


def _segments(design: Design) -> int:
    """Return the number of segments of a model, by embeddings or by terms of its scores."""
    model: StackSettings = design.model
    return max(model.segments, 2 * model.position.segments)


def _logits(model: Model, batch: Batch, counts: Tensor) -> list[Tensor]:
    """Return the logits of each of our heads, without those of padding."""
    states = model.backbone(batch).states
    if "replaced" in model.heads:
        return [model.heads["replaced"](states).squeeze(-1)[counts]]
    logits = [model.token_head(states)[counts]]
    if "pair" in model.heads:
        logits.append(model.heads["pair"](states[:, 0]))
    return logits


def _their_logits(output: Any, counts: Tensor) -> list[Tensor]:
    """Return the logits of each of their heads, in the order of ours."""
    if "logits" in output:
        return [output.logits[counts]]
    pair = ("seq_relationship_logits", "sop_logits")
    return [output.prediction_logits[counts], *(output[key] for key in pair if key in output)]


def _texts(vocab: Vocab, lengths: tuple[int, ...], segments: int) -> Tokens:
    """Return texts of random ordinary tokens, in equal segments, padded to one length."""
    random = np.random.default_rng(1)
    longest = max(lengths)
    ids = random.choice(np.flatnonzero(~vocab.is_special), (len(lengths), longest))
    documents = np.where(np.arange(longest) < np.array(lengths)[:, None], 0, -1)
    parts = np.arange(longest)[None].repeat(len(lengths), axis=0) * segments // longest
    return Tokens(
        ids.astype(np.int64),
        documents,
        positions_within(documents),
        parts if segments > 1 else None,
    )


def _batch(tokens: Tokens, design: Design, vocab: Vocab) -> Batch:
    """Return the texts as the model's input, with nothing masked."""
    weights: Array = (tokens.documents >= 0).astype(np.float32)
    layout = kinds.name_of(design.layout)
    if layout in ("encoder", "two_streams"):  # without predictions there is one stream
        return Encoder().arrange(Example(tokens, tokens, weights, is_aligned=True), vocab)
    source = None if layout == "decoder" else tokens
    batch: Batch = design.layout.arrange(Example(source, tokens, weights), vocab)
    return batch


def _call(batch: Batch, counts: Any) -> dict[str, Any]:
    """Return the batch as arguments of their model, which shifts a decoder's labels itself."""
    attention = counts.long()
    if batch.source is None:
        segments = {} if batch.segments is None else {"token_type_ids": batch.segments}
        return {"input_ids": batch.ids, "attention_mask": attention, **segments}
    return {
        "input_ids": batch.source.ids,
        "attention_mask": attention,
        "labels": batch.targets.masked_fill(~counts, IGNORED_LABEL),
    }


def check(
    parts: Mapping[str, tuple[Model, Design]], vocab: Vocab, family: Family, folder: Path
) -> dict[str, float | None]:
    """Return the differences by name, the greatest of all submodels; None without `transformers`.

    Args:
        parts: the submodels and their designs, by subfolder of `folder`.
        vocab: the vocabulary.
        family: the family whose classes in `transformers` read `folder`.
        folder: their folder.

    Raises:
        UserError: the logits differ by more than rounding.
    """
    if not is_checkable():
        return {"logit_difference": None}
    worst, greatest = 0.0, 0.0
    for name, (model, design) in parts.items():
        distance, largest = difference(model, design, vocab, family, folder / name)
        if not distance <= TOLERANCE * max(1.0, largest):
            raise UserError(
                f"{folder / name}: with these weights Foreword's logits differ from those of "
                f"transformers by {distance:.3g}, where the greatest is {largest:.3g}; this is a "
                "bug in Foreword, or the model does something that its files do not show"
            )
        worst, greatest = max(worst, distance), max(greatest, largest)
    return {"logit_difference": worst, "greatest_logit": greatest}
