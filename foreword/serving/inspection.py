"""Looking inside of models: the requests of the page's panels, each a row of results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor

from foreword.data.rng import RowRng
from foreword.errors import TooLongError, UserError
from foreword.evaluation import alignment, beam, decoding, reading, states, translation
from foreword.evaluation.attention_weights import attention_weights, self_attentions
from foreword.evaluation.beam import Beams
from foreword.evaluation.sampling import Sampling, sample_tokens
from foreword.evaluation.starts import forbidden_tokens, next_token_batch
from foreword.evaluation.states import TextStates
from foreword.interop.word_table import word_table
from foreword.models.ngram import table_of
from foreword.nn.precision import widest
from foreword.nn.stack import Stack
from foreword.probes._words import read_words
from foreword.runs.trained_model import NEURAL, TrainedModel
from foreword.serving.bodies import Body
from foreword.serving.served import Served, ids_of
from foreword.serving.worker import ItemKind, RequestJob
from foreword.settings.ranges import (
    Count,
    CountOrZero,
    LengthPenalty,
    PositiveShare,
    Seed,
    Temperature,
)
from foreword.types import Array
from foreword.vectors.table import WordTable, to_unit_length

MOST_TOKENS = 256  # of a text that is looked at
MOST_WEIGHTS = 1 << 20  # of attention in one answer
MOST_CHARACTERS = 4096  # of a text whose pieces are shown
MOST_SENTENCES = 64  # of others, that a word is compared with
BINS = 48  # of tokens too unlikely to be named
Compute = Callable[[], dict[str, Any]]
Few = Annotated[int, Interval(ge=1, le=32)]
Many = Annotated[int, Interval(ge=1, le=256)]


@dataclass(frozen=True)
class Look:
    """A request of `/inspect/NAME`.

    Attributes:
        body: what it has.
        row: computes the row of the answer, in the model's thread; checks the request first.
        check: raises UserError if a model cannot do it.
        summary: what it does, for the schema.
    """

    body: type[Body]
    row: Callable[[Served, Any], Compute]
    check: Callable[[Served], object]
    summary: str

    def can(self, served: Served) -> bool:
        """Return whether a model can do it."""
        try:
            self.check(served)
        except UserError:
            return False
        return True

    def job(self, served: Served, body: Body) -> RequestJob:
        """Return the work of a request, a single row that no other request shares.

        Raises:
            UserError: the model cannot do it, or not this.
        """
        self.check(served)
        compute = self.row(served, body)
        return RequestJob(deque([(0, None)]), ItemKind(object(), lambda items: [compute()], 1))


# -- a text, token by token ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TextBody(Body):
    """A text to read token by token.

    Attributes:
        text: the text, of at most 256 tokens.
        source: the source that the text answers, for a model with one.
        top: likeliest tokens to name in each place.
    """

    text: str
    source: str | None = None
    top: Few = 8


@dataclass(frozen=True, kw_only=True)
class LensBody(Body):
    """A text to read layer by layer.

    Attributes:
        text: the text, of at most 256 tokens.
        source: the source that the text answers, for a model with one.
        top: likeliest tokens to name in each place after each layer.
    """

    text: str
    source: str | None = None
    top: Annotated[int, Interval(ge=1, le=8)] = 3


def _read(served: Served, body: TextBody | LensBody) -> Compute:
    model, by_layer = served.trained, isinstance(body, LensBody)

    def compute() -> dict[str, Any]:
        read = reading.read(model, body.text, body.top, body.source, MOST_TOKENS, by_layer=by_layer)
        expected = [[_expected(model, layer) for layer in t.layers] for t in read.tokens]
        tokens = [
            token | ({"layers": layers} if by_layer else (layers or [{}])[-1])
            for token, layers in zip(_tokens(model, body.text, read.tokens), expected, strict=True)
        ]
        given = _given(model, body.source)
        return {**read.totals.as_row(), "given": given, "tokens": tokens}

    return compute


def _given(model: TrainedModel, source: str | None) -> str:
    """Return what each token was predicted from."""
    if model.detects_replacements:
        return "whether each token is genuine, given all"
    if model.continues:
        return "the tokens before"
    return "the source and the tokens before" if source is not None else "all other tokens"


def _tokens(model: TrainedModel, text: str, read: Sequence[reading.ReadToken]) -> list[Any]:
    """Return the tokens with the characters that each adds, which make up the text."""
    rows, at = [], 0
    for n, token in enumerate(read):
        stop = max(at, token.stop)
        if n + 1 < len(read) and read[n + 1].start > stop:  # white space that no token has
            stop = read[n + 1].start
        row = {"id": token.id, "token": model.tokenizer.token(token.id), "text": text[at:stop]}
        rows.append(row | {"start": at, "stop": stop, "is_end": token.start == len(text) > 0})
        at = stop
    return rows


def _expected(model: TrainedModel, expected: reading.Expected) -> dict[str, Any]:
    best = [_named(model, i) | {"nats": nats} for i, nats in expected.best]
    return {"nats": expected.nats, "rank": expected.rank, "best": best}


def _named(model: TrainedModel, token: int) -> dict[str, Any]:
    """Return a token with its text and its readable form."""
    spelled = model.vocab.spellings[token].decode(errors="replace")
    name, begins = model.tokenizer.token(token), bool(model.vocab.starts_word[token])
    return {"id": token, "token": name, "text": spelled, "begins_word": begins}


# -- the next token --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NextBody(Body):
    """A text whose next token is looked at.

    Attributes:
        text: the prompt, or the source.
        tokens: ids that follow, generated so far.
        temperature: sampling temperature; 0 takes the likeliest token.
        top_k: sample from the k likeliest tokens; 0 for all.
        top_p: sample from the likeliest tokens that sum up to p.
        seed: the draws are those of a text generated with it.
        top: likeliest tokens to name.
    """

    text: str
    tokens: tuple[int, ...] = ()
    temperature: Temperature = 1.0
    top_k: CountOrZero = 0
    top_p: PositiveShare = 1.0
    seed: Seed = 1
    top: Many = 128


def _next(served: Served, body: NextBody) -> Compute:
    model = served.trained
    before = decoding.start_of(model, body.text)
    new = served.known(ids_of(body.tokens, "tokens"))
    start = replace(before, target=np.concatenate([before.target, new]))
    served.require_length(start)

    def compute() -> dict[str, Any]:
        batch = next_token_batch(model, [start]).to(model.device)
        logits = model.logits(model.run_backbone(batch).states[:, -1])
        nats = logits.log_softmax(-1)[0].double().cpu()
        stops = decoding.stops_of(model)
        logits = logits.masked_fill(forbidden_tokens(model, [before], stops), float("-inf"))
        drawn = int(sample_tokens(logits, *_draw(body, len(new), logits))[0])
        likeliest = nats.masked_fill(logits[0].isneginf().cpu(), float("-inf")).sort(
            descending=True
        )
        count = int(torch.isfinite(likeliest.values).sum())
        some = zip(
            likeliest.indices[: min(body.top, count)].tolist(),
            likeliest.values.tolist(),
            strict=False,
        )
        best = [_named(model, i) | {"nats": n, "is_end": i in stops} for i, n in some]
        return {
            "text": decoding.text_of(model, before, new),
            "best": best,
            "rest": _binned(likeliest.values[len(best) : count]),
            "drawn": _named(model, drawn) | {"nats": float(nats[drawn]), "is_end": drawn in stops},
            "entropy": float(-(nats.exp() * nats.clamp(min=-1e4)).sum()),
            "room": served.length + 1 - len(start.target),
        }

    return compute


def _draw(body: NextBody, count: int, logits: Tensor) -> tuple[Sampling, Tensor]:
    """Return the settings and the uniform number of the next token, as `decode` has them."""
    rng = RowRng(body.seed, np.zeros(1, np.int64))
    draws = [float(rng.uniform(1)[0, 0]) for _ in range(count + 1)]
    sampling = Sampling(1, body.temperature, body.top_k, body.top_p)
    return sampling, torch.tensor(draws[-1:], dtype=widest(logits.device), device=logits.device)


def _binned(nats: Tensor) -> list[tuple[float, int]]:
    """Return unlikely tokens in bins: the log of their mean probability, and their number."""
    if not len(nats):
        return []
    parts = nats.tensor_split(min(BINS, len(nats)))
    return [(float(part.logsumexp(0) - np.log(len(part))), len(part)) for part in parts]


@dataclass(frozen=True, kw_only=True)
class BeamBody(Body):
    """A text to continue or to translate by beam search.

    Attributes:
        text: the prompt, or the source.
        beams: number of beams; 1 is greedy decoding.
        length_penalty: 0 prefers short texts, 1 ranks by the mean of their tokens.
        max_tokens: the most new tokens.
    """

    text: str
    beams: Annotated[int, Interval(ge=1, le=16)] = 4
    length_penalty: LengthPenalty = 1.0
    max_tokens: Annotated[int, Interval(ge=1, le=64)] = 12


def _beam(served: Served, body: BeamBody) -> Compute:
    model = served.trained
    start = decoding.start_of(model, body.text)
    served.require_length(start)
    beams = Beams(body.beams, body.length_penalty, body.max_tokens)

    def compute() -> dict[str, Any]:
        nodes: dict[tuple[int, ...], dict[str, Any]] = {}

        def add(ids: Sequence[int], nats: Sequence[float]) -> int:
            """Return the number of the node of some tokens, added with those before it."""
            for n in range(1, len(ids) + 1):
                key = tuple(ids[:n])
                if key not in nodes:
                    parent = nodes[key[:-1]]["node"] if n > 1 else None
                    total = float(np.sum(nats[:n]))
                    node = {"node": len(nodes), "parent": parent, "step": n, "total": total}
                    nodes[key] = node | _named(model, ids[n - 1]) | {"nats": float(nats[n - 1])}
            return int(nodes[tuple(ids)]["node"])

        def watch(ids: Array, nats: Array) -> None:
            for row, of_row in zip(ids, nats, strict=True):
                for one_beam, values in zip(row, of_row, strict=True):
                    if np.isfinite(values).all():
                        add(one_beam.tolist(), values.tolist())

        found = beam.search(model, [start], beams, decoding.stops_of(model), watch=watch)[0]
        texts = []
        for text in found:
            assert text.log_probs is not None
            ids, nats = text.ids.tolist(), text.log_probs.tolist()
            row = {"text": decoding.text_of(model, start, text.ids), "stopped": text.stopped}
            sums = {"score": beams.score(text), "nats": float(text.log_probs.sum())}
            texts.append({**row, **sums, "node": add(ids, nats) if ids else None})
        return {"nodes": list(nodes.values()), "texts": texts}

    return compute


@dataclass(frozen=True, kw_only=True)
class AlignmentBody(Body):
    """A source and a target, whose words are aligned by attention.

    Attributes:
        text: the source.
        target: its target; default: the model's own, by beam search.
        layer: a layer of the decoder, from 1; default: the last.
        beams: number of beams.
        max_tokens: the most tokens of the model's own target.
    """

    text: str
    target: str | None = None
    layer: Count | None = None
    beams: Annotated[int, Interval(ge=1, le=16)] = 4
    max_tokens: Annotated[int, Interval(ge=1, le=256)] = 60


def _align(served: Served, body: AlignmentBody) -> Compute:
    model = served.trained
    alignment.layer_of(model, body.layer)
    served.require_length(decoding.start_of(model, body.text))
    beams = Beams(body.beams, tokens=min(body.max_tokens, served.length - 1))

    def compute() -> dict[str, Any]:
        target = body.target
        if target is None:
            target = next(translation.translate(model, [body.text], beams))
        aligned = alignment.align(model, body.text, target, body.layer)
        weights = aligned.weights.round(4).tolist()
        return {"text": target, **asdict(replace(aligned, weights=weights))}

    return compute


# -- inside ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AttentionBody(Body):
    """A text whose attention weights are shown.

    Attributes:
        text: the text, of at most 256 tokens.
        layer: a layer, from 1; default: all.
    """

    text: str
    layer: Count | None = None


def _attention(served: Served, body: AttentionBody) -> Compute:
    model = served.trained
    tokens = len(_within(served, body.text))
    stack = next(m for m in model.model.backbone.modules() if isinstance(m, Stack))
    layers, heads = len(stack.blocks), self_attentions(model)[0].heads
    if body.layer is not None and body.layer > layers:
        raise UserError(f"layer: this model has {layers}, got {body.layer}")
    if (layers if body.layer is None else 1) * heads * tokens**2 > MOST_WEIGHTS:
        raise TooLongError(
            f"text: {layers} layers of {heads} heads with {tokens} tokens are more weights than "
            f"{MOST_WEIGHTS:,}; name a layer, or give a shorter text"
        )

    def compute() -> dict[str, Any]:
        weights = attention_weights(model, body.text)
        first = 1 if body.layer is None else body.layer
        chosen = weights.layers if body.layer is None else weights.layers[first - 1 : first]
        maps = [np.asarray(layer, np.float64).round(4).tolist() for layer in chosen]
        special = weights.is_special.tolist()
        return {"tokens": weights.tokens, "is_special": special, "first": first, "layers": maps}

    return compute


def _within(served: Served, text: str) -> Array:
    """Return the ids of a text.

    Raises:
        TooLongError: there are too many.
    """
    ids = served.trained.tokenizer.encode(text)
    if len(ids) > MOST_TOKENS:
        raise TooLongError(
            f"text: has {len(ids):,} tokens; at most {MOST_TOKENS} are looked at at once"
        )
    if not len(ids):
        raise UserError("text: is empty")
    return ids


@dataclass(frozen=True, kw_only=True)
class WordBody(Body):
    """A word in its sentence, and what is near it.

    Attributes:
        text: the sentence.
        start: the word's first character.
        stop: the character after its last.
        others: sentences whose words it is compared with, beside its own and the shipped ones.
        top: nearest words to name.
    """

    text: str
    start: CountOrZero
    stop: Count
    others: tuple[str, ...] = ()
    top: Few = 8


@dataclass(frozen=True)
class _Place:
    """A word somewhere: its sentence, its characters, and its vectors by layer."""

    text: str
    start: int
    stop: int
    layers: tuple[Array, ...]

    @property
    def row(self) -> dict[str, Any]:
        return {
            "word": self.text[self.start : self.stop],
            "before": self.text[: self.start],
            "after": self.text[self.stop :],
        }


def _word(served: Served, body: WordBody) -> Compute:
    model = served.trained
    if (
        not body.start < body.stop <= len(body.text)
        or not body.text[body.start : body.stop].strip()
    ):
        raise UserError("start: start and stop must hold a word of the text")
    if len(body.others) > MOST_SENTENCES:
        raise TooLongError(f"others: at most {MOST_SENTENCES} sentences, got {len(body.others)}")
    for text in (body.text, *body.others):
        _within(served, text)
    word = body.text[body.start : body.stop]

    def compute() -> dict[str, Any]:
        own = next(states.text_states(model, [body.text]))
        here = [p for p in _places(body.text, own) if p.start < body.stop and p.stop > body.start]
        if not here:
            raise UserError("start: there is no word there")
        others = [text for text in body.others if text.strip()]
        read = zip(others, states.text_states(model, others), strict=True) if others else ()
        bank = [*_places(body.text, own), *(p for pair in read for p in _places(*pair))]
        bank = [
            p for p in [*bank, *_shipped(served)] if (p.text, p.start) != (body.text, here[0].start)
        ]
        layers = [
            _nearest(here[0].layers[n], [p.layers[n] for p in bank], bank, body.top)
            for n in range(len(here[0].layers))
        ]
        alone = _table(served).nearest(word, body.top)
        same = [p for p in bank if p.text == body.text]
        return {
            "word": word,
            "alone": [asdict(near) for near in alone],
            "layers": layers,
            "same_text": [
                p.row
                | {"start": p.start, "cosines": [_cosine(a, b) for a, b in _pairs(here[0], p)]}
                for p in same
            ],
        }

    return compute


def _pairs(one_place: _Place, other: _Place) -> list[tuple[Array, Array]]:
    return list(zip(one_place.layers, other.layers, strict=True))


def _cosine(a: Array, b: Array) -> float:
    return float(np.clip(to_unit_length(a) @ to_unit_length(b), -1, 1))


def _nearest(
    vector: Array, vectors: Sequence[Array], bank: Sequence[_Place], top: int
) -> list[dict[str, Any]]:
    if not bank:
        return []
    cosines = np.clip(to_unit_length(np.stack(vectors)) @ to_unit_length(vector), -1, 1)
    order = np.argsort(-cosines, kind="stable")[:top]
    return [bank[n].row | {"cosine": float(cosines[n])} for n in order.tolist()]


def _places(text: str, read: TextStates) -> list[_Place]:
    """Return the words of a text with their vectors: the means over their pieces."""
    places, start = [], 0
    for word in text.split():
        start = text.index(word, start)
        letters = [n for n, c in enumerate(word) if c.isalnum()]
        if letters:
            begin, stop = start + letters[0], start + letters[-1] + 1
            where = read.tokens_of(begin, stop)
            if len(where):
                layers = read.layers or (read.alone,)
                means = tuple(layer[where].mean(0).astype(np.float64) for layer in layers)
                places.append(_Place(text, begin, stop, means))
        start += len(word)
    return places


def _shipped(served: Served) -> list[_Place]:
    """Return the words of the shipped sentences, each word with two senses; computed once."""
    model = served.trained

    def read() -> list[_Place]:
        sentences = (s.text for word in read_words("english") for s in word.sentences)
        texts = list(dict.fromkeys(sentences))
        pairs = zip(texts, states.text_states(model, texts), strict=True)
        return [place for pair in pairs for place in _places(*pair)]

    return list(served.kept("shipped", read))


def _table(served: Served) -> WordTable:
    model = served.trained
    table: WordTable = served.kept("table", lambda: word_table(model.model, model.tokenizer))
    return table


@dataclass(frozen=True, kw_only=True)
class AnalogyBody(Body):
    """A question "a is to b as c is to which word?".

    Attributes:
        a: a word.
        b: a word.
        c: a word.
        top: nearest words to name.
    """

    a: str
    b: str
    c: str
    top: Few = 8


def _analogy(served: Served, body: AnalogyBody) -> Compute:
    def compute() -> dict[str, Any]:
        found = _table(served).analogy(body.a, body.b, body.c, body.top)
        return {"nearest": [asdict(near) for near in found]}

    return compute


@dataclass(frozen=True, kw_only=True)
class CountsBody(Body):
    """A text whose n-grams are looked up.

    Attributes:
        text: the text, of at most 256 tokens.
        top: followers of each context to name.
    """

    text: str
    top: Few = 5


def _counts(served: Served, body: CountsBody) -> Compute:
    model = served.trained
    ids = _within(served, body.text)

    def compute() -> dict[str, Any]:
        whole = np.concatenate([model.prompt_prefix, ids])
        ways = table_of(model.model).back_off(whole, body.top)
        rows = []
        for n, way in enumerate(ways, 1):
            steps = []
            for step in way:
                context = whole[n - step.order + 1 : n].tolist()
                after = [_named(model, i) | {"nats": nats} for i, nats in step.after]
                names = [model.tokenizer.token(i) for i in context]
                steps.append({**asdict(step), "context": names, "after": after})
            nats = sum(step.nats for step in way)
            rows.append({**_named(model, int(whole[n])), "nats": nats, "steps": steps})
        return {"tokens": rows, "order": table_of(model.model).header.order}

    return compute


@dataclass(frozen=True, kw_only=True)
class PiecesBody(Body):
    """A text whose words are cut into pieces.

    Attributes:
        text: the text, of at most 4,096 characters.
    """

    text: str


def _pieces(served: Served, body: PiecesBody) -> Compute:
    if len(body.text) > MOST_CHARACTERS:
        raise TooLongError(f"text: has {len(body.text):,} characters; at most {MOST_CHARACTERS:,}")
    tokenizer = served.trained.tokenizer
    return lambda: {"words": [asdict(cut) for cut in tokenizer.cuts(body.text)]}


# -- what models can do ----------------------------------------------------------------------------


def _predicts(served: Served) -> None:
    if not served.trained.detects_replacements:
        served.trained.require_token_head()


def _writes(served: Served) -> None:
    decoding.starts_of(served.trained, [])


def _has_vectors(served: Served) -> None:
    if served.trained.is_count_based:
        raise served.trained.unable("has no vectors", NEURAL)


def _counts_ngrams(served: Served) -> None:
    if not served.trained.is_count_based:
        raise served.trained.unable("has no counts to back off to", "n-gram")


LOOKS = {
    "text": Look(TextBody, _read, _predicts, "Name what is expected at each token of a text"),
    "lens": Look(
        LensBody,
        _read,
        lambda served: reading.predicting_stack(served.trained),
        "Name what is expected at each token after each layer",
    ),
    "next": Look(NextBody, _next, _writes, "Give the probabilities of the next token"),
    "beam": Look(BeamBody, _beam, _writes, "Continue a text by beam search, with all its beams"),
    "alignment": Look(
        AlignmentBody,
        _align,
        lambda served: alignment.layer_of(served.trained),
        "Align the words of a source and its target",
    ),
    "attention": Look(
        AttentionBody,
        _attention,
        lambda served: self_attentions(served.trained),
        "Give the attention weights of a text",
    ),
    "word": Look(WordBody, _word, _has_vectors, "Name the words near a word, alone and in a text"),
    "analogy": Look(AnalogyBody, _analogy, _has_vectors, "Complete an analogy by word vectors"),
    "counts": Look(CountsBody, _counts, _counts_ngrams, "Show how an n-gram model backs off"),
    "pieces": Look(
        PiecesBody, _pieces, lambda served: served.trained, "Show how words were cut into pieces"
    ),
}
