"""What the dial goes by: the speed and memory of this machine, and the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foreword.data.prepared_text import PreparedText
from foreword.data.read_documents import ReadCounts, find_files, read_documents
from foreword.data.text_files import ReadSettings
from foreword.errors import VocabSizeError
from foreword.planning.dial import FAMILIES, Conditions, Dial, dial
from foreword.runs.corpus import is_prepared
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.sizes import memory_of
from foreword.text import utf8, words
from foreword.text.tokenizer import Tokenizer
from foreword.train.device import choose_device, choose_precision, matmul_flops_per_second

SAMPLE_BYTES = 4_000_000  # of text, read to estimate how much there is
SAMPLE_OF_TOKEN = 256  # bytes of text for each token of a vocabulary that is tried


def local_dial(
    family: str,
    hours: float,
    texts: Sequence[str],
    tokenizer: str | None = None,
    settings: Sequence[str] = (),
    reading: Mapping[str, Any] | None = None,
) -> Dial:
    """Return the dial of a family on this machine and this text; see `dial_of_text`."""
    recipe = load_recipe(FAMILIES[family].small, _relevant(settings))
    return dial_of_text(machine(family, hours, recipe), texts, tokenizer, settings, reading)


def dial_of_text(
    conditions: Conditions,
    texts: Sequence[str],
    tokenizer: str | None = None,
    settings: Sequence[str] = (),
    reading: Mapping[str, Any] | None = None,
) -> Dial:
    """Return the dial of conditions that yet lack the text.

    Args:
        conditions: family, budget and machine.
        texts: files, folders, globs; or a folder of prepared text.
        tokenizer: its folder; None to train one.
        settings: `--set` assignments, of which device, precision and reading matter.
        reading: settings of reading text that override the recipe's.

    Raises:
        UserError: there is no such text, device or tokenizer, or a setting is wrong.
    """
    recipe = load_recipe(conditions.law.small, _relevant(settings))
    read = replace(recipe.read, **(reading or {}))
    tokenizer_folder = tokenizer
    if tokenizer_folder is None and is_prepared(texts):
        tokenizer_folder = str(PreparedText.load(Path(texts[0])).tokenizer)
    lengths = None
    if not is_prepared(texts):
        lengths = document_tokens(texts, read, conditions.law.rules.bytes_per_token)
    conditions = replace(
        conditions,
        text_bytes=text_bytes(texts, read),
        document_tokens=lengths,
        bytes_per_token=known_bytes_per_token(texts),
    )
    if tokenizer_folder is not None:
        size = Tokenizer.load(tokenizer_folder).vocab.size
        return dial(replace(conditions, vocab=size, vocab_reason="of the given tokenizer"))
    result = dial(conditions)
    if any(text.strip().startswith("tokenizer") for text in settings):
        return result
    return _with_supported_vocab(result, texts, read)


def _relevant(settings: Sequence[str]) -> list[str]:
    """Return the assignments that matter before there is a recipe."""
    parts = ("train", "read", "tokenizer")
    return [text for text in settings if text.strip().partition(".")[0] in parts]


def machine(family: str, hours: float, recipe: Recipe) -> Conditions:
    """Return conditions with the speed and memory of the recipe's device, and endless text.

    Raises:
        UserError: there is no such device here.
    """
    device = choose_device(recipe.train.device, "train.device")
    dtype = choose_precision(recipe.train.precision, device)
    speed = matmul_flops_per_second(device, dtype)
    return Conditions(family, hours, speed, 1e15, memory_of(device))


def text_bytes(texts: Sequence[str], read: ReadSettings) -> float:
    """Return the bytes of a text, estimated from its beginning if it is long.

    Files of each ending are estimated by their own, since compressed ones hold several times their
    size.

    Raises:
        UserError: there is no such text, or it cannot be read.
    """
    if is_prepared(texts):
        return float(PreparedText.load(Path(texts[0])).counts["train"].bytes)
    by_ending: dict[str, list[Path]] = {}
    for file in find_files(texts, None, read):
        by_ending.setdefault(file.suffix.lower(), []).append(file)
    return sum(_bytes_of(files, read) for files in by_ending.values())


def known_bytes_per_token(texts: Sequence[str]) -> float:
    """Return the bytes per token of prepared text; 0 of other text."""
    if not is_prepared(texts):
        return 0.0
    return PreparedText.load(Path(texts[0])).bytes_per_token("train")


def _bytes_of(files: Sequence[Path], read: ReadSettings) -> float:
    """Return the bytes of text in files of one ending."""
    counts = ReadCounts()
    for _ in read_documents(files, read, counts):
        if counts.bytes >= SAMPLE_BYTES:
            return counts.total_bytes(sum(file.stat().st_size for file in files))
    return float(counts.bytes)


def document_tokens(
    texts: Sequence[str], read: ReadSettings, bytes_per_token: float
) -> tuple[float, float] | None:
    """Return the tokens of the median and of the longest document but 5 %, of a beginning."""
    sizes = [utf8.size(text) for text in _beginning(texts, read, SAMPLE_BYTES)]
    if not sizes:
        return None
    median, longest = np.quantile(sizes, (0.5, 0.95)) / bytes_per_token
    return float(median), float(longest)


def _with_supported_vocab(result: Dial, texts: Sequence[str], read: ReadSettings) -> Dial:
    """Return the dial with a vocabulary that the text supports.

    The bytes of a text do not tell how many different pieces it has. Where its words and letters
    leave a doubt, a tokenizer is trained on its beginning.
    """
    trainer = result.recipe().tokenizer
    sample = list(_beginning(texts, read, SAMPLE_OF_TOKEN * trainer.vocab))
    if _is_certain(sample, trainer.vocab):
        return result
    try:
        fitting = trainer.train(sample).vocab.size
    except VocabSizeError as error:
        fitting = error.fitting
    if fitting == trainer.vocab:
        return result
    bound = "most" if fitting < trainer.vocab else "least"
    reason = f"the {bound} that this text supports"
    return dial(replace(result.conditions, vocab=fitting, vocab_reason=reason))


def _is_certain(texts: Sequence[str], vocab: int) -> bool:
    """Return whether texts have words for a vocabulary, and a vocabulary has room for letters."""
    counts = Counter(word for text in texts for word in words.split(text) if len(word) > 1)
    letters = set[str]().union(*texts)
    repeated = sum(count > 1 for count in counts.values())
    return repeated >= vocab / 2 and len(letters) <= vocab / 4


def _beginning(texts: Sequence[str], read: ReadSettings, size: int) -> Iterator[str]:
    """Yield the documents that begin in the first `size` bytes of text, the last one cut."""
    for document in read_documents(texts, read):
        text = document.text[:size]
        yield text
        size -= utf8.size(text)
        if size <= 0:
            return
