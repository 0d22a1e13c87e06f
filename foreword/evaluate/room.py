"""Whether what a model is asked to write fits into memory, told before it is written."""

from __future__ import annotations

from foreword.errors import UserError
from foreword.evaluate.prompting import PromptedModel
from foreword.formatting import byte_size
from foreword.nn.stack_settings import StackSettings
from foreword.runs.sizes import memory_of

TEXT_BYTES = 500  # a text that is written: where it began, its ids, their log-probabilities
STEP_BYTES = 1_000  # what a step of writing leaves, however many texts
SCORE_BYTES = 32  # a token that may follow a beginning: its logit and what is made of it


def require_room_to_write(prompted: PromptedModel, texts: int, tokens: int) -> None:
    """Make sure that so many texts of so many tokens can be held.

    Raises:
        UserError: they cannot.
    """
    if prompted.limit is not None:
        tokens = min(tokens, prompted.limit)
    needed = texts * TEXT_BYTES
    _require(needed, prompted, f"{texts:,} texts", "--samples")
    needed += tokens * (STEP_BYTES + _kept(prompted))
    _require(needed, prompted, f"texts of {tokens:,} tokens", "--tokens")


def require_room_to_search(prompted: PromptedModel, beams: int, tokens: int, option: str) -> None:
    """Make sure that so many beginnings can be held side by side.

    Args:
        prompted: the model.
        beams: the beginnings of a text.
        tokens: that each may come to.
        option: of the command line, that asks for them.

    Raises:
        UserError: they cannot.
    """
    if prompted.limit is not None:
        tokens = min(tokens, prompted.limit)
    needed = beams * prompted.vocab.size * SCORE_BYTES
    _require(needed, prompted, f"{beams:,} beams", option)
    needed += beams * tokens * (16 + _kept(prompted))
    _require(needed, prompted, f"{beams:,} beams of {tokens:,} tokens", "--tokens")


def _kept(prompted: PromptedModel) -> int:
    """Bytes that are remembered of a token that was read: its keys and values in each layer."""
    model = prompted.recipe.model
    if not isinstance(model, StackSettings):
        return 0
    return 8 * model.heads * model.head_width * model.layers


def _require(needed: int, prompted: PromptedModel, what: str, option: str) -> None:
    there_is = memory_of(prompted.device)
    if needed > there_is:
        raise UserError(
            f"{option}: {what} need at least {byte_size(needed)} of memory, and there is "
            f"{byte_size(there_is)}; ask for fewer"
        )
