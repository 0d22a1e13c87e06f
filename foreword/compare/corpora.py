"""Tokenizers and token shards that cells share: each is made once.

folder/  tokenizer-KIND.json tokenizer-KIND/   shards-KIND.json shards-KIND/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from foreword import kinds
from foreword.compare import results_cache
from foreword.data.fingerprint import fingerprint_text
from foreword.data.learning import train_tokenizer
from foreword.data.prepared_text import PreparedText
from foreword.data.read_documents import find_files
from foreword.data.text_files import ReadSettings
from foreword.data.write_shards import prepare
from foreword.runs.corpus import Stage, is_prepared, require_texts
from foreword.runs.recipe import Recipe
from foreword.text.tokenizer import Tokenizer


class Corpora:
    """The data of all cells.

    Args:
        texts: files, folders, patterns; or one folder that `prepare` wrote.
        folder: where to make tokenizers and shards.
        stage: told what is being made.
        heldout: files, folders, patterns to hold out; without them a share of `texts` is.
        read: how the cells read files.

    Raises:
        UserError: there are no such texts to hold out, or they are among `texts`.
    """

    def __init__(
        self,
        texts: Sequence[str],
        folder: Path,
        stage: Stage,
        heldout: Sequence[str] = (),
        read: Iterable[ReadSettings] = (),
    ) -> None:
        self._texts, self._folder, self._stage, self._heldout = texts, folder, stage, heldout
        for variant in set(read) if heldout else ():
            require_texts(texts, heldout, variant)
        self._fingerprints: dict[tuple[ReadSettings, bool], str] = {}
        self._shards: dict[Path, PreparedText] = {}

    def shards_for(self, recipe: Recipe) -> PreparedText:
        """The token shards for a recipe; their tokenizer stands in them.

        Raises:
            UserError: there is no text, too little of it, or the disk is full.
        """
        if is_prepared(self._texts):
            return self._load_prepared(Path(self._texts[0]))
        text, heldout = (self._fingerprint(recipe.read, is_heldout=held) for held in (False, True))
        tokenizer = self._tokenizer_for(recipe, text)
        settings = replace(recipe.prepare, workers=0)
        asked = results_cache.ShardsKey(settings, text, tokenizer.fingerprint, heldout)
        file = results_cache.find(self._folder.glob("shards-*.json"), asked)
        if file is None:
            name = f"shards-{kinds.name_of(recipe.tokenizer)}"
            file = results_cache.store(self._folder, name, asked)
        folder = file.with_suffix("")
        if folder not in self._shards:
            progress = self._stage("cutting text into tokens")
            self._shards[folder] = prepare(
                self._texts,
                tokenizer,
                folder,
                recipe.prepare,
                recipe.read,
                progress,
                self._heldout,
            )
        return self._shards[folder]

    def tokenizer_for(self, recipe: Recipe) -> Tokenizer:
        """The tokenizer of those token shards."""
        return Tokenizer.load(self.shards_for(recipe).tokenizer)

    def _load_prepared(self, folder: Path) -> PreparedText:
        if folder not in self._shards:
            self._shards[folder] = PreparedText.load(folder)
        return self._shards[folder]

    def _fingerprint(self, read: ReadSettings, *, is_heldout: bool) -> str:
        """Of the texts that are trained on, or of those given to be held out: "" where none are."""
        texts = self._heldout if is_heldout else self._texts
        if texts and (read, is_heldout) not in self._fingerprints:
            found = fingerprint_text(find_files(texts, None, read), read)
            self._fingerprints[read, is_heldout] = found
        return self._fingerprints.get((read, is_heldout), "")

    def _tokenizer_for(self, recipe: Recipe, text: str) -> Tokenizer:
        asked = results_cache.TokenizerKey(recipe.read, text, recipe.tokenizer)
        file = results_cache.find(self._folder.glob("tokenizer-*.json"), asked)
        if file is None:
            name = f"tokenizer-{kinds.name_of(recipe.tokenizer)}"
            file = results_cache.store(self._folder, name, asked)
        folder = file.with_suffix("")
        if (folder / "tokenizer.json").is_file():
            return Tokenizer.load(folder)
        tokenizer = train_tokenizer(recipe.tokenizer, self._texts, recipe.read, self._stage)
        tokenizer.save(folder)
        return tokenizer
