"""A tokenizer: text to ids and back, of any kind and origin."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Engine

from foreword.disk import atomic, manifest, stored
from foreword.errors import UserError
from foreword.settings.config import build
from foreword.text import special, utf8
from foreword.text.pieces import Pieces
from foreword.text.sample import TrainingSample
from foreword.text.trace import Cutter, WordCut
from foreword.text.words import is_joined
from foreword.types import Array, Vocab

KIND, VERSION = "tokenizer", 1  # of the folder, in its manifest
FILE = "tokenizer.json"
CONFIG = "tokenizer_config.json"
MOST = 1 << 24  # tokens of a vocabulary
GROWTH = 256  # the most characters that normalising, or decoding, may make of one
# Text that meets what is wrong only when a file is used: each character of the first plane.
PROBE = "".join(chr(c) for c in range(0x20, 0x10000) if not 0xD800 <= c < 0xE000)
_TRIED = set[str]()  # digests of the files that encoded it in this process
CHAT_TEMPLATE = "chat_template.jinja"  # beside them, of a model tuned on conversations


class Tokenizer:
    """A tokenizer: text to ids and back.

    In a *corpus*, `[MASK]` is six ordinary characters: text becomes a special token only with
    `special=True`, as in prompts.

    Args:
        engine: the `tokenizers` object that does the work; this object takes it over.
        roles: special tokens by role (`"mask_token"` -> `"<mask>"`); those not given are found by
            their usual spelling.
        kind: the kind and settings it was trained with, for the record.
        sample: the amount of text it was trained on.
        size: rows of the model's embedding, if more than there are tokens.
    """

    def __init__(
        self,
        engine: Engine,
        roles: Mapping[str, str] | None = None,
        kind: Mapping[str, Any] | None = None,
        sample: TrainingSample | None = None,
        size: int | None = None,
    ) -> None:
        engine.no_truncation()
        engine.no_padding()
        engine.encode_special_tokens = True
        self._engine = engine
        self._ids: dict[str, int] = engine.get_vocab(with_added_tokens=True)
        self._special = _find_special(self._ids, roles or {})
        self.kind = dict(kind or {})
        self.sample = sample
        tokens = max(self._ids.values()) + 1
        self._size = max(tokens, size or 0)
        if self._size > MOST:
            raise UserError(f"the tokenizer numbers its tokens to {self._size:,}, beyond {MOST:,}")
        self._is_padded = self._size > tokens

    # -- text and ids ------------------------------------------------------------------------------

    def encode(self, text: str, special: bool = False) -> Array:
        """Return the ids of `text`, (length,) int64; nothing is added before or after.

        Args:
            text: any text.
            special: whether names of special tokens in it become these tokens ("the [MASK] sat").
        """
        if special:
            ids = self._prompts.encode(text, add_special_tokens=False).ids
            return np.asarray(ids, dtype=np.int64)
        return np.asarray(self.encode_batch([text])[0], dtype=np.int64)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, on all cores; nothing is added before or after.

        Raises:
            UserError: a text is not valid Unicode.
        """
        try:
            encodings = self._engine.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            for number, text in enumerate(texts, 1):
                utf8.encode(text, f"text {number} of {len(texts)}")
            raise
        rows = [encoding.ids for encoding in encodings]
        return [self._without(row) for row in rows] if self._reachable else rows

    def encode_words(self, words: Sequence[str]) -> list[tuple[list[int], int]]:
        """Return the ids of each word, and which of them is the first that spells it.

        Args:
            words: each perhaps with a space before it, which may be a token of its own.
        """
        if not words:
            return []
        encoded = []
        for word, encoding in zip(
            words, self._engine.encode_batch(words, add_special_tokens=False), strict=True
        ):
            spaces = len(word) - len(word.lstrip(" "))
            ends = [end > spaces for _, end in encoding.offsets]
            encoded.append((self._without(encoding.ids), ends.index(True) if True in ends else 0))
        return encoded

    def encode_with_offsets(self, text: str, special: bool = False) -> tuple[Array, Array]:
        """Return the ids of `text` and the characters of each.

        The engine leaves out the marks that normalising composes with their letter, or drops: here
        they belong to the letter's token.

        Args:
            text: any text.
            special: as in `encode`.

        Returns:
            (length,) int64; first character and the one after the last, (length, 2) int64.
        """
        engine = self._prompts if special else self._engine
        encoding = engine.encode(text, add_special_tokens=False)
        ids = encoding.ids if special else self._without(encoding.ids)
        offsets = np.asarray(encoding.offsets, np.int64).reshape(-1, 2)
        following = np.append(offsets[1:, 0], len(text))
        for n in np.flatnonzero(offsets[:, 1] < following):
            while offsets[n, 1] < following[n] and is_joined(text[offsets[n, 1]]):
                offsets[n, 1] += 1
        return np.asarray(ids, np.int64), offsets

    def words(self, texts: Iterable[str]) -> Iterator[list[tuple[int, ...]]]:
        """Yield the words of each text, as the ids of their pieces."""
        for text in texts:
            encoding = self._engine.encode(text, add_special_tokens=False)
            words: dict[int | None, list[int]] = {}
            for number, i in zip(encoding.word_ids, encoding.ids, strict=True):
                words.setdefault(number, []).append(i)
            yield [tuple(word) for word in words.values()]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of `ids`, by default without the names of special tokens."""
        return self._engine.decode([int(i) for i in ids], skip_special_tokens=skip_special)

    def not_kept(self) -> tuple[str, ...]:
        """Return what of a text is lost when its tokens are decoded, beside what is [UNK]."""
        pieces = (self.decode([int(i)]).strip() for i in np.flatnonzero(~self.vocab.is_special))
        word = next((piece for piece in pieces if piece.isalnum()), "")
        normalizer = self._engine.normalizer
        normalised = normalizer.normalize_str if normalizer else str
        kept = {
            "line breaks": self._gives_back(f"{word}\n{word}"),
            "tabs": self._gives_back(f"{word}\t{word}"),
            "spaces in a row": self._gives_back(f"{word}  {word}"),
            "capital letters": normalised("A") != "a",
            "accents and vowel signs": normalised("कु") == "कु",
        }
        return tuple(name for name, is_kept in kept.items() if not is_kept)

    def _gives_back(self, text: str) -> bool:
        ids = self.encode(text)
        has_unknown = (ids == self.vocab.special.get(special.UNK)).any()
        return bool(has_unknown or self.decode(ids) == text)

    def token(self, id: int) -> str:  # noqa: A002 - the plain word
        """Return the piece of `id` in readable form; a space shows as `·`.

        Raises:
            UserError: there is no such id.
        """
        if not 0 <= id < self.vocab.size:
            raise UserError(f"there is no token {id}: the vocabulary has {self.vocab.size:,}")
        return self._pieces.readable(id)

    def cuts(self, text: str) -> list[WordCut]:
        """Return how each word of a text is cut into pieces, step by step."""
        engine, shown = self._engine, self._pieces.shown
        if engine.normalizer is not None:
            text = engine.normalizer.normalize_str(text)
        splitter = engine.pre_tokenizer
        words = [text] if splitter is None else [w for w, _ in splitter.pre_tokenize_str(text)]
        cuts = []
        for word in words:
            pieces = tuple(token.value for token in engine.model.tokenize(word))
            cuts.append(self._cutter.cut(word, pieces).shown(shown))
        return cuts

    @cached_property
    def _cutter(self) -> Cutter:
        return Cutter(json.loads(self._engine.to_str())["model"])

    def name_of(self, special_name: str) -> str | None:
        """Return this tokenizer's spelling of the special token `special_name`, or None."""
        i = self._special.get(special_name)
        return None if i is None else self._pieces.text[i]

    # -- what it is --------------------------------------------------------------------------------

    @cached_property
    def vocab(self) -> Vocab:
        """The vocabulary, as objectives and packings use it."""
        size = self._size
        numbers = {special.sentinel_number(token): i for token, i in self._ids.items()}
        numbers.pop(None, None)
        sentinels = np.array([i for _, i in sorted(numbers.items())], dtype=np.int64)
        is_special = np.zeros(size, dtype=bool)
        is_special[[i for i, t in self._engine.get_added_tokens_decoder().items() if t.special]] = 1
        is_special[list(self._special.values())] = True
        is_special[sentinels] = True
        is_special[[not piece for piece in self._pieces.text]] = True  # ids that no token has
        starts_word = self._pieces.starts_word() | is_special
        spellings = self._pieces.spellings()
        return Vocab(size, dict(self._special), sentinels, is_special, starts_word, spellings)

    @property
    def pieces(self) -> list[str]:
        """The engine's pieces by id; "" for an id without a token."""
        return list(self._pieces.text)

    def to_str(self) -> str:
        """Return all its parts, as in `tokenizer.json`."""
        state: str = self._engine.to_str()
        return state

    @property
    def model_name(self) -> str:
        """The model's name in the `tokenizers` library: WordPiece, BPE, Unigram, WordLevel."""
        return type(self._engine.model).__name__

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all parts that determine the ids, equal for tokenizers that give equal ids."""
        parts = json.loads(self._engine.to_str())
        parts["post_processor"] = None  # puts special tokens around; here the packing does
        return atomic.digest(json.dumps(parts, sort_keys=True))

    def require(self, names: Iterable[str], sentinels: int = 0) -> None:
        """Check that the special tokens `names` and `sentinels` sentinels exist.

        Raises:
            UserError: the tokenizer lacks some of them.
        """
        lacking = [name for name in names if name not in self._special]
        if len(self.vocab.sentinels) < sentinels:
            lacking.append(f"{sentinels} sentinels (it has {len(self.vocab.sentinels)})")
        if lacking:
            raise UserError(
                f"the tokenizer lacks what the objective needs: {', '.join(lacking)}; "
                "train one with 'foreword tokenizer train'"
            )

    # -- on disk -----------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write the `tokenizer_config.json` that `transformers` reads, and `tokenizer.json`.

        The last marks a complete tokenizer; a manifest of the two follows it.

        Raises:
            UserError: the folder cannot be written.
        """
        folder = Path(folder)
        roles = {role: self.name_of(name) for role, name in special.ROLES.items()}
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{role: token for role, token in roles.items() if token is not None},
            "extra_special_tokens": [self._pieces.text[i] for i in self.vocab.sentinels],
            "clean_up_tokenization_spaces": False,
            "foreword": {
                **self.kind,
                **({"size": self._size} if self._is_padded else {}),
                "sample": asdict(self.sample) if self.sample else None,
            },
        }
        config_text = stored.to_json(config, indent=2) + "\n"
        if (folder / manifest.FILE).is_file():
            (folder / manifest.FILE).unlink()
        atomic.write_text(folder / CONFIG, config_text)
        atomic.write_text(folder / FILE, self._engine.to_str(pretty=True) + "\n")
        manifest.write(folder, KIND, VERSION, (CONFIG, FILE))

    @classmethod
    def load(
        cls,
        path: str | Path,
        roles: Mapping[str, str] | None = None,
        size: int | None = None,
        *,
        is_part: bool = False,
    ) -> Tokenizer:
        """Load a tokenizer, ours or one made elsewhere, from its folder or `tokenizer.json`.

        Args:
            path: the folder or the file.
            roles: special tokens by role, if the folder does not give them.
            size: rows of the model's embedding, if the folder does not give them.
            is_part: whether it is the folder of a run's or tuned model's own tokenizer.

        Raises:
            UserError: it is missing or broken.
        """
        path = Path(path)
        file = path / FILE if path.is_dir() else path
        if not file.is_file():
            if is_part:
                raise UserError(f"{file}: is missing; restore it from a copy of {path.parent}")
            raise UserError(f"{path}: there is no {FILE}; 'foreword tokenizer train' makes one")
        if file.name == FILE and manifest.is_of(file.parent, KIND):
            manifest.verify(file.parent, KIND, VERSION, (CONFIG, FILE))
        with _broken(file), _silent():
            text = file.read_text(encoding="utf-8")
            engine = Engine.from_str(text)
            _require_bounded(engine)
            if (digest := atomic.digest(text)) not in _TRIED:
                engine.encode(PROBE, add_special_tokens=False)
                _TRIED.add(digest)
        config: dict[str, Any] = {}
        if (config_file := file.with_name(CONFIG)).is_file():
            config = stored.read(config_file, is_foreign=True)
        with _broken(config_file):
            kind = dict(config.get("foreword") or {})
            by_role = config | kind.pop("roles", {})
            stored_roles = {
                role: token for role in special.ROLES if (token := _content(by_role.get(role)))
            }
            counts = kind.pop("sample", None)
            sample = build(TrainingSample, counts, "sample") if counts else None
            size = kind.pop("size", size)
        with _broken(file):
            return cls(engine, {**(roles or {}), **stored_roles}, kind, sample, size)

    # -- within ------------------------------------------------------------------------------------

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces.of(self._engine, self._size)

    @cached_property
    def _prompts(self) -> Engine:
        """A second engine, for text in which names of special tokens become these tokens."""
        return Engine.from_str(self._engine.to_str())

    @cached_property
    def _reachable(self) -> frozenset[int]:
        """Special tokens that plain text can become, although it must not.

        Ours cannot; some made elsewhere list `</s>` among the pieces that their model may choose.
        """
        ids = np.flatnonzero(self.vocab.is_special)
        names = [self._pieces.text[i] for i in ids]
        encodings = self._engine.encode_batch_fast(
            [text for name in names for text in (name, f"x{name} x")], add_special_tokens=False
        )
        unknown = self.vocab.special.get(special.UNK)
        reached = {i for encoding in encodings for i in encoding.ids} & set(ids.tolist())
        return frozenset(reached - {unknown})

    def _without(self, ids: list[int]) -> list[int]:
        """Return `ids` with the special tokens that plain text became replaced by [UNK]."""
        reached = self._reachable
        if reached.isdisjoint(ids):
            return ids
        unknown = self.vocab.id(special.UNK)
        return [unknown if i in reached else i for i in ids]


def _find_special(ids: Mapping[str, int], roles: Mapping[str, str]) -> dict[str, int]:
    """Return the special tokens by our names, found by role, else by their usual spelling."""
    ids_by_name = {}
    for role, name in special.ROLES.items():
        for spelling in (roles.get(role), name, *special.SPELLINGS.get(name, ())):
            if spelling is not None and spelling in ids:
                ids_by_name[name] = ids[spelling]
                break
    return ids_by_name


def _content(token: Any) -> str | None:
    """Return a special token's text: `transformers` writes a string or a table with `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    if text is not None and not isinstance(text, str):
        raise ValueError(f"a special token is not text but {text!r:.40}")
    return text


def _require_bounded(engine: Engine) -> None:
    """Check that no short text becomes one that fills the memory."""
    for part in (engine.normalizer, engine.decoder):
        if part is not None and (growth := _growth(json.loads(part.__getstate__()))) > GROWTH:
            raise ValueError(f"its replacements make up to {growth:,} characters of one")


def _growth(part: Any) -> int:
    """Return the most characters that the replacements of a part of the engine make of one."""
    steps = part.get("normalizers") or part.get("decoders") or ()
    made = [part.get("content") or ""]
    if charsmap := part.get("precompiled_charsmap"):  # a trie, with its size before it, and texts
        data = base64.b64decode(charsmap)
        made += data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
    return math.prod(map(_growth, steps)) * max(1, *map(len, made))


@contextmanager
def _silent() -> Iterator[None]:
    """Keep off the screen what native code writes before it raises an error."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


@contextmanager
def _broken(file: Path) -> Iterator[None]:
    """Turn errors of reading `file` (the engine raises bare `Exception`) into one line."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = str(error).partition("\n")[0]
        raise UserError(f"{file}: not a tokenizer that can be read: {reason}") from error
