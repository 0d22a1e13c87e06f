"""The text of a run: its tokenizer and token shards, made if they do not exist."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from foreword.data.holdout import SplitFiles, require_parts
from foreword.data.learning import train_on_sources, train_tokenizer
from foreword.data.packing.pairs import ONE_SENTENCE
from foreword.data.prepared_text import HELDOUT, MANIFEST, TRAIN, PreparedText, data_warnings
from foreword.data.read_documents import ReadSettings, find_files, read_documents
from foreword.data.write_shards import prepare
from foreword.disk import manifest
from foreword.errors import UserError, quoted_command
from foreword.runs import sources
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import Run
from foreword.runs.stages import Stage
from foreword.settings import kinds
from foreword.text import sentences
from foreword.text.tokenizer import Tokenizer
from foreword.text.training import describe
from foreword.train import checkpoint

SHARDS = "shards"  # in a run folder, unless the run reads shards from elsewhere
_PIECE = 1 << 16  # characters encoded at once
_LONG_TOKEN = 64  # bytes of a file, more than a token takes on average


def require_text(recipe: Recipe, texts: Sequence[str], heldout: Sequence[str] = ()) -> None:
    """Check that the text, or that of each source, exists and has the form that packing requires.

    Args:
        recipe: recipe of the run.
        texts: the text; of a recipe with sources, the path of each.
        heldout: text to hold out.

    Raises:
        UserError: a text is missing, trained on twice or also held out, or not of that form.
    """
    if not recipe.data.sources:
        require_texts(texts, heldout, recipe.read)
        require_form(recipe, texts)
        return
    if heldout:
        raise UserError(
            "--heldout: a share of each source of data.sources is held out; give a share, such as "
            "--heldout 0.01"
        )
    sources.require_sources(recipe, texts)
    for text in texts:
        require_form(recipe, [text])


def require_texts(
    texts: Sequence[str], heldout: Sequence[str] = (), read: ReadSettings | None = None
) -> None:
    """Check that the texts exist and that none is both trained on and held out.

    Raises:
        UserError: a text is missing, or on both sides.
    """
    if not is_prepared(texts):
        SplitFiles.find(texts, read, heldout)
    elif heldout:
        raise UserError(
            f"--heldout: {texts[0]} already has a held-out split; 'foreword prepare --heldout' "
            "makes token shards with your own"
        )


def require_form(recipe: Recipe, texts: Sequence[str]) -> None:
    """Check that a recipe reads text in the form that its packing requires.

    Raises:
        UserError: a packing of pairs gets no pairs, or prepared text is not the share of it that is
            asked for; the setting is named.
    """
    if is_prepared(texts):  # with settings of its own
        settings = PreparedText.load(texts[0], verify=False).manifest["settings"]
        for name, share in recipe.prepare.of_training.items():
            if share != settings.get(name):
                raise UserError(
                    f"prepare.{name}: {texts[0]} was prepared with another share; name the text "
                    "files"
                )
        return
    if recipe.packing.needs_pairs and not recipe.read.target:
        raise UserError(
            f"read.target: packing '{kinds.name_of(recipe.packing)}' requires parallel text; name "
            "its sides, as in --field en --target de with files NAME.en and NAME.de, or with two "
            "fields of JSON lines"
        )
    if recipe.packing.labels_pairs and not (recipe.prepare.sentences or recipe.read.target):
        raise UserError(
            f"prepare.sentences: packing '{kinds.name_of(recipe.packing)}' makes pairs of the "
            "sentences of a document, and false does not split it; set prepare.sentences=true"
        )


def require_sentences(recipe: Recipe, texts: Sequence[str], heldout: Sequence[str] = ()) -> None:
    """Check that the text can be split, and has two sentences if the packing makes pairs of them.

    The text is read up to the first document that shows it.

    Raises:
        UserError: all documents have one sentence, or a file cannot be read.
    """
    read = recipe.read
    if is_prepared(texts):
        return
    if recipe.packing.labels_pairs and not read.target:
        _require_two_sentences(recipe, texts)
    if recipe.prepare.heldout and not (heldout or recipe.data.sources):
        require_parts(read_documents(texts, read), is_whole=bool(read.target))


def _require_two_sentences(recipe: Recipe, texts: Sequence[str]) -> None:
    read = recipe.read
    if _size(texts, read) <= _LONG_TOKEN * recipe.packing.length:
        return  # too little text in any case; a later check says so
    for document in read_documents(texts, read):
        if len(list(itertools.islice(sentences.iterate([document.text]), 2))) > 1:
            return
    more = f" and {len(texts) - 1} more" if texts[1:] else ""
    raise UserError(f"{texts[0]}{more}: {ONE_SENTENCE}")


@dataclass(frozen=True)
class _Part:
    """The text of one source, or all of a run's text; its shards are its own or given.

    Attributes:
        name: the name of the source; "" for all of the text.
        texts: files, folders, globs; or a folder of shards.
        own: where the run puts shards of it.
    """

    name: str
    texts: Sequence[str]
    own: Path

    @property
    def shards(self) -> Path:
        """The folder of its shards."""
        return Path(self.texts[0]) if is_prepared(self.texts) else self.own


def _parts(recipe: Recipe, texts: Sequence[str], folder: Path) -> list[_Part]:
    """Return the parts of a run's text; text without sources is one."""
    if not recipe.data.sources:
        return [_Part("", texts, folder)]
    pairs = zip(recipe.data.sources, texts, strict=True)
    return [_Part(source.name, [text], folder / source.name) for source, text in pairs]


def parts_of(run: Run) -> list[_Part]:
    """Return the parts of a run's text: its sources, or all of it."""
    return _parts(run.recipe, run.noted.get("texts") or [], run.folder / SHARDS)


def _load(parts: Sequence[_Part], folder: Path) -> PreparedText:
    prepared = {part.name: PreparedText.load(part.shards) for part in parts}
    return prepared[""] if "" in prepared else PreparedText.mixture(folder, prepared)


def corpus(run: Run, stage: Stage) -> tuple[Tokenizer, PreparedText]:
    """Return the run's tokenizer and shards, made if they do not exist.

    Raises:
        UserError: the text is missing, of another tokenizer, or a single token repeated.
    """
    recipe, texts, folder = run.recipe, run.noted.get("texts"), run.folder / SHARDS
    if not texts:
        again = quoted_command("pretrain", "RECIPE", "--from", run.folder, "--data", "TEXT")
        raise UserError(
            f"{run.folder}: was imported and has no training text; {again} starts a run from its "
            "weights"
        )
    tokenizer, parts = _tokenizer(run, texts, stage), _parts(recipe, texts, folder)
    has_begun = bool(checkpoint.all_in(run.folder))
    for part in parts:
        # Given, or the run's own, whose text may have been removed.
        if sources.is_prepared(str(part.shards)) and (has_begun or part.shards != part.own):
            continue
        _require_row(recipe, part.own / TRAIN, tokenizer, part.texts)
        progress = stage(f"cutting text {f'of {part.name} ' if part.name else ''}into tokens")
        heldout = run.noted.get("heldout", ())
        files = SplitFiles.find(part.texts, recipe.read, heldout)
        prepare(files, tokenizer, part.own, recipe.prepare, progress)
    prepared = _load(parts, folder)
    for name, one in (prepared.sources or {"": prepared}).items():
        if one.manifest["tokenizer"]["fingerprint"] != tokenizer.fingerprint:
            what = f"the shards of source '{name}'" if name else "these shards"
            raise UserError(f"{one.folder}: {what} were made with another tokenizer")
    if prepared.train.tokens_total:
        prepared.train.require_variety()
    return tokenizer, prepared


def _tokenizer(run: Run, texts: Sequence[str], stage: Stage) -> Tokenizer:
    """Return the run's tokenizer, the given one or that of given shards, or one made for it."""
    recipe, folder = run.recipe, run.folder / "tokenizer"
    if (folder / "tokenizer.json").is_file():
        tokenizer = Tokenizer.load(folder)
        if not (folder / manifest.FILE).is_file():  # killed just before it was written
            tokenizer.save(folder)
        return tokenizer
    given = run.noted.get("tokenizer") or sources.given_tokenizer(texts)
    if given is not None:
        tokenizer = Tokenizer.load(given)
    elif recipe.data.sources:
        sizes = [float(_size([text], recipe.read)) for text in texts]
        weights = zip(texts, sources.mean_weights(recipe, sizes), strict=True)
        weighted = [(text, weight) for text, weight in weights if weight]
        tokenizer = train_on_sources(recipe.tokenizer, weighted, recipe.read, stage)
    else:
        require_sentences(recipe, texts, run.noted.get("heldout", ()))
        tokenizer = train_tokenizer(recipe.tokenizer, texts, recipe.read, stage)
    tokenizer.save(folder)
    return tokenizer


def _require_row(recipe: Recipe, shards: Path, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Check that the text of shards fills a row before anything is tokenized or held out.

    Files are read only if they are small enough to be too short.
    """
    least, tokens = recipe.packing.length, 0
    size = _size(texts, recipe.read)
    if recipe.model.is_count_based or size > _LONG_TOKEN * least:  # a count-based one has no rows
        return
    for document in read_documents(texts, recipe.read):
        tokens += sum(map(bool, recipe.bos_and_eos))
        for at in range(0, len(document.text), _PIECE):
            tokens += len(tokenizer.encode(document.text[at : at + _PIECE]))
            if tokens >= least:
                return
    raise UserError(
        f"{shards}: only {tokens:,} tokens, but a row needs {least:,}; give more "
        "text, or set a smaller packing.length"
    )


def _size(texts: Sequence[str], read: ReadSettings) -> int:
    """Return the bytes of the files."""
    return sum(file.stat().st_size for file in find_files(texts, None, read))


def run_shards(folder: Path) -> PreparedText:
    """Return the token shards that a run was trained on.

    Args:
        folder: the run's folder.

    Raises:
        UserError: they are missing.
    """
    parts = parts_of(Run(folder))
    for part in parts:
        if not part.name and not (part.shards / MANIFEST).is_file():
            raise UserError(
                f"{part.shards}: the run's token shards are not there; name a text with --data"
            )
    return _load(parts, folder / SHARDS)


@contextmanager
def naming_text_in_errors(run: Path, texts: Sequence[str]) -> Iterator[None]:
    """Report errors in the token shards that a run has made as errors in its text.

    Args:
        run: the run folder.
        texts: the text that the shards were made from.

    Raises:
        UserError: an error in the shards, under the name of the text.
    """
    try:
        yield
    except UserError as error:
        for side, prefix in ((TRAIN, ""), (HELDOUT, "what is held out of ")):
            shards, colon, message = str(error).partition(": ")
            if shards == str(run / SHARDS / side):
                more = f" and {len(texts) - 1} more" if texts[1:] else ""
                raise UserError(f"{prefix}{texts[0]}{more}{colon}{message}") from error
        raise


def is_prepared(texts: Sequence[str]) -> bool:
    """Return whether the text is a folder of shards that `prepare` wrote."""
    return len(texts) == 1 and (Path(texts[0]) / "prepared.json").is_file()


def describe_text(prepared: PreparedText, tokenizer: Tokenizer) -> list[str]:
    """Return a line on the text and its defects, and one on the tokenizer's training if known."""
    train, heldout = prepared.counts["train"], prepared.counts["heldout"]
    defects = data_warnings(prepared.manifest["read"]["counts"], train.unknown + heldout.unknown)
    read = (
        f"{train.documents + heldout.documents:,} documents: {train.tokens:,} tokens to train on, "
        f"{heldout.tokens:,} held out"
        + "".join(f"; {count:,} {what}" for what, count in defects.items())
    )
    trained = describe(tokenizer)
    return [read, f"tokenizer trained on {trained}"] if trained else [read]
