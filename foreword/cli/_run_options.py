"""The options of `pretrain` and `check`: a recipe, text, a budget, and weights to start from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from foreword.cli._heldout import HeldOut
from foreword.cli._options import Options, PathText
from foreword.errors import UserError
from foreword.settings.ranges import CountOrZero


@dataclass(frozen=True)
class RunOptions(Options):
    """The recipe, the text and the starting weights of a run."""

    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe's name (bert_mini) or a .toml file; or encoder, decoder or "
            "encoder_decoder, sized to --hours, this machine and the text."
        ),
    ]
    data: Annotated[
        list[PathText] | None,
        typer.Option(
            "--data",
            help="Text: files, folders or globs; or a folder of 'prepare', also s3://...; or, of a "
            "recipe with data.sources, the folder that their paths start from.",
        ),
    ] = None
    more: Annotated[
        list[PathText] | None, typer.Argument(help="More text, as a shell expands a glob.")
    ] = None
    tokenizer: Annotated[
        PathText | None, typer.Option(help="Tokenizer folder; default: train one on the text.")
    ] = None
    heldout: HeldOut = None
    from_: Annotated[
        PathText | None,
        typer.Option("--from", help="Start from the weights of a run or a Hugging Face folder."),
    ] = None
    extend_vocabulary: Annotated[
        CountOrZero, typer.Option(help="With --from: number of new tokens to learn from the text.")
    ] = 0
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: model.layers=6; repeatable.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as `foreword.pretrain` takes them.

        Raises:
            UserError: text follows --heldout, where it may belong to --data.
        """
        if self.heldout and self.more and _is_text(self.heldout):
            raise UserError(
                f"{self.more[0]}: ambiguous: put --data or --heldout before each file, or a "
                "pattern in quotes"
            )
        arguments = asdict(self)
        arguments["data"] = [*(arguments["data"] or []), *(arguments.pop("more") or [])]
        arguments["settings"] = arguments.pop("assign") or ()
        return arguments


def _is_text(heldout: list[str]) -> bool:
    """Return whether text is held out, and not a share."""
    from foreword.api._arguments import is_share

    return not all(map(is_share, heldout))
