"""Tokenizers and token shards, each made once and shared by the cells with equal settings.

folder/  tokenizer-KIND.json tokenizer-KIND/   shards-KIND.json shards-KIND/   validation-.../
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from foreword import kinds
from foreword.comparison import results_cache
from foreword.data.fingerprint import fingerprint_text
from foreword.data.learning import train_tokenizer
from foreword.data.prepared_text import PreparedText
from foreword.data.read_documents import find_files
from foreword.data.text_files import ReadSettings
from foreword.data.validation import split_validation
from foreword.data.write_shards import prepare
from foreword.runs.corpus import is_prepared, require_texts
from foreword.runs.recipe import Recipe
from foreword.runs.stages import Stage
from foreword.text.tokenizer import Tokenizer


class Corpora:
    """The training data of all cells.

    Args:
        texts: files, folders, patterns; or one folder that `prepare` wrote.
        folder: where tokenizers and shards are written.
        stage: called with the name of each step.
        heldout: files, folders, patterns to hold out; default: a share of `texts`.
        read: the settings with which the cells read files.

    Raises:
        UserError: the held-out texts do not exist or are among `texts`.
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
        for settings in set(read) if heldout else ():
            require_texts(texts, heldout, settings)
        self._fingerprints: dict[tuple[ReadSettings, bool], str] = {}
        self._shards: dict[Path, PreparedText] = {}

    def shards_for(self, recipe: Recipe) -> PreparedText:
        """Return the token shards for a recipe, which include their tokenizer.

        Raises:
            UserError: there is no text or too little of it, or the disk is full.
        """
        if is_prepared(self._texts):
            return self._load_prepared(Path(self._texts[0]))
        # Find the folder of these shards by what they are made of, or choose a new one.
        text, heldout = (self._fingerprint(recipe.read, is_heldout=is_) for is_ in (False, True))
        tokenizer = self._tokenizer_for(recipe, text)
        settings = replace(recipe.prepare, workers=0)
        key = results_cache.ShardsKey(settings, text, tokenizer.fingerprint, heldout)
        file = results_cache.find(self._folder.glob("shards-*.json"), key)
        if file is None:
            name = f"shards-{kinds.name_of(recipe.tokenizer)}"
            file = results_cache.store(self._folder, name, key)
        folder = file.with_suffix("")
        # Write the shards, unless `prepare` finds them there.
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

    def validation_for(self, recipe: Recipe) -> PreparedText:
        """Return shards whose held-out side is a validation part of the recipe's training side.

        Raises:
            UserError: there is too little text, or the disk is full.
        """
        shards = self.shards_for(recipe)
        folder = self._folder / f"validation-{shards.fingerprint[:12]}"
        if folder not in self._shards:
            self._stage("drawing a validation part")
            self._shards[folder] = split_validation(shards, folder)
        return self._shards[folder]

    def tokenizer_for(self, recipe: Recipe) -> Tokenizer:
        """Return the tokenizer of the recipe's token shards."""
        return Tokenizer.load(self.shards_for(recipe).tokenizer)

    def _load_prepared(self, folder: Path) -> PreparedText:
        if folder not in self._shards:
            self._shards[folder] = PreparedText.load(folder)
        return self._shards[folder]

    def _fingerprint(self, read: ReadSettings, *, is_heldout: bool) -> str:
        """Return the fingerprint of the training or the held-out texts; "" if there are none."""
        texts = self._heldout if is_heldout else self._texts
        if texts and (read, is_heldout) not in self._fingerprints:
            fingerprint = fingerprint_text(find_files(texts, None, read), read)
            self._fingerprints[read, is_heldout] = fingerprint
        return self._fingerprints.get((read, is_heldout), "")

    def _tokenizer_for(self, recipe: Recipe, text: str) -> Tokenizer:
        """Return the recipe's tokenizer, trained if it is new; `text`: the texts' fingerprint."""
        key = results_cache.TokenizerKey(recipe.read, text, recipe.tokenizer)
        file = results_cache.find(self._folder.glob("tokenizer-*.json"), key)
        if file is None:
            name = f"tokenizer-{kinds.name_of(recipe.tokenizer)}"
            file = results_cache.store(self._folder, name, key)
        folder = file.with_suffix("")
        if (folder / "tokenizer.json").is_file():
            return Tokenizer.load(folder)
        tokenizer = train_tokenizer(recipe.tokenizer, self._texts, recipe.read, self._stage)
        tokenizer.save(folder)
        return tokenizer
