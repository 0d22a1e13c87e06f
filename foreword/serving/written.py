"""A text that is generated as its readers get it: whole characters, up to a stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from foreword.evaluation.decoder import DecodedText, TextLimits
from foreword.evaluation.starts import Start
from foreword.runs.trained_model import TrainedModel

CONTEXT = 8  # tokens of the prompt with which the first new ones are read
HALF = "\ufffd"  # what a character that is not complete is read as

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class WrittenToken:
    """A token of a text.

    Attributes:
        id: its id.
        offset: the character of the text at which it begins.
        nats: its log-probability under the model; None if it was not asked for.
        alternatives: the likeliest tokens in its place, with their log-probabilities.
    """

    id: int
    offset: int
    nats: float | None
    alternatives: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class Piece:
    """A piece of a text.

    Attributes:
        number: of the text in its request.
        text: the characters.
        tokens: the tokens that they came from.
        finish: why the text ends here; None if it goes on.
    """

    number: int
    text: str
    tokens: Sequence[WrittenToken]
    finish: Finish | None = None


class WholeCharacters:
    """Tokens as characters, one token after the other.

    Args:
        prompted: the model whose tokens they are.
        before: tokens before the first.
    """

    def __init__(self, prompted: TrainedModel, before: Iterable[int] = ()) -> None:
        self._decode, self._sentinels = prompted.tokenizer.decode, prompted.vocab.sentinels
        self._ids = list(before)
        self._begin, self._end = 0, len(self._ids)  # tokens that were read before
        self._skips = True

    def add(self, token: int) -> str:
        """Return the characters that a token completes; none inside of a character."""
        self._ids.append(token)
        self._skips = self._skips and token not in self._sentinels
        text = self._new()
        if text.endswith(HALF):
            return ""
        self._begin, self._end = self._end, len(self._ids)
        return text

    def rest(self) -> str:
        """Return what is left of a character that was not completed."""
        return self._new() if self._end < len(self._ids) else ""

    def _new(self) -> str:
        window = self._ids[self._begin :]
        before = self._decode(window[: self._end - self._begin], self._skips).rstrip(HALF)
        whole = self._decode(window, self._skips)
        if whole.startswith(before):
            return whole[len(before) :]
        return self._decode(window[self._end - self._begin :], self._skips)


@dataclass(frozen=True)
class Wanted:
    """What a request wants of a text.

    Attributes:
        number: of the text in its request.
        stops: the text ends before the first of these.
        echo: the prompt, if it is part of the text.
        unseen: tokens of the start that are not the prompt's.
        is_scored_only: whether nothing follows the prompt.
        is_whole: whether it is given out at once, when it is finished.
        is_answer: whether it stands by itself, and does not go on with the words of its start.
    """

    number: int = 0
    stops: Sequence[str] = ()
    echo: str | None = None
    unseen: int = 0
    is_scored_only: bool = False
    is_whole: bool = False
    is_answer: bool = False


class WrittenText:
    """A text of a request.

    Args:
        prompted: the model that writes it.
        start: what it begins with.
        limits: how it goes on and ends.
        wanted: what is given of it.

    Attributes:
        decoded: what was generated so far, once it is begun.
        tokens: the number of its new tokens, with the one that ended it.
    """

    def __init__(
        self, prompted: TrainedModel, start: Start, limits: TextLimits, wanted: Wanted
    ) -> None:
        self.start, self.limits, self.wanted = start, limits, wanted
        self.decoded, self.tokens = DecodedText(limits), 0
        self._prompted = prompted
        stands_alone = wanted.is_answer or start.source is not None
        before = [] if stands_alone else start.target[-CONTEXT:].tolist()
        self._characters = WholeCharacters(prompted, before)
        self._text = wanted.echo or ""  # that is not given out yet, since a stop may begin in it
        self._prompt = len(self._text)  # characters of it that are the prompt
        self._given = 0  # characters that were given out
        self._tokens: list[WrittenToken] = []
        self._is_begun = False

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens that are read before the first new one."""
        source = self.start.source
        return len(self.start.target) + (0 if source is None else len(source))

    def take(self) -> Piece | None:
        """Return what there is since the last piece; None if it is nothing yet."""
        decoded, wanted = self.decoded, self.wanted
        if not self._is_begun and wanted.echo is not None:
            self._score_prompt()
        self._is_begun = True
        if wanted.is_scored_only:
            return self._give(len(self._text), "length")
        # Add the new tokens, up to a stop.
        for token in decoded.ids[self.tokens :]:
            self._add(token, len(self._text))
            self._text += self._characters.add(token)
            if (stop := self._stop()) is not None:
                return self._cut(stop)
        if decoded.stopped is None:
            return None if wanted.is_whole else self._give(len(self._text) - self._held())
        # It is ended.
        if decoded.end is not None:
            self._add(decoded.end, len(self._text))
        self._text += self._characters.rest()
        if (stop := self._stop()) is not None:
            return self._cut(stop)
        return self._give(len(self._text), "stop" if decoded.stopped == "end" else "length")

    def _add(self, token: int, offset: int) -> None:
        n, self.tokens = self.tokens, self.tokens + 1
        nats = self.decoded.nats[n] if self.limits.scores else None
        best = self.decoded.alternatives[n] if self.limits.scores else ()
        self._tokens.append(WrittenToken(token, self._given + offset, nats, best))

    def _score_prompt(self) -> None:
        """Add the tokens of the prompt."""
        characters, offset = WholeCharacters(self._prompted), 0
        nats = [None, *self.decoded.start_nats]
        best = [(), *self.decoded.start_alternatives]
        for n, token in enumerate(self.start.target.tolist()):
            if n >= self.wanted.unseen:
                scored = (nats[n], best[n]) if n < len(nats) else (None,)
                self._tokens.append(WrittenToken(token, offset, *scored))
            offset += len(characters.add(token))

    def _give(self, end: int, finish: Finish | None = None) -> Piece | None:
        """Return the text up to a character."""
        if end == 0 and finish is None:
            return None
        text, self._text = self._text[:end], self._text[end:]
        self._given, self._prompt = self._given + end, max(0, self._prompt - end)
        tokens, self._tokens = self._tokens, []
        return Piece(self.wanted.number, text, tokens, finish)

    def _cut(self, end: int) -> Piece | None:
        """Return the rest of the text, which ends before a stop."""
        self._tokens = [token for token in self._tokens if token.offset < self._given + end]
        return self._give(end, "stop")

    def _stop(self) -> int | None:
        """Return the character at which the first stop begins; None without."""
        found = [self._text.find(stop, self._prompt) for stop in self.wanted.stops]
        return min((at for at in found if at >= 0), default=None)

    def _held(self) -> int:
        """Return the characters at the end with which a stop may begin."""
        text = self._text[self._prompt :]
        longest = 0
        for stop in self.wanted.stops:
            sizes = range(min(len(stop) - 1, len(text)), longest, -1)
            longest = next((n for n in sizes if text.endswith(stop[:n])), longest)
        return longest
