"""Autoregressive decoding with a key-value cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from foreword.errors import UserError
from foreword.evaluation.decoder import Decoder, TextLimits, threads_for
from foreword.evaluation.memory_check import require_memory_to_sample
from foreword.evaluation.sampling import Sampling
from foreword.evaluation.starts import GeneratedTokens, Start, Stopped, groups_of_equal_length
from foreword.evaluation.unmasking import unmask
from foreword.nn.linear import packed_weights
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array

TOGETHER = 64  # the most texts that are computed together


@dataclass(frozen=True)
class Generation:
    """A prompt and its continuation or answer.

    Attributes:
        prompt: the prompt.
        text: the generated text.
        tokens: its number of tokens.
        stopped: what ended it; see `GeneratedTokens`.
        steps: of a model of masked diffusion, if asked for, the text after each step.
    """

    prompt: str
    text: str
    tokens: int
    stopped: Stopped
    steps: tuple[str, ...] = ()


def generate(
    prompted: TrainedModel,
    prompts: Sequence[str],
    sampling: Sampling,
    samples: int = 1,
    *,
    with_steps: bool = False,
) -> list[Generation]:
    """Return `samples` texts that continue, or answer, each prompt, prompt by prompt.

    A causal model continues the prompt, and so does one of masked diffusion, in any order (see
    `foreword.evaluation.unmasking`); `with_steps` gives its texts after each step. A model with a
    source reads the prompt as its source, after a mode token as in training; if all its sources
    have sentinels and the prompt has none, one is appended, so that the model continues the text.
    Special tokens that do not end a text are never generated. The texts of a prompt do not depend
    on the other prompts.

    Raises:
        UserError: the model fills blanks, a prompt is empty or too long, or the texts do not fit
            into memory.
    """
    in_steps = with_steps or (sampling.steps, sampling.block) != (Sampling.steps, Sampling.block)
    if in_steps and not prompted.unmasks:
        does = "writes a token a step, from left to right, without --steps, --block, --show-steps"
        raise prompted.unable(does, "masked diffusion")
    starts = starts_of(prompted, prompts)
    require_memory_to_sample(prompted, len(starts) * samples, sampling.tokens)
    numbered = [replace(start, number=n) for start in starts for n in range(samples)]
    decoded = decode(prompted, numbered, sampling, stops_of(prompted))
    texts = [
        generation(prompted, prompts[n // samples], start, new)
        for n, (start, new) in enumerate(zip(numbered, decoded, strict=True))
    ]
    if not with_steps:
        return texts
    return [
        replace(text, steps=tuple(_after_each_step(prompted, new)))
        for text, new in zip(texts, decoded, strict=True)
    ]


def _after_each_step(prompted: TrainedModel, new: GeneratedTokens) -> Iterator[str]:
    """Yield the text after each step in which a token was written, masks for what is missing."""
    assert new.filled_at is not None
    mask = prompted.vocab.id("[MASK]")
    for step in np.unique(new.filled_at):
        ids = np.where(new.filled_at <= step, new.ids, mask)
        yield prompted.tokenizer.decode(ids, skip_special=False).strip()


def generation(
    prompted: TrainedModel, prompt: str, start: Start, new: GeneratedTokens
) -> Generation:
    """Return the tokens generated after a prompt as text."""
    return Generation(prompt, text_of(prompted, start, new.ids), len(new.ids), new.stopped)


def starts_of(prompted: TrainedModel, prompts: Sequence[str]) -> list[Start]:
    """Return the start of each prompt's text; see `generate`.

    Raises:
        UserError: the model fills blanks, or a prompt is empty.
    """
    able = "causal, masked diffusion, encoder-decoder, n-gram"
    prompted.require_token_head(able)
    if prompted.fills_in_place and not (prompted.continues or prompted.unmasks):
        raise prompted.unable(
            "does not generate text; it fills blanks: "
            'foreword fill RUN "The [MASK] sat on the mat."',
            able,
        )
    return [start_of(prompted, prompt) for prompt in prompts]


def start_of(prompted: TrainedModel, prompt: str) -> Start:
    """Return the start of a prompt's text; see `generate`.

    Raises:
        UserError: the prompt is empty, and the model reads a source.
    """
    return start_of_ids(prompted, prompt_ids(prompted, prompt))


def prompt_ids(prompted: TrainedModel, prompt: str) -> Array:
    """Return the tokens of a prompt, without what the model has before it."""
    # A source without sentinels is prose, in which the name of a special token is text.
    is_prose = prompted.answers and not prompted.uses_sentinels
    return prompted.tokenizer.encode(prompt, special=not is_prose)


def start_of_ids(prompted: TrainedModel, ids: Array) -> Start:
    """Return the start of the text of a prompt given as tokens; see `generate`.

    Raises:
        UserError: the prompt is empty, and the model reads a source.
    """
    if prompted.continues or prompted.unmasks:
        before = prompted.prompt_prefix
        has_prefix = len(before) and np.array_equal(ids[: len(before)], before)
        target = ids if has_prefix else np.concatenate([before, ids])
        # A model whose documents have no first token still needs one to predict from.
        return Start(None, target if len(target) else prompted.eos)
    if not len(ids):
        raise UserError("the prompt is empty, and this model requires a source; give some text")
    if prompted.reads_plain or np.isin(ids, prompted.vocab.sentinels).any():
        return Start(prompted.source_of(ids), ids[:0])
    sentinel = prompted.vocab.sentinels[:1]
    return Start(prompted.source_of(np.concatenate([ids, sentinel])), sentinel)


def stops_of(prompted: TrainedModel) -> Array:
    """Return the tokens that end a text."""
    special = [prompted.vocab.special[n] for n in ("</s>",) if n in prompted.vocab.special]
    return np.unique([*special, *prompted.eos, *prompted.end_token]).astype(np.int64)


def text_of(prompted: TrainedModel, start: Start, ids: Array) -> str:
    """Return new tokens as the text that follows the start's."""
    to_text = prompted.tokenizer.decode
    if start.source is not None and not len(start.target):
        has_sentinels = np.isin(ids, prompted.vocab.sentinels).any()
        return to_text(ids, skip_special=not has_sentinels)
    # The space before the first new token appears only if it is decoded with the start.
    before, whole = to_text(start.target), to_text(np.concatenate([start.target, ids]))
    return whole[len(before) :] if whole.startswith(before) else to_text(ids)


def decode(
    prompted: TrainedModel,
    starts: Sequence[Start],
    sampling: Sampling,
    stops: Array,
    min_tokens: int = 0,
    *,
    scores: bool = False,
) -> list[GeneratedTokens]:
    """Continue each start.

    A model of masked diffusion fills masks after it (`foreword.evaluation.unmasking`), without
    log-probabilities. Starts are computed together without padding: they are read in groups of
    equal length, and go on together if the model's cache can hold rows of different lengths.

    Args:
        prompted: the model.
        starts: the beginnings of the texts.
        sampling: the settings of sampling.
        stops: the tokens that end a text.
        min_tokens: the fewest tokens before a stop token is allowed.
        scores: whether to return the tokens' log-probabilities.

    Raises:
        UserError: a start is empty, or longer than the model can read.
    """
    limits = TextLimits(sampling, min_tokens, scores)
    decoded: dict[int, GeneratedTokens] = {}
    is_ragged = prompted.recipe.model.cache_can_be_ragged and not prompted.unmasks
    with packed_weights(prompted.model), torch.inference_mode():
        for chunk in groups_of_equal_length(starts, TOGETHER, by_source=is_ragged):
            if prompted.unmasks:
                group = [starts[n] for n in chunk]
                new = unmask(prompted, group, sampling, stops, min_tokens)
                decoded.update(zip(chunk, new, strict=True))
                continue
            with threads_for(prompted, len(chunk)):
                decoder = Decoder(prompted, stops)
                texts = decoder.add([starts[n] for n in chunk], [limits] * len(chunk))
                while decoder.groups:
                    decoder.step()
            decoded.update(zip(chunk, (text.generated() for text in texts), strict=True))
    return [decoded[n] for n in range(len(starts))]
