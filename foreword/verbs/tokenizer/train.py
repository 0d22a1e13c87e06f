"""`foreword tokenizer train`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from foreword.display.results import Output
from foreword.errors import UserError
from foreword.settings import config
from foreword.settings.ranges import Count
from foreword.verbs._arguments import assignments, paths
from foreword.verbs._contract import SET, Flag, PathName, Paths, Settings
from foreword.verbs._groups import ReadsText, ShowsProgress, naming
from foreword.verbs.tokenizer._contract import TokenizerVerb, facts_of, shown_facts


@dataclass(frozen=True)
class Train(ReadsText, ShowsProgress, TokenizerVerb):
    """Train a tokenizer on text, and save it for Foreword and transformers.

    Attributes:
        files: text files or folders.
        out: folder for the tokenizer.
        kind: wordpiece, bpe, unigram, word or char.
        vocab: vocabulary size, special tokens included.
        settings: a setting: tokenizer.lowercase=false; repeatable.
    """

    files: Annotated[Paths, Flag(is_argument=True, metavar="FILES...")]
    out: PathName
    kind: str = "wordpiece"
    vocab: Count | None = None
    settings: Annotated[Settings, SET] = ()

    def __call__(self) -> Output:
        from foreword.data.existing_shards import trainer_of
        from foreword.data.learning import train_tokenizer
        from foreword.data.prepared_text import MANIFEST, data_warnings
        from foreword.data.text_files import ReadCounts, ReadSettings
        from foreword.runs.run import require_not_a_run

        # Check what is cheap.
        out = Path(self.out)
        require_not_a_run(out)
        if (out.absolute().parent / MANIFEST).is_file():
            raise UserError(
                f"{out}: belongs to the token shards made with it; choose another --out"
            )
        options = {"kind": self.kind} | ({} if self.vocab is None else {"vocab": self.vocab})
        table = config.assign({"tokenizer": options}, assignments(self.settings))
        with naming("tokenizer", {"kind": "--kind", "vocab": "--vocab"}):
            trainer = trainer_of(table.pop("tokenizer"))
        if table:
            raise UserError(f"--set {next(iter(table))}: only tokenizer.* can be set here")

        # Train and save.
        counts = ReadCounts()
        files, read = list(paths(self.files)), self.read_as(ReadSettings())
        with self.display() as display, naming("tokenizer", {"vocab": "--vocab"}):
            tokenizer = train_tokenizer(trainer, files, read, display.stage, counts)
        tokenizer.save(out)
        facts = facts_of(tokenizer) | {"folder": str(out)}
        shown = shown_facts(tokenizer, facts | data_warnings(asdict(counts)))
        return Output([shown], facts | {"read": asdict(counts)})
