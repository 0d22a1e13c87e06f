"""Shared parts of the training of every kind of tokenizer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any

from annotated_types import Interval
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from foreword.errors import UserError, VocabSizeError
from foreword.formatting import byte_size
from foreword.settings import kinds
from foreword.settings.ranges import LARGEST
from foreword.text import special
from foreword.text.sample import LONGEST, TrainingSample
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import unheard

# By default the alphabet covers all but one character in ten thousand. In a Wikipedia most
# *distinct* characters occur in names in other scripts, and would displace thousands of pieces.
COVERAGE = 0.9999
Coverage = Annotated[float, Interval(gt=0, le=1)]


# The special tokens and one more, or each byte.
Vocab = Annotated[int, Interval(ge=len(special.ALL) + 1, le=LARGEST)]
ByteVocab = Annotated[int, Interval(ge=len(special.ALL) + 256, le=LARGEST)]


def special_tokens(joins_left: bool = True) -> list[AddedToken]:
    """Return the special tokens, the first ids of a vocabulary.

    Args:
        joins_left: whether [MASK] and the sentinels include the space before them, as the words
            that they replace do.
    """
    replaces_text = {special.MASK, *special.SENTINELS}
    return [
        AddedToken(name, special=True, lstrip=joins_left and name in replaces_text)
        for name in special.ALL
    ]


def assemble(
    model: models.Model,
    normalizer: normalizers.Normalizer | None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    decoder: decoders.Decoder | None,
) -> Engine:
    """Assemble a tokenizer engine from its parts."""
    engine = Engine(model)
    if normalizer is not None:
        engine.normalizer = normalizer
    if pre_tokenizer is not None:
        engine.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        engine.decoder = decoder
    return engine


def learn(
    engine: Engine,
    texts: Iterable[str],
    trainer: Any,
    sample: TrainingSample,
    note: Callable[[str], None] = unheard,
) -> None:
    """Train an engine so that an interrupt ends it at once.

    Args:
        engine: assembled, and changed.
        texts: the texts to train it on.
        trainer: the engine's own.
        sample: the amount of these texts.
        note: takes how much is read, and what comes then, of which the engine reports nothing.

    The engine's own code handles no signals for minutes. So it runs in a daemon thread, which is
    abandoned when this one is interrupted; see `foreword.cli._process.leave`.
    """
    whole = engine.pre_tokenizer
    if sample.has_long_words:  # each merge would copy them; what is encoded is never cut
        cut = pre_tokenizers.Split(Regex(rf"[\s\S]{{{LONGEST}}}"), "isolated")
        engine.pre_tokenizer = pre_tokenizers.Sequence([whole, cut])
    total = byte_size(sample.bytes_kept)
    is_abandoned, failed = threading.Event(), list[BaseException]()

    def read_on() -> Iterator[str]:
        done = 0
        for text in texts:
            if is_abandoned.is_set():
                return
            yield text
            done += len(text.encode())
            note(f"{byte_size(done)} of {total} read")
        note("choosing the vocabulary")

    def work() -> None:
        try:
            engine.train_from_iterator(read_on(), trainer)
        except BaseException as error:  # raised again below
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
        thread.join()
    except BaseException:
        is_abandoned.set()
        if thread.ident is not None:
            thread.join(1.0)  # while still reading it ends by itself
        raise
    if failed:
        raise failed[0]
    engine.pre_tokenizer = whole


def finish(engine: Engine, settings: Any, sample: TrainingSample | None) -> Tokenizer:
    """Return the tokenizer around a trained `engine`, with its settings and sample.

    Raises:
        UserError: nothing was learned.
    """
    if engine.get_vocab_size() <= len(special.ALL):
        raise UserError("not enough text to train a tokenizer; give more text")
    assert is_dataclass(settings) and not isinstance(settings, type)
    kind = {"kind": kinds.name_of(settings), **asdict(settings)}
    return Tokenizer(engine, kind=kind, sample=sample)


def describe(tokenizer: Tokenizer) -> str:
    """Summarise the training text, and a vocabulary smaller than requested; "" if unknown."""
    if tokenizer.sample is None:
        return ""
    requested, size = tokenizer.kind.get("vocab", 0), tokenizer.vocab.size
    fewer = (
        f"; a vocabulary of {requested:,} requested, the text has {size:,}"
        if size < requested
        else ""
    )
    return f"{tokenizer.sample}{fewer or _mostly_characters(tokenizer)}"


def _mostly_characters(tokenizer: Tokenizer) -> str:
    """Return a remark on a vocabulary with little room for anything but single characters."""
    if tokenizer.kind.get("kind") == "bpe":
        return _idle_bytes(tokenizer.pieces[len(special.ALL) :])
    if "coverage" not in tokenizer.kind:
        return ""
    size, prefix = tokenizer.vocab.size, tokenizer.kind.get("kind") == "wordpiece"
    pieces = (tokenizer.token(n) for n in range(len(special.ALL), size))
    characters = sum(len(piece.removeprefix("##") if prefix else piece) == 1 for piece in pieces)
    if 2 * characters <= size - len(special.ALL):
        return ""
    return (
        f"; {characters:,} of its {size:,} tokens are single characters; a larger tokenizer.vocab "
        "has room for words"
    )


def _idle_bytes(pieces: list[str]) -> str:
    """Return a remark on the rows of bytes that a text of few symbols never has."""
    merged = set("".join(piece for piece in pieces if len(piece) > 1))
    idle = sum(len(piece) == 1 and piece not in merged for piece in pieces)
    if 3 * idle < len(pieces):
        return ""
    return (
        f"; {idle:,} of its tokens are bytes that no longer piece has, and may never occur; "
        "tokenizer.kind=char has a row for each symbol of the text alone"
    )


def require_vocab(tokenizer: Tokenizer, vocab: int) -> Tokenizer:
    """Check that the vocabulary is not larger than requested; of little text it is smaller.

    Raises:
        VocabSizeError: the text has too many characters.
    """
    size = tokenizer.vocab.size
    if size > vocab:
        raise VocabSizeError(
            f"tokenizer.vocab: {vocab:,} is too small for this text, whose single characters and "
            f"the special tokens are {size:,}; use tokenizer.vocab={size} or more",
            size,
        )
    return tokenizer
