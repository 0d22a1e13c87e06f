"""What a model makes of a little held-out text, to be looked at while it trains."""

from __future__ import annotations

import numpy as np
import torch

from foreword.data.rng import RowRng
from foreword.evaluate.decoding import Start, stops_of, text_of, write
from foreword.evaluate.filling import candidates, marked
from foreword.evaluate.prompting import PromptedModel
from foreword.evaluate.sampling import Sampling
from foreword.nn.model import Model
from foreword.runs.recipe import Recipe
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array, Rows

SHOWN = 3
PROMPT, CONTINUATION, PIECE, BLANKS = 16, 40, 48, 3
SEED = 1


def samples(
    model: Model, recipe: Recipe, tokenizer: Tokenizer, rows: Rows, device: torch.device
) -> list[dict[str, str]]:
    """A few samples on held-out rows, the same at every call as far as the model is the same.

    - A model that predicts in place: a piece of text with some words hidden, and what it fills in.
    - A causal model: the first tokens of a document, and how it goes on.
    - A model with a source: the source, and the target it writes.

    Uses no random state of torch's, and leaves the model in the mode it was in.

    Args:
        model: as it is in training.
        recipe: of the run.
        tokenizer: of the run.
        rows: of held-out text; the first three are shown.
        device: where the model lies.

    Returns:
        For each row its `prompt` and the `text` made of it; none where the model predicts no
        tokens.
    """
    if not recipe.objective.predicts_tokens:
        return []
    prompted = PromptedModel(model, recipe, tokenizer, device)
    show = _filled if prompted.fills_in_place else _continued if prompted.continues else _answered
    was_training = model.training
    model.eval()
    try:
        # Compiled for training's shapes, a model would be compiled again for each length here.
        with torch.compiler.set_stance("force_eager"):
            return [
                shown
                for n in range(min(SHOWN, len(rows)))
                if (shown := show(prompted, _row(rows, n))) is not None
            ]
    finally:
        model.train(was_training)


def _row(rows: Rows, n: int) -> Rows:
    """Row `n`, cut to its longest document."""
    documents = rows.documents[n]
    numbers, counts = np.unique(documents[documents >= 0], return_counts=True)
    where = documents == (numbers[counts.argmax()] if len(numbers) else 0)
    ids = rows.ids[n][where][None]
    places = np.arange(ids.shape[1])[None]
    segments = None if rows.segments is None else rows.segments[n][where][None]
    return Rows(ids, np.zeros_like(ids), places, rows.numbers[n : n + 1], segments)


def _plain(prompted: PromptedModel, rows: Rows) -> Array:
    """The ids of the row without special tokens, from where its first word begins."""
    ids = rows.ids[0]
    ids = ids[~prompted.vocab.is_special[ids]]
    begins = prompted.vocab.starts_word[ids]
    return np.asarray(ids[begins.argmax() :] if begins.any() else ids)


def _filled(prompted: PromptedModel, rows: Rows) -> dict[str, str] | None:
    ids = _plain(prompted, rows)[: min(PIECE, prompted.recipe.packing.length - 2)]
    if not len(ids):
        return None
    draws = RowRng(SEED, rows.numbers).uniform(len(ids))[0]
    hidden = ids.copy()
    hidden[np.argsort(draws)[: min(BLANKS, len(ids))]] = prompted.vocab.id("[MASK]")
    filled = marked(prompted, hidden, candidates(prompted, hidden, 1))
    return {"prompt": prompted.tokenizer.decode(hidden, skip_special=False), "text": filled.text}


def _continued(prompted: PromptedModel, rows: Rows) -> dict[str, str] | None:
    ids = _plain(prompted, rows)
    # Of a short document half, or there would be nothing to go on with.
    ids = ids[: min(PROMPT, prompted.recipe.packing.length // 2, -(-len(ids) // 2))]
    if not len(ids):
        return None
    start = Start(None, np.concatenate([prompted.opening, ids]))
    sampling = Sampling(tokens=CONTINUATION, seed=SEED)
    written = write(prompted, [start], sampling, stops_of(prompted))[0]
    return {
        "prompt": prompted.tokenizer.decode(ids).lstrip(),
        "text": text_of(prompted, start, written.ids),
    }


def _answered(prompted: PromptedModel, rows: Rows) -> dict[str, str] | None:
    ids = _plain(prompted, rows)[None, : min(PIECE, prompted.recipe.packing.length)]
    if ids.shape[1] < 2:
        return None
    places = np.arange(ids.shape[1])[None]
    piece = Rows(ids, np.zeros_like(ids), places, rows.numbers)
    if rows.segments is not None:  # a pair, of which all is shown
        piece = rows
    rng = RowRng(SEED, rows.numbers)
    example = prompted.recipe.objective.corrupt(piece, rng, prompted.vocab)
    assert example.source is not None
    source = example.source.ids[0]
    start = Start(source, source[:0])
    greedy = Sampling(tokens=CONTINUATION, temperature=0.0)
    written = write(prompted, [start], greedy, stops_of(prompted))[0]
    shown = source[~np.isin(source, prompted.end)]
    return {
        "prompt": prompted.tokenizer.decode(shown, skip_special=False),
        "text": text_of(prompted, start, written.ids),
    }
