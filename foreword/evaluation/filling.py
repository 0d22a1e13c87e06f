"""Filling the blanks of a text with a model's predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from foreword.errors import UserError
from foreword.evaluation.beam import Beams, search
from foreword.evaluation.decoding import stops_of
from foreword.evaluation.memory_check import require_memory_to_search
from foreword.evaluation.scorer import padded
from foreword.evaluation.starts import Start
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array

LONGEST = 20  # the most tokens in one blank, for models that decide how many


@dataclass(frozen=True)
class Candidate:
    """A filling of a blank: its tokens, its text and its probability."""

    ids: tuple[int, ...]
    text: str
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A text with its blanks filled.

    Attributes:
        text: the text with the likeliest candidate in each blank, as `«word»`.
        blanks: the candidates of each blank, likeliest first.
        order: the numbers of the blanks, from 1, in the order in which they were filled, each given
            those before it (masked diffusion); () where all were filled at once or from the left.
    """

    text: str
    blanks: tuple[tuple[Candidate, ...], ...]
    order: tuple[int, ...] = ()


def fill(prompted: TrainedModel, text: str, top: int = 5) -> FilledText:
    """Fill each blank of `text`: [MASK], or a sentinel as in T5 (`<extra_id_0>`).

    A model that predicts in place gives the `top` likeliest tokens of each blank, for all blanks at
    once; one of masked diffusion fills the surest blank first, then the others given its token. In
    both a [MASK] is one token: blanks of unknown length are for models with sentinels. A model
    whose sources have sentinels generates fillings of any number of tokens, the likeliest ones by
    beam search: blank by blank, after the best fillings of earlier blanks.

    The text around the blanks stays as it was given.

    Raises:
        UserError: the model does not fill blanks, or the text is too long or has no blank or too
            many.
    """
    ids, offsets = prompted.tokenizer.encode_with_offsets(text, special=True)
    order: list[int] = []
    blanks = candidates(prompted, ids, top, order)
    filled, start = "", 0
    for (begin, stop), blank in zip(offsets[blanks_in(prompted, ids)], blanks, strict=True):
        # A mask may take the spaces before it (RoBERTa's).
        name = text[begin:stop].lstrip()
        filled, start = f"{filled}{text[start : stop - len(name)]}«{blank[0].text}»", stop
    return FilledText(filled + text[start:], blanks, tuple(order))


def candidates(
    prompted: TrainedModel, ids: Array, top: int, order: list[int] | None = None
) -> tuple[tuple[Candidate, ...], ...]:
    """Return the candidates for each blank in `ids` (length,), likeliest first.

    Args:
        prompted: the model.
        ids: the text.
        top: the candidates of each blank.
        order: receives `FilledText.order`.

    Raises:
        UserError: as `fill` does.
    """
    able = "masked, permuted, encoder-decoder of spans"
    prompted.require_token_head(able)
    if not prompted.fills_in_place and not prompted.uses_sentinels:
        ability = "continues texts" if prompted.continues else "answers a source"
        raise prompted.unable(f"does not fill blanks; it {ability}: use 'foreword generate'", able)
    if top < 1:
        raise UserError(f"top: must be at least 1, got {top}")
    where = blanks_in(prompted, ids)
    if not len(where):
        raise UserError(f"the text has no {blank_of(prompted)}; put one where a word is missing")
    if prompted.unmasks:
        return _one_by_one(prompted, ids, where, top, [] if order is None else order)
    if prompted.fills_in_place:
        return _in_place(prompted, ids, where, top)
    return _by_sentinels(prompted, ids, where, top)


def blank_of(prompted: TrainedModel) -> str:
    """Return the name of a blank in texts for a model that fills them."""
    tokenizer = prompted.tokenizer
    if prompted.uses_sentinels and not prompted.fills_in_place:
        return tokenizer.token(int(prompted.vocab.sentinels[0]))
    return tokenizer.name_of("[MASK]") or ""


def blanks_in(prompted: TrainedModel, ids: Array) -> Array:
    """Return the positions of blanks, (blanks,) int64: masks, and sentinels except a mode's."""
    names = [prompted.vocab.special.get("[MASK]", -1), *prompted.vocab.sentinels]
    mode = prompted.modes(ids)
    return mode + np.flatnonzero(np.isin(ids[mode:], names))


def _in_place(
    prompted: TrainedModel, ids: Array, where: Array, top: int
) -> tuple[tuple[Candidate, ...], ...]:
    masked = ids.copy()
    masked[where] = prompted.vocab.id("[MASK]")
    tokens = padded([prompted.with_bos_and_eos(masked)])
    weights = np.zeros(tokens.ids.shape, dtype=np.float32)
    weights[0, where + len(prompted.bos)] = 1.0
    batch = prompted.recipe.layout.arrange(
        prompted.in_place_example(tokens, tokens, weights), prompted.vocab
    )
    states = prompted.run_backbone(batch).states[0, np.flatnonzero(batch.weights)]
    logits = prompted.logits(states)  # (blanks, vocab)
    if prompted.unmasks:  # its words are the text's, never special tokens
        logits[:, torch.from_numpy(prompted.vocab.is_special)] = float("-inf")
    p = logits.softmax(-1)
    best = p.topk(min(top, p.shape[1]), dim=-1)
    return tuple(
        tuple(
            Candidate((i,), _readable(prompted, (i,)), value)
            for i, value in zip(row_ids, row_values, strict=True)
        )
        for row_ids, row_values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )


def _one_by_one(
    prompted: TrainedModel, ids: Array, where: Array, top: int, order: list[int]
) -> tuple[tuple[Candidate, ...], ...]:
    """Return the candidates of each blank given those that were filled before, the surest first."""
    if np.isin(ids[where], prompted.vocab.sentinels).any():
        raise UserError(
            f"{prompted.name}: a sentinel is a blank of any length, and this "
            f"{prompted.description} fills one token for each [MASK]; write a [MASK] for each "
            "missing token"
        )
    ids, blanks, left = ids.copy(), dict[int, tuple[Candidate, ...]](), list(range(len(where)))
    while left:
        found = _in_place(prompted, ids, where[left], top)
        surest = max(range(len(left)), key=lambda n: found[n][0].probability)
        number = left.pop(surest)
        blanks[number] = found[surest]
        ids[where[number]] = found[surest][0].ids[0]
        order.append(number + 1)
    return tuple(blanks[number] for number in range(len(where)))


def _by_sentinels(
    prompted: TrainedModel, ids: Array, where: Array, top: int
) -> tuple[tuple[Candidate, ...], ...]:
    sentinels = prompted.vocab.sentinels
    if len(where) > len(sentinels):
        raise UserError(f"the text has {len(where)} blanks; at most {len(sentinels)} can be filled")
    source = ids.copy()
    source[where] = sentinels[: len(where)]
    source = prompted.source_of(source)
    # A filling ends with a sentinel, which is the next blank's, or with the end of the text.
    stops = np.concatenate([stops_of(prompted), sentinels])
    # Twice as many as requested, since some differ only in their stop token.
    require_memory_to_search(prompted, 2 * top, LONGEST, "--top")
    beams = Beams(2 * top, length_penalty=0.0, tokens=LONGEST)
    target, blanks = ids[:0], []
    for sentinel in sentinels[: len(where)]:
        start = Start(source, np.append(target, sentinel))
        fillings: dict[tuple[int, ...], float] = {}
        for text in search(prompted, [start], beams, stops, min_tokens=1)[0]:
            assert text.log_probs is not None
            filling = tuple(text.ids.tolist())
            fillings[filling] = fillings.get(filling, 0.0) + float(np.exp(text.log_probs.sum()))
        best = sorted(fillings, key=lambda filling: -fillings[filling])[:top]
        blanks.append(tuple(Candidate(f, _readable(prompted, f), fillings[f]) for f in best))
        target = np.concatenate([start.target, best[0]])
    return tuple(blanks)


def _readable(prompted: TrainedModel, ids: tuple[int, ...]) -> str:
    """Return a filling as text, or the names of its tokens if it has none ([UNK])."""
    text = prompted.tokenizer.decode(ids).strip()
    return text or " ".join(prompted.tokenizer.token(i) for i in ids)


def insert_candidates(
    prompted: TrainedModel, ids: Array, blanks: tuple[tuple[Candidate, ...], ...]
) -> FilledText:
    """Return the text of `ids` with the first candidate in each blank, as `«word»`."""
    parts = np.split(ids, blanks_in(prompted, ids))
    decode = prompted.tokenizer.decode
    text = decode(parts[0], skip_special=False)
    for part, blank in zip(parts[1:], blanks, strict=True):
        # A part decoded with the blank before it keeps the space between them.
        name, rest = decode(part[:1], skip_special=False), decode(part, skip_special=False)
        gap = "" if not text or text[-1] in " \n\t(\"'" else " "
        text += f"{gap}«{blank[0].text}»{rest.removeprefix(name)}"
    return FilledText(text, blanks)
