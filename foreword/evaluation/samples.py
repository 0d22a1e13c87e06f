"""Samples on held-out text, for looking at a model while it trains."""

from __future__ import annotations

import numpy as np
import torch

from foreword.data.rng import RowRng
from foreword.evaluation.decoding import decode, stops_of, text_of
from foreword.evaluation.filling import candidates, insert_candidates
from foreword.evaluation.sampling import Sampling
from foreword.evaluation.starts import Start
from foreword.nn.evaluation_mode import evaluation_mode
from foreword.nn.model import Model
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array, Rows

SAMPLES = 3  # rows that a sample is made of
PROMPT, CONTINUATION, PIECE = 16, 40, 48  # the most tokens of each
BLANKS = 3  # masked tokens in a sample of filling
SEED = 1


def samples(
    model: Model, recipe: Recipe, tokenizer: Tokenizer, rows: Rows, device: torch.device
) -> list[dict[str, str]]:
    """Return a few samples on held-out rows, deterministic for a given model.

    - A model that predicts in place: a piece of text with masked tokens, and its fillings.
    - A causal model, or one of masked diffusion: the first tokens of a document, and its
      continuation.
    - A model with a source: a source, and the target it generates.

    A model that fills blanks and continues texts does both in turn.

    Torch's random state is not used, and the model keeps its training or evaluation mode.

    Args:
        model: the model in training.
        recipe: the run's recipe.
        tokenizer: the run's tokenizer.
        rows: rows of held-out text, of which the first three are used.
        device: the model's device.

    Returns:
        The `prompt` of each row and the generated `text`; nothing if the model predicts no tokens.
    """
    if not recipe.objective.predicts.tokens:
        return []
    prompted = TrainedModel(model, recipe, tokenizer, device)
    continues = prompted.continues or prompted.unmasks
    fits = (prompted.fills_in_place, continues, prompted.answers)
    kinds = [kind for kind, fit in zip((_fill, _continue, _answer), fits, strict=True) if fit]
    # Run without compilation, which would compile the model again for each length.
    with evaluation_mode(model), torch.compiler.set_stance("force_eager"):
        return [
            result
            for n in range(min(SAMPLES, len(rows)))
            if (result := kinds[n % len(kinds)](prompted, _row(rows, n))) is not None
        ]


def _row(rows: Rows, n: int) -> Rows:
    """Return row `n`, cut to its longest document."""
    documents = rows.documents[n]
    numbers, counts = np.unique(documents[documents >= 0], return_counts=True)
    where = documents == (numbers[counts.argmax()] if len(numbers) else 0)
    ids = rows.ids[n][where][None]
    positions = np.arange(ids.shape[1])[None]
    segments = None if rows.segments is None else rows.segments[n][where][None]
    return Rows(ids, np.zeros_like(ids), positions, rows.numbers[n : n + 1], segments)


def _plain(prompted: TrainedModel, rows: Rows) -> Array:
    """Return the ids of the row without special tokens, from the beginning of its first word."""
    ids = rows.ids[0]
    ids = ids[~prompted.vocab.is_special[ids]]
    begins = prompted.vocab.starts_word[ids]
    return np.asarray(ids[begins.argmax() :] if begins.any() else ids)


def _fill(prompted: TrainedModel, rows: Rows) -> dict[str, str] | None:
    ids = _plain(prompted, rows)[: min(PIECE, prompted.recipe.packing.length - 2)]
    if not len(ids):
        return None
    draws = RowRng(SEED, rows.numbers).uniform(len(ids))[0]
    masked = ids.copy()
    masked[np.argsort(draws)[: min(BLANKS, len(ids))]] = prompted.vocab.id("[MASK]")
    filled = insert_candidates(prompted, masked, candidates(prompted, masked, 1))
    return {"prompt": prompted.tokenizer.decode(masked, skip_special=False), "text": filled.text}


def _continue(prompted: TrainedModel, rows: Rows) -> dict[str, str] | None:
    ids = _plain(prompted, rows)
    # Half of a short document, to leave something to continue with.
    ids = ids[: min(PROMPT, prompted.recipe.packing.length // 2, -(-len(ids) // 2))]
    if not len(ids):
        return None
    start = Start(None, np.concatenate([prompted.prompt_prefix, ids]))
    sampling = Sampling(tokens=CONTINUATION, seed=SEED, steps=CONTINUATION // 4)
    continuation = decode(prompted, [start], sampling, stops_of(prompted))[0]
    return {
        "prompt": prompted.tokenizer.decode(ids).lstrip(),
        "text": text_of(prompted, start, continuation.ids),
    }


def _answer(prompted: TrainedModel, rows: Rows) -> dict[str, str] | None:
    ids = _plain(prompted, rows)[None, : min(PIECE, prompted.recipe.packing.length)]
    if ids.shape[1] < 2:
        return None
    positions = np.arange(ids.shape[1])[None]
    piece = Rows(ids, np.zeros_like(ids), positions, rows.numbers)
    if rows.segments is not None:  # a pair is not cut
        piece = rows
    rng = RowRng(SEED, rows.numbers)
    example = prompted.recipe.objective.corrupt(piece, rng, prompted.vocab)
    assert example.source is not None
    source = example.source.ids[0]
    start = Start(source, source[:0])
    greedy = Sampling(tokens=CONTINUATION, temperature=0.0)
    answer = decode(prompted, [start], greedy, stops_of(prompted))[0]
    without_end = source[~np.isin(source, prompted.end_token)]
    return {
        "prompt": prompted.tokenizer.decode(without_end, skip_special=False),
        "text": text_of(prompted, start, answer.ids),
    }
