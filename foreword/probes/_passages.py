"""Passages of a training text and of held-out text, and how a model scores them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.evaluation import heldout
from foreword.evaluation.scorer import ScoringItem, scorer_of
from foreword.evaluation.scoring import score_texts
from foreword.probes._contract import ProbedModel
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array


@contextmanager
def training_shards(probed: ProbedModel, file: str) -> Iterator[Shards]:
    """Yield the text a model was trained on, as token shards.

    Args:
        probed: the model.
        file: the text; "" for the shards of the model's run.

    Raises:
        UserError: it cannot be read, or the run's shards are gone.
    """
    if file:
        with heldout.shards_of_texts(probed.trained, (file,)) as (shards, _):
            yield shards
    else:
        yield heldout.shards_of(probed.trained, probed.trained.run).train


def passages(shards: Shards, length: int, count: int) -> Array:
    """Return passages that do not overlap, each within one document, spread over the text.

    Returns:
        (at most `count`, length) int64; fewer if the text has fewer.
    """
    starts = shards.document_starts
    whole = np.diff(starts) // length  # passages in each document
    ends = np.cumsum(whole)
    total = int(ends[-1]) if len(ends) else 0
    numbers = np.arange(min(count, total)) * total // max(1, min(count, total))
    documents = np.searchsorted(ends, numbers, side="right")
    first = starts[documents] + (numbers - (ends - whole)[documents]) * length
    tokens: Array = shards.tokens[first[:, None] + np.arange(length)].astype(np.int64)
    return tokens


def require_room(prompted: TrainedModel, length: int) -> None:
    """Check that a model can score passages of `length` tokens.

    Raises:
        UserError: it reads fewer, or gives texts no probability.
    """
    able = "causal, masked, permuted, n-gram"
    prompted.require_token_head(able)
    if prompted.answers:
        raise prompted.unable("gives a text a probability as the answer to a source only", able)
    room = prompted.max_context
    if length > room:
        raise UserError(
            f"{prompted.name}: passages have {length} tokens (the longest of probe.prefixes + "
            f"probe.continuation), and it reads {room}; set them lower"
        )


def losses(prompted: TrainedModel, tokens: Array) -> Array:
    """Return the mean loss of each passage, in nats per token, (passages,) float64."""
    if not prompted.continues:
        texts = (prompted.tokenizer.decode(row) for row in tokens)
        return np.array(
            [score.nats / max(1, score.tokens) for score in score_texts(prompted, texts)]
        )
    items = _items(prompted, tokens, 1)
    return np.array([-nats.mean() for nats in scorer_of(prompted).log_probs(items)])


def continued(prompted: TrainedModel, tokens: Array, prefix: int, continuation: int) -> Array:
    """Return how many tokens of each passage a model writes word for word.

    Greedy decoding writes the likeliest token, so it goes on writing the passage for as long as
    each of its tokens is the likeliest after those before it: one forward pass tells.

    Args:
        prompted: a model that continues text.
        tokens: the passages, (passages, length).
        prefix: number of tokens that it is given: those before the last `continuation`.
        continuation: the tokens at the end that it is to write.

    Returns:
        (passages,) int64, at most `continuation`.
    """
    part = tokens[:, -(prefix + continuation) :]
    scored = scorer_of(prompted).log_probs_and_ranks(_items(prompted, part, prefix))
    ranks = np.stack(list(scored))[:, :, 1]
    is_wrong = np.concatenate([ranks > 0, np.ones((len(ranks), 1), bool)], axis=1)
    right: Array = is_wrong.argmax(1)
    return right


def _items(prompted: TrainedModel, tokens: Array, unscored: int) -> list[ScoringItem]:
    """Return passages with all tokens scored but the first `unscored`."""
    before = prompted.prompt_prefix
    is_scored = np.arange(len(before) + tokens.shape[1]) >= len(before) + unscored
    return [ScoringItem(np.concatenate([before, row]), is_scored) for row in tokens]


def separation(members: Array, others: Array) -> float:
    """Return the probability that a member has a lower loss than another passage; ties half.

    This is the area under the ROC curve of telling members by their loss.
    """
    ordered = np.sort(others)
    above = len(ordered) - np.searchsorted(ordered, members, side="right")
    equal = np.searchsorted(ordered, members, side="right") - np.searchsorted(ordered, members)
    return float((above + equal / 2).mean() / len(ordered))
