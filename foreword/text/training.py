"""Shared parts of the training of every kind of tokenizer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any

from annotated_types import Interval
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from foreword.errors import UserError, VocabSizeError
from foreword.formatting import byte_size
from foreword.settings import kinds
from foreword.settings.ranges import LARGEST
from foreword.text import special
from foreword.text.sample import TrainingSample
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
        texts: to train it on.
        trainer: the engine's own.
        sample: the amount of these texts.
        note: takes how much is read, and what comes then, of which the engine reports nothing.

    The engine's own code handles no signals for minutes. So it runs in a daemon thread, which is
    abandoned when this one is interrupted; see `foreword.cli._process.leave`.
    """
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
    """Summarise the training text, and a vocabulary smaller than requested; "" if unknown.

    Vocabularies of words and characters are smaller if the text has fewer.
    """
    if tokenizer.sample is None:
        return ""
    requested, size = tokenizer.kind.get("vocab", 0), tokenizer.vocab.size
    fewer = (
        f"; a vocabulary of {requested:,} requested, the text has {size:,}"
        if size < requested
        else ""
    )
    return f"{tokenizer.sample}{fewer}{_mostly_characters(tokenizer)}"


def _mostly_characters(tokenizer: Tokenizer) -> str:
    """Return a remark on a vocabulary with little room for anything but single characters."""
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


def require_vocab(tokenizer: Tokenizer, vocab: int) -> Tokenizer:
    """Check that the vocabulary has exactly the requested size.

    Raises:
        VocabSizeError: the text supports fewer tokens, or has too many characters.
    """
    size = tokenizer.vocab.size
    if size > vocab:
        raise VocabSizeError(
            f"tokenizer.vocab: {vocab:,} is too small for this text, whose single characters and "
            f"the special tokens are {size:,}; use tokenizer.vocab={size} or more",
            size,
        )
    if size < vocab:
        raise VocabSizeError(
            f"tokenizer.vocab: {vocab:,} requested, but this text supports only {size:,}; "
            f"use tokenizer.vocab={size} or give more text",
            size,
        )
    return tokenizer
