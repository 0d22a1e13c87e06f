"""Texts in memory, as models trained offline read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foreword.data.shards import Shards
from foreword.nn.offline_training import OfflineInputs
from foreword.types import Array, Vocab


def shards(documents: Sequence[Array]) -> Shards:
    """Each document of one sequence."""
    lengths = np.array([len(document) for document in documents], dtype=np.int32)
    tokens = np.concatenate(documents).astype(np.uint16)
    return Shards(Path("text"), tokens, lengths, np.arange(len(documents) + 1))


def reading(documents: Sequence[Array], vocab: Vocab, folder: Path, **more: Any) -> OfflineInputs:
    """Read once, each document begun by `<s>`, by default."""
    settings: dict[str, Any] = {
        "bos": "<s>",
        "eos": "",
        "epochs": 1,
        "lr": lambda share: 0.1 * (1 - share),
        "seed": 1,
        "threads": 1,
        "progress": lambda done, total: None,
    }
    return OfflineInputs(shards(documents), vocab, folder=folder, **{**settings, **more})
