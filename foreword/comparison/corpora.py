"""Tokenizers and token shards, each made once and shared by the cells with equal settings.

folder/  tokenizer-KIND.json tokenizer-KIND/   shards-KIND.json shards-KIND/   validation-.../
         frequencies-OBJECTIVE.json: the loss of the frequencies of what it predicts

Of a mixture there are shards of each source, and one tokenizer for the sources of all cells, of
which it sees the same amount each: so their losses on a text are comparable, and a cell with other
weights changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from foreword.comparison.keys import FrequenciesKey, ShardsKey, TokenizerKey
from foreword.data.fingerprint import digest, fingerprint_text
from foreword.data.holdout import SplitFiles
from foreword.data.learning import train_on_sources, train_tokenizer
from foreword.data.prepared_text import PreparedText
from foreword.data.read_documents import find_files
from foreword.data.text_files import ReadSettings
from foreword.data.validation import split_validation
from foreword.data.write_shards import prepare
from foreword.disk import store, stored
from foreword.evaluation.baselines import unigram_loss
from foreword.runs.corpus import is_prepared, require_texts
from foreword.runs.recipe import Recipe
from foreword.runs.sources import given_tokenizer
from foreword.runs.stages import Stage
from foreword.settings import kinds
from foreword.text.tokenizer import Tokenizer


class Corpora:
    """The training data of all cells.

    Args:
        texts: files, folders, patterns; or one folder that `prepare` wrote.
        folder: where tokenizers and shards are written.
        stage: called with the name of each step.
        heldout: files, folders, patterns to hold out; default: a share of `texts`.
        read: the settings with which the cells read files.
        sources: the path of each source of the cells, by name; then `texts` are not read.

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
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self._texts, self._folder, self._stage, self._heldout = texts, folder, stage, heldout
        self._sources = dict(sorted((sources or {}).items()))
        for settings in set(read) if heldout else ():
            require_texts(texts, heldout, settings)
        self._fingerprints: dict[tuple[ReadSettings, tuple[str, ...]], str] = {}
        self._shards: dict[Path, PreparedText] = {}
        self._folders: dict[tuple[str, ...], Path] = {}  # of shards, by settings and texts

    def shards_for(self, recipe: Recipe) -> PreparedText:
        """Return the token shards for a recipe, which include their tokenizer.

        Raises:
            UserError: there is no text or too little of it, or the disk is full.
        """
        if not recipe.data.sources:
            return self._shards_of(recipe, self._texts)
        sources = {
            source.name: self.source_shards(recipe, source.name) for source in recipe.data.sources
        }
        return PreparedText.mixture(self._folder, sources)

    def has_read(self, recipe: Recipe) -> bool:
        """Return whether token shards of this text, or of one of its sources, have been made."""
        sides = [[path] for path in self._sources.values()] if self._sources else [[*self._texts]]
        heldout = self._fingerprint(recipe.read, self._heldout)
        texts = [(self._fingerprint(recipe.read, side), heldout) for side in sides]
        made = (stored.read(file)[store.KEY] for file in self._folder.glob("shards-*.json"))
        return any((key["text"], key.get("heldout", "")) in texts for key in made)

    def source_shards(self, recipe: Recipe, name: str) -> PreparedText:
        """Return the token shards of a source, of any cell, for a recipe.

        Raises:
            UserError: as `shards_for`.
        """
        return self._shards_of(recipe, [self._sources[name]], f"-{name}")

    def validation_for(self, recipe: Recipe) -> PreparedText:
        """Return shards whose held-out side is a validation part of the recipe's training side.

        Raises:
            UserError: there is too little text, or the disk is full.
        """
        shards = self.shards_for(recipe)
        if not shards.sources:
            return self._validation_of(shards)
        sources = {name: self._validation_of(source) for name, source in shards.sources.items()}
        return PreparedText.mixture(self._folder, sources)

    def tokenizer_for(self, recipe: Recipe) -> Tokenizer:
        """Return the tokenizer of the recipe's token shards."""
        return Tokenizer.load(self.shards_for(recipe).tokenizer)

    def unigram_loss(self, recipe: Recipe) -> float | None:
        """Return the loss of token frequencies on a recipe's predictions; None without one."""
        if recipe.model.trains_offline:  # counts themselves, which the key does not know
            return None
        shards, rows = self.shards_for(recipe), recipe.train.heldout_rows
        of = recipe.objective, recipe.layout, recipe.packing
        key = FrequenciesKey(shards.fingerprint, rows, *of)
        if (file := store.find(self._folder, key)) is None:
            watch, vocab = self._stage("counting tokens"), self.tokenizer_for(recipe).vocab
            found = {"loss": unigram_loss(recipe, vocab, shards, watch)}
            name = f"frequencies-{kinds.name_of(recipe.objective)}"
            file = store.publish(self._folder, name, key, found)
        loss: float | None = stored.read(file)["loss"]
        return loss

    def _shards_of(self, recipe: Recipe, texts: Sequence[str], name: str = "") -> PreparedText:
        """Return the token shards of some texts, whose files' names end in `name`."""
        if is_prepared(texts):
            return self._load_prepared(Path(texts[0]))
        # They may be known: finding them reads a tokenizer.
        settings = replace(recipe.prepare, workers=0)
        wanted = (*map(repr, (recipe.read, recipe.tokenizer, settings)), *texts)
        if wanted in self._folders:
            return self._shards[self._folders[wanted]]
        # Find the folder of these shards by what they are made of, or choose a new one.
        text, heldout = (self._fingerprint(recipe.read, side) for side in (texts, self._heldout))
        tokenizer = self._tokenizer_for(recipe)
        key = ShardsKey(settings, text, tokenizer.fingerprint, heldout)
        kind = kinds.name_of(recipe.tokenizer)
        folder = store.begin(self._folder, f"shards-{kind}{name}", key).with_suffix("")
        # Write the shards, unless `prepare` finds them there.
        if folder not in self._shards:
            progress = self._stage("cutting text into tokens")
            files = SplitFiles.find(texts, recipe.read, self._heldout)
            self._shards[folder] = prepare(files, tokenizer, folder, recipe.prepare, progress)
        self._folders[wanted] = folder
        return self._shards[folder]

    def _validation_of(self, shards: PreparedText) -> PreparedText:
        folder = self._folder / f"validation-{shards.fingerprint[:12]}"
        if folder not in self._shards:
            self._stage("drawing a validation part")
            self._shards[folder] = split_validation(shards, folder)
        return self._shards[folder]

    def _load_prepared(self, folder: Path) -> PreparedText:
        if folder not in self._shards:
            self._shards[folder] = PreparedText.load(folder)
        return self._shards[folder]

    def _fingerprint(self, read: ReadSettings, texts: Sequence[str]) -> str:
        """Return the fingerprint of texts; "" if there are none."""
        if texts and (read, tuple(texts)) not in self._fingerprints:
            fingerprint = fingerprint_text(find_files(texts, None, read), read)
            self._fingerprints[read, tuple(texts)] = fingerprint
        return self._fingerprints.get((read, tuple(texts)), "")

    def _tokenizer_for(self, recipe: Recipe) -> Tokenizer:
        """Return the recipe's tokenizer, trained if it is new; a prepared source's if there is one.

        It is trained on the texts, or on as much of each source.
        """
        paths = list(self._sources.values())
        if tokenizer_folder := given_tokenizer(paths):
            return Tokenizer.load(tokenizer_folder)
        texts = self._fingerprint(recipe.read, self._texts) if not paths else ""
        text = texts or digest([self._fingerprint(recipe.read, [path]) for path in paths])
        key = TokenizerKey(recipe.read, text, recipe.tokenizer)
        name = f"tokenizer-{kinds.name_of(recipe.tokenizer)}"
        folder = store.begin(self._folder, name, key).with_suffix("")
        if (folder / "tokenizer.json").is_file():
            return Tokenizer.load(folder)
        if paths:
            weighted = [(path, 1.0) for path in paths]
            tokenizer = train_on_sources(recipe.tokenizer, weighted, recipe.read, self._stage)
        else:
            tokenizer = train_tokenizer(recipe.tokenizer, self._texts, recipe.read, self._stage)
        tokenizer.save(folder)
        return tokenizer
