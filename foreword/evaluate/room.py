"""Check before decoding that the texts to be written fit into memory."""

from __future__ import annotations

from foreword.errors import UserError
from foreword.evaluate.prompting import PromptedModel
from foreword.formatting import byte_size
from foreword.nn.stack_settings import StackSettings
from foreword.runs.sizes import memory_of

TEXT_BYTES = 500  # a text that is written: where it began, its ids, their log-probabilities
STEP_BYTES = 1_000  # a decoding step, however many texts
SCORE_BYTES = 32  # a candidate next token of a beam: its logit and what is computed from it


def require_room_to_write(prompted: PromptedModel, texts: int, tokens: int) -> None:
    """Check that `texts` texts of `tokens` tokens fit into memory.

    Raises:
        UserError: they do not.
    """
    if prompted.limit is not None:
        tokens = min(tokens, prompted.limit)
    needed = texts * TEXT_BYTES
    _require(needed, prompted, f"{texts:,} texts", "--samples")
    needed += tokens * (STEP_BYTES + _cache_bytes(prompted))
    _require(needed, prompted, f"texts of {tokens:,} tokens", "--tokens")


def require_room_to_search(prompted: PromptedModel, beams: int, tokens: int, option: str) -> None:
    """Check that `beams` beams fit into memory.

    Args:
        prompted: the model.
        beams: the beams of a text.
        tokens: the most tokens of each.
        option: the command-line option that sets their number.

    Raises:
        UserError: they do not.
    """
    if prompted.limit is not None:
        tokens = min(tokens, prompted.limit)
    needed = beams * prompted.vocab.size * SCORE_BYTES
    _require(needed, prompted, f"{beams:,} beams", option)
    needed += beams * tokens * (16 + _cache_bytes(prompted))
    _require(needed, prompted, f"{beams:,} beams of {tokens:,} tokens", "--tokens")


def _cache_bytes(prompted: PromptedModel) -> int:
    """Return the bytes of the key-value cache per token, over all layers."""
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
