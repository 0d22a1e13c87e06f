"""Checks before decoding that the generated texts fit into memory.

Whether training fits is counted on tensors without numbers (`foreword/runs/counted.py`): it is a
question of one step. Decoding keeps no activations, and a step of it always fits; what grows is
what is kept from step to step: the texts, their beams and the key-value cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from foreword.errors import UserError
from foreword.formatting import byte_size
from foreword.runs.sizes import memory_of
from foreword.runs.trained_model import TrainedModel

TEXT_BYTES = 500  # of a generated text: its start, ids and log-probabilities
STEP_BYTES = 1_000  # of a decoding step, for any number of texts
SCORE_BYTES = 32  # of a candidate token of a beam: its logit, and scores computed from it


def require_memory_to_sample(prompted: TrainedModel, texts: int, tokens: int) -> None:
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


def require_memory_to_search(prompted: TrainedModel, beams: int, tokens: int, option: str) -> None:
    """Check that `beams` beams fit into memory.

    Args:
        prompted: the model.
        beams: the number of beams.
        tokens: the most tokens of each.
        option: the command-line option that sets this number.

    Raises:
        UserError: they do not.
    """
    if prompted.limit is not None:
        tokens = min(tokens, prompted.limit)
    needed = beams * prompted.vocab.size * SCORE_BYTES
    _require(needed, prompted, f"{beams:,} beams", option)
    needed += beams * tokens * (16 + _cache_bytes(prompted))
    _require(needed, prompted, f"{beams:,} beams of {tokens:,} tokens", "--tokens")


def require_memory_to_serve(models: Sequence[tuple[TrainedModel, int]], texts: int) -> None:
    """Check that `texts` texts of each model fit into memory at the same time.

    Args:
        models: the models, and the most tokens of a text of each.
        texts: how many are generated together.

    Raises:
        UserError: they do not.
    """
    needed = 0
    for prompted, tokens in models:
        needed += texts * (
            tokens * (16 + _cache_bytes(prompted)) + prompted.vocab.size * SCORE_BYTES
        )
        _require(needed, prompted, f"{texts:,} texts of each model", "--together")


def _cache_bytes(prompted: TrainedModel) -> int:
    """Return the bytes of the float32 key-value cache per token."""
    return 4 * prompted.recipe.model.cache_width


def _require(needed: int, prompted: TrainedModel, what: str, option: str) -> None:
    available = memory_of(prompted.device)
    if needed > available:
        raise UserError(
            f"{option}: {what} need at least {byte_size(needed)} of memory, and "
            f"{byte_size(available)} is available; ask for fewer"
        )
