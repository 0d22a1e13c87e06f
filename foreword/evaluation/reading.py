"""What a model expects at each token of a text: the token's rank and the likeliest in its place.

Also after each layer of a Transformer: the logit lens (nostalgebraist 2020), the state of a layer
read through the final norm and the head, as if it were the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword.errors import TooLongError, UserError
from foreword.evaluation import scoring
from foreword.evaluation.perplexity import ScoreTotals
from foreword.evaluation.scorer import LOGITS_AT_ONCE, DetectionScorer, NeuralScorer, ScoringItem
from foreword.evaluation.scoring import ScoringPlan
from foreword.nn.stack import Stack, StackOutput
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array, Batch

LENS = "Transformers"


@dataclass(frozen=True)
class Expected:
    """What is expected in the place of a token.

    Attributes:
        nats: the log-probability of the token itself.
        rank: the number of other tokens that are at least as likely.
        best: the likeliest tokens with their log-probabilities, the likeliest first.
    """

    nats: float
    rank: int
    best: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class ReadToken:
    """A token of a text.

    Attributes:
        id: the token; one that ends a text has no characters.
        start: its first character.
        stop: the one after its last.
        layers: what is expected after each layer, the last alone without a lens; empty if the token
            is not predicted.
    """

    id: int
    start: int
    stop: int
    layers: tuple[Expected, ...]


@dataclass(frozen=True)
class Reading:
    """A text as a model reads it: its tokens, and the sums of their log-probabilities."""

    tokens: tuple[ReadToken, ...]
    totals: ScoreTotals


def read(
    prompted: TrainedModel,
    text: str,
    top: int = 5,
    source: str | None = None,
    most: int | None = None,
    *,
    by_layer: bool = False,
) -> Reading:
    """Return what a model expects at each token.

    Log-probabilities are those of `foreword.evaluation.scoring.score`, whose text says what each
    token is given. A model of spans that is given no source predicts each token in a blank of its
    own, as does one of masked diffusion; one that detects replacements says how likely each token
    is genuine.

    Args:
        prompted: the model.
        text: the text.
        top: the number of likeliest tokens.
        source: the source that the text answers, for a model that reads one.
        most: the most tokens of the text.
        by_layer: whether to read every layer, the input of the first included.

    Raises:
        UserError: the model predicts no tokens, the text is empty, or there is no lens for it.
        TooLongError: the text has more tokens.
    """
    ids, offsets = prompted.tokenizer.encode_with_offsets(text)
    if most is not None and len(ids) > most:
        raise TooLongError(f"text: has {len(ids):,} tokens; at most {most:,} are looked at at once")
    if by_layer:
        predicting_stack(prompted)  # whether there is one
    plan = _plan(prompted, text, ids, source)
    if prompted.detects_replacements:
        scorer: Any = DetectionScorer(prompted)
        parts = [nats[:, None, None] for nats in scorer.log_probs(plan.items)]
    else:
        scorer = NeuralScorer(prompted)

        def measure(model: TrainedModel, batch: Batch) -> Array:
            return expectations(model, batch, top, by_layer=by_layer)

        parts = list(scorer.measured(plan.items, measure))
    if not sum(map(len, parts)):
        raise UserError("text: has no token that can be scored; give a longer one")
    values = np.concatenate(parts)  # (scored, layers, 1 or 2 + 2 top)
    tokens = []
    for n, (i, (start, stop)) in enumerate(zip(ids.tolist(), offsets.tolist(), strict=True)):
        row = n - plan.unscored
        layers = tuple(map(_expected, values[row])) if row >= 0 else ()
        tokens.append(ReadToken(i, start, stop, layers))
    for row in range(len(ids) - plan.unscored, len(values)):  # a token that ends the text
        end = int(plan.scored[row])
        tokens.append(ReadToken(end, len(text), len(text), tuple(map(_expected, values[row]))))
    nats = values[:, -1, 0]
    totals = scoring.totals_of(prompted, plan, float(-nats.sum()))
    is_alone = prompted.answers and not plan.ends and source is None  # each in a blank of its own
    if prompted.detects_replacements or prompted.unmasks or is_alone:
        totals = replace(totals, measure=scoring.PSEUDO)  # each token is given those after it
    return Reading(tuple(tokens), totals)


def _plan(prompted: TrainedModel, text: str, ids: Array, source: str | None) -> ScoringPlan:
    if prompted.detects_replacements:
        whole = prompted.with_bos_and_eos(ids)
        head, tail = len(prompted.bos), len(prompted.eos)
        is_scored = np.zeros(len(whole), dtype=bool)
        is_scored[head : len(whole) - tail] = True
        items = [ScoringItem(whole, is_scored)] if len(ids) else []
        return ScoringPlan(whole, head, tail, 0, len(text.encode()), items, 1)
    if source is None and prompted.uses_sentinels and prompted.answers:
        return _plan_blanks(prompted, text, ids)
    if source is None and prompted.unmasks:  # the bound scores no token once, in one context
        return scoring.plan_masked(prompted, text, ids, max(1, prompted.max_context // 2))
    plan = scoring.plan_of(prompted, text, source, None)
    if prompted.answers and len(plan.ids) != len(ids) + plan.ends:
        ids = prompted.tokenizer.encode(text)  # without sentinels: their names are text here
        plan = replace(plan, ids=np.concatenate([ids, prompted.end_token]))
    return plan


def _plan_blanks(prompted: TrainedModel, text: str, ids: Array) -> ScoringPlan:
    """Return the plan of a model of spans: each token in turn is the only blank of the text."""
    blank = prompted.vocab.sentinels[:1]

    def items() -> Iterator[ScoringItem]:
        for n in range(len(ids)):
            rest = np.concatenate([ids[:n], blank, ids[n + 1 :]])
            target = np.concatenate([blank, ids[n : n + 1]])
            yield ScoringItem(target, np.array([False, True]), prompted.source_of(rest))

    prompted.check_pair(len(prompted.source_of(ids)), 2)
    return ScoringPlan(ids, 0, 0, 0, len(text.encode()), items(), len(ids))


def _expected(row: Array) -> Expected:
    nats, rank = float(row[0]), int(row[1]) if len(row) > 1 else 0
    best = zip(row[2::2].astype(int).tolist(), row[3::2].tolist(), strict=True)
    return Expected(nats, rank, tuple(best))


def expectations(
    prompted: TrainedModel, batch: Batch, top: int, *, by_layer: bool = False
) -> Array:
    """Return what is expected in the place of each target with weight, in the batch's order.

    Returns:
        (predictions, layers, 2 + 2 top) float64: the target's log-probability and rank, then id and
        log-probability of the likeliest tokens; the last layer alone without `by_layer`.
    """
    batch = batch.to(prompted.device)
    where = batch.weights.flatten().nonzero()[:, 0]
    targets = batch.targets.flatten()[where][:, None]
    states = _lens(prompted, batch) if by_layer else [prompted.run_backbone(batch).states]
    at_once = max(1, LOGITS_AT_ONCE // prompted.vocab.size)
    by_state = []
    for layer in states:
        picked = layer.flatten(0, 1)[where]
        chunks = zip(torch.split(picked, at_once), torch.split(targets, at_once), strict=True)
        by_state.append(torch.cat([_measured(prompted.logits(s), t, top) for s, t in chunks]))
    stacked: Array = torch.stack(by_state, dim=1).cpu().numpy()
    return stacked


def _measured(logits: Tensor, targets: Tensor, top: int) -> Tensor:
    own = logits.gather(1, targets)
    rank = (logits >= own).sum(1, keepdim=True) - 1
    log_probs = logits.log_softmax(-1).double()
    best = log_probs.topk(min(top, logits.shape[1]), dim=-1)
    pairs = torch.stack([best.indices.double(), best.values], dim=-1).flatten(1)
    return torch.cat([log_probs.gather(1, targets), rank.double(), pairs], dim=1)


# -- the logit lens --------------------------------------------------------------------------------


def predicting_stack(prompted: TrainedModel) -> Stack:
    """Return the Transformer whose states predict: the decoder's, where there is one.

    Raises:
        UserError: there is none whose layers the head can read.
    """
    able = prompted.recipe.objective.predicts.tokens and not prompted.recipe.model.two_streams
    backbone = prompted.recipe.objective.token_backbone(prompted.model)
    stacks = [module for module in backbone.modules() if isinstance(module, Stack)]
    if not able or not stacks:
        raise prompted.unable("has no layers that its head could read", LENS)
    return stacks[-1]


def _lens(prompted: TrainedModel, batch: Batch) -> Sequence[Tensor]:
    """Return the states after each layer as the head reads them, the input of the first before."""
    stack = predicting_stack(prompted)
    with _kept_layers(stack) as kept:
        prompted.run_backbone(batch)
    layers = kept[0].layers
    assert layers is not None
    with torch.no_grad():
        return [*map(stack.final_norm, layers[:-1]), layers[-1]]


@contextmanager
def _kept_layers(stack: Stack) -> Iterator[list[StackOutput]]:
    """Record the outputs of a stack, with the states of its layers, within the context."""
    outputs: list[StackOutput] = []

    def ask(module: Stack, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "keeps_layers": True}

    def record(module: Stack, args: Any, output: StackOutput) -> None:
        outputs.append(output)

    hooks = [
        stack.register_forward_pre_hook(ask, with_kwargs=True),
        stack.register_forward_hook(record),
    ]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()
