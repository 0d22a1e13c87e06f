"""`foreword.prepare`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.api import _arguments
from foreword.api._arguments import PathName, Paths, Settings, checked
from foreword.api._cluster import on_cluster
from foreword.api._result import FactsAndRows
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.data import write_shards
from foreword.data.fingerprint import fingerprint_text
from foreword.data.holdout import find_apart
from foreword.data.learning import train_tokenizer
from foreword.data.prepared_text import PreparedText, require_free
from foreword.data.read_documents import find_files
from foreword.data.text_files import ReadSettings
from foreword.data.write_shards import PrepareSettings, fingerprint_of
from foreword.errors import UserError
from foreword.runs.run import require_not_a_run
from foreword.settings import config, kinds
from foreword.settings.ranges import Count, Workers
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind


@dataclass(frozen=True, repr=False)
class PreparationResult(FactsAndRows):
    """Token shards, ready to train on.

    Attributes:
        prepared: the shards and their manifest.
        tokenizer: the tokenizer.
    """

    prepared: PreparedText
    tokenizer: Tokenizer

    @property
    def folder(self) -> Path:
        """The folder of the shards, to pass as `data`."""
        return self.prepared.folder

    def __fspath__(self) -> str:
        return str(self.folder)

    def _facts(self) -> Mapping[str, Any]:
        return {
            "folder": self.folder,
            "reused": self.prepared.reused,
            "vocabulary": self.tokenizer.vocab.size,
        }

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        columns = ("documents", "sequences", "tokens", "bytes", "unknown")
        return [
            {"": name, **{column: getattr(counts, column) for column in columns}}
            for name, counts in self.prepared.counts.items()
        ]


@checked
def prepare(
    data: Paths | None = None,
    out: PathName = "shards",
    *,
    texts: Iterable[str] | None = None,
    tokenizer: PathName | None = None,
    kind: str | None = None,
    vocab: Count | None = None,
    settings: Settings = (),
    heldout: Paths | float | None = None,
    sentences: bool = True,
    workers: Workers = 0,
    ray: str | None = None,
    field: str | None = None,
    target: str | None = None,
    documents: str | None = None,
    errors: str | None = None,
    progress: bool | ProgressDisplay = True,
) -> PreparationResult:
    """Turn text files into token shards, once for many runs; up-to-date shards are reused.

        shards = foreword.prepare("books/", "shards", kind="bpe", vocab=16_000)
        foreword.pretrain("gpt2_mini", shards.folder, "runs/gpt")

    Args:
        data: text files, folders, globs.
        out: folder for the shards.
        texts: documents in place of `data`, any iterable of texts, read once; they are kept in
            `OUT.jsonl`.
        tokenizer: its folder; default: train one on the text.
        kind: the tokenizer to train; default: wordpiece.
        vocab: its vocabulary size.
        settings: other settings of the tokenizer, by name.
        heldout: text never trained on: a share of the documents, or files, folders, globs.
        sentences: whether to split documents into sentences.
        workers: number of processes; 0 for one per core.
        ray: cuts the text into tokens on a Ray cluster, in place of this machine's processes: its
            address, `HOST:PORT` or `auto`, or `local` to start one on this machine. The shards do
            not depend on it.
        field: field of JSON or column of Parquet that holds the text.
        target: for parallel text, the field of the target side.
        documents: what is one document in plain text: file, paragraph or line.
        errors: bytes that are not UTF-8: strict stops, replace replaces and counts.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: the text cannot be read, `out` holds something else or other shards, or an
            impossible setting.
    """
    # Check every argument before any text is read.
    if (data is None) == (texts is None):
        raise UserError(_arguments.DATA_OR_TEXTS)
    folder = _arguments.path(out, "--out")
    paths = list(_arguments.paths(data)) if texts is None else [str(_arguments.texts_file(folder))]
    reading = _arguments.given_reading_of(
        texts, field=field, target=target, documents=documents, errors=errors
    )
    read = _arguments.read_as(ReadSettings(), reading)
    how = PrepareSettings(sentences=sentences, workers=workers)
    how, heldout_texts = _arguments.hold_out(how, _arguments.heldout(heldout))
    if tokenizer is not None and (kind is not None or vocab is not None or settings):
        raise UserError("--tokenizer cannot be combined with --kind or --vocab, to train one")
    if ray is not None and workers:
        raise UserError("--workers cannot be combined with --ray, which uses all of the cluster")
    require_not_a_run(folder)
    require_free(folder)
    tokenizer_or_kind = _tokenizer_or_settings(tokenizer, kind, vocab, settings)

    # Train the tokenizer, unless there is one, and write the shards.
    display = progress_of(progress)
    with on_cluster(ray) as cluster, _arguments.kept(texts, folder), display:
        files = find_files(paths, None, read)
        heldout_files = find_apart(heldout_texts, files, None, read)
        existing = _existing_tokenizer(folder, files, heldout_files, read, how, tokenizer_or_kind)
        if isinstance(tokenizer_or_kind, Tokenizer):
            shards_tokenizer = tokenizer_or_kind
        elif existing is not None:
            shards_tokenizer = existing
        else:
            shards_tokenizer = train_tokenizer(tokenizer_or_kind, files, read, display.stage)
        advance = display.stage("cutting text into tokens")

        def show(done: int, total: int) -> None:
            advance(done, total, f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

        prepared = write_shards.prepare(
            paths, shards_tokenizer, folder, how, read, show, heldout_texts, cluster
        )
    return PreparationResult(prepared, shards_tokenizer)


def _tokenizer_or_settings(
    tokenizer: PathName | None, kind: str | None, vocab: int | None, settings: Settings
) -> Tokenizer | TokenizerKind:
    """Return the tokenizer in a folder, or the settings to train one with."""
    if tokenizer is not None:
        return Tokenizer.load(_arguments.path(tokenizer, "--tokenizer"))
    table: dict[str, Any] = {"kind": kind or "wordpiece"}
    table |= {} if vocab is None else {"vocab": vocab}
    table = config.assign(table, _arguments.assignments(settings))
    part = kinds.Part("text/tokenizers", table["kind"])
    trainer: TokenizerKind = config.build_kind(part, table, "tokenizer")
    return trainer


def _settings_of(tokenizer: Tokenizer) -> TokenizerKind | None:
    """Return the settings that a tokenizer was trained with; None if another tool trained it."""
    try:
        part = kinds.Part("text/tokenizers")
        trainer: TokenizerKind = config.build_kind(part, tokenizer.kind, "tokenizer")
    except UserError:
        return None
    return trainer


def _existing_tokenizer(
    out: Path,
    files: Sequence[Path],
    heldout_files: Sequence[Path],
    read: ReadSettings,
    how: PrepareSettings,
    tokenizer_or_kind: Tokenizer | TokenizerKind,
) -> Tokenizer | None:
    """Return the tokenizer of the shards in `out`; None if there are no complete shards.

    Args:
        out: the folder for the shards.
        files: the text to train on.
        heldout_files: the text to hold out, if it is given apart.
        read: how files become documents.
        how: how documents become shards.
        tokenizer_or_kind: the tokenizer, or the settings to train it with.

    Raises:
        UserError: the shards are of other text, settings or tokenizer, and would be lost to the
            runs that were trained on them.
    """
    try:
        prepared = PreparedText.load(out, verify=False)
        existing = Tokenizer.load(prepared.tokenizer)
    except UserError:  # nothing there, or nothing whole
        return None
    is_same = (
        existing.fingerprint == tokenizer_or_kind.fingerprint
        if isinstance(tokenizer_or_kind, Tokenizer)
        else _settings_of(existing) == tokenizer_or_kind
    )
    how = replace(how, heldout=0.0) if heldout_files else how
    texts = (
        fingerprint_text(list(files), read),
        fingerprint_text(list(heldout_files), read) if heldout_files else "",
    )
    if not is_same or prepared.fingerprint != fingerprint_of(*texts, existing, how):
        raise UserError(
            f"{out}: holds shards of another text, tokenizer or settings, and runs trained on them "
            "need them; choose another --out, or delete the folder"
        )
    return existing
