"""The bodies of requests: dataclasses, which check JSON, name wrong keys and become a schema.

Keys of the OpenAI dialect that this server has no use for take only the value that changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from foreword.settings.ranges import (
    Count,
    CountOrZero,
    LengthPenalty,
    OpenShare,
    PositiveShare,
    Ranged,
    Seed,
    Temperature,
)

Texts = str | tuple[str, ...]
Prompts = str | tuple[str, ...] | tuple[int, ...] | tuple[tuple[int, ...], ...]
Alternatives = Annotated[int, Interval(ge=0, le=20)]
Samples = Annotated[int, Interval(ge=1, le=128)]


@dataclass(frozen=True, kw_only=True)
class Body(Ranged):
    """A request.

    Attributes:
        model: name of the model, as /v1/models lists it; not needed where one is served.
    """

    model: str | None = None


@dataclass(frozen=True)
class StreamOptions:
    """What a stream has besides.

    Attributes:
        include_usage: whether a last chunk counts the tokens.
        include_obfuscation: not used.
    """

    include_usage: bool = False
    include_obfuscation: bool = False


@dataclass(frozen=True, kw_only=True)
class Generates(Body):
    """How to generate.

    Attributes:
        temperature: sampling temperature; 0 always takes the likeliest token.
        top_p: sample from the likeliest tokens that sum up to p.
        top_k: sample from the k likeliest tokens; 0 for all.
        seed: equal seeds give equal texts; default: a new one each time.
        n: texts for each prompt.
        min_tokens: the fewest tokens before the model may end the text.
        stop: the text ends before the first of these.
        stream: whether to send the text as it is generated, as server-sent events.
        stream_options: what a stream has besides.
        user: not used.
        frequency_penalty: there is none.
        presence_penalty: there is none.
        logit_bias: there is none.
    """

    temperature: Temperature = 1.0
    top_p: PositiveShare = 1.0
    top_k: CountOrZero = 0
    seed: Seed | None = None
    n: Samples = 1
    min_tokens: CountOrZero = 0
    stop: Texts = ()
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    user: str | None = None
    frequency_penalty: Literal[0] = 0
    presence_penalty: Literal[0] = 0
    logit_bias: Literal[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        stops = (self.stop,) if isinstance(self.stop, str) else self.stop
        if not all(stops) or len(stops) > 16:
            raise ValueError("stop: must be at most 16 texts, none of them empty")


@dataclass(frozen=True, kw_only=True)
class CompletionBody(Generates):
    """Texts to continue.

    Attributes:
        prompt: a text, or a list of token ids; or a list of these.
        max_tokens: the most new tokens; 0 with `echo` to score a prompt.
        logprobs: also give log-probabilities, and this number of likeliest tokens in each place.
        echo: whether the prompt is part of the text, and scored with `logprobs`.
        best_of: there is none; at most `n`.
        suffix: there is none.
    """

    prompt: Prompts
    max_tokens: CountOrZero = 16
    logprobs: Alternatives | None = None
    echo: bool = False
    best_of: Samples | None = None
    suffix: Literal[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.best_of not in (None, self.n):
            raise ValueError("best_of: is not supported; leave it out, and use n")


@dataclass(frozen=True, kw_only=True)
class ChatBody(Generates):
    """A conversation to answer.

    Attributes:
        messages: a system message may begin; then user and assistant take turns.
        max_tokens: the most new tokens; default: as many as the model was tuned to write.
        max_completion_tokens: the same under its new name.
        logprobs: also give log-probabilities.
        top_logprobs: number of likeliest tokens in each place.
    """

    messages: tuple[dict[str, Any], ...]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: Alternatives = 0


@dataclass(frozen=True, kw_only=True)
class EmbeddingBody(Body):
    """Texts to represent as vectors.

    Attributes:
        input: a text, or a list of token ids; or a list of these.
        encoding_format: float, or base64 of 32-bit floats.
        dimensions: the model's own number; no other.
        user: not used.
    """

    input: Prompts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None
    user: str | None = None


@dataclass(frozen=True, kw_only=True)
class FillBody(Body):
    """Texts whose blanks are filled.

    Attributes:
        text: a text with [MASK] or <extra_id_0>, or a list of them.
        top: candidates for each blank.
    """

    text: Texts
    top: Annotated[int, Interval(ge=1, le=1000)] = 5


@dataclass(frozen=True, kw_only=True)
class ScoreBody(Body):
    """Texts to score token by token.

    Attributes:
        text: a text, or a list of them.
        source: the source that the text answers, for a model with one; a list for a list.
        stride: tokens from window to window; default: half a window.
    """

    text: Texts
    source: Texts | None = None
    stride: Count | None = None


@dataclass(frozen=True, kw_only=True)
class PredictBody(Body):
    """Rows to predict for, by a fine-tuned model.

    Attributes:
        data: texts, pairs of texts in lists, or objects with the columns that it was tuned on.
        prefix: the task prefix; default: that of training.
        probabilities: whether to give the probability of each label.
        threshold: probability from which a label is predicted.
    """

    data: tuple[Any, ...]
    prefix: str | None = None
    probabilities: bool = False
    threshold: OpenShare | None = None


@dataclass(frozen=True, kw_only=True)
class ExamplesBody(Body):
    """Examples that a fine-tuned model was scored on, and its answers to them.

    Attributes:
        first: number of the first example, from 0.
        count: the most examples.
    """

    first: CountOrZero = 0
    count: Annotated[int, Interval(ge=1, le=256)] = 64


@dataclass(frozen=True, kw_only=True)
class TranslateBody(Body):
    """Texts to translate, by beam search.

    Attributes:
        text: a text, or a list of them.
        beams: number of beams; 1 is greedy decoding.
        length_penalty: 0 prefers short texts, 1 ranks by the mean of their tokens.
        max_tokens: the most tokens of a translation.
    """

    text: Texts
    beams: Annotated[int, Interval(ge=1, le=64)] = 5
    length_penalty: LengthPenalty = 1.0
    max_tokens: Count = 100


@dataclass(frozen=True, kw_only=True)
class TokenizeBody(Body):
    """A text to cut into tokens.

    Attributes:
        prompt: the text; names of special tokens in it become these tokens.
        add_special_tokens: nothing is added.
    """

    prompt: str
    add_special_tokens: Literal[False] = False


@dataclass(frozen=True, kw_only=True)
class DetokenizeBody(Body):
    """Tokens to read as text.

    Attributes:
        tokens: their ids.
    """

    tokens: tuple[int, ...]
