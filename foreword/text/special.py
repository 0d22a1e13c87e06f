"""The special tokens: the first ids of every vocabulary that Foreword trains, always the same.

A token has a *role* (the name `transformers` gives it) and a name. Tokenizers made elsewhere spell
theirs differently (`<mask>`); these are found by role, and the rest of Foreword uses the names
below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

PAD, UNK, CLS, SEP, MASK, BOS, EOS = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"
NAMES = (PAD, UNK, CLS, SEP, MASK, BOS, EOS)
SENTINELS = tuple(f"<extra_id_{i}>" for i in range(100))
ALL = NAMES + SENTINELS

ROLES: Mapping[str, str] = MappingProxyType(
    {
        "pad_token": PAD,
        "unk_token": UNK,
        "cls_token": CLS,
        "sep_token": SEP,
        "mask_token": MASK,
        "bos_token": BOS,
        "eos_token": EOS,
    }
)

# Other spellings, for a tokenizer.json without its tokenizer_config.json.
SPELLINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        PAD: ("<pad>", "<|padding|>"),
        UNK: ("<unk>",),
        CLS: ("<cls>",),
        SEP: ("<sep>",),
        MASK: ("<mask>",),
        BOS: ("<bos>", "<|begin_of_text|>", "<|endoftext|>"),
        EOS: ("<eos>", "<|end_of_text|>", "<|endoftext|>"),
    }
)

_SENTINEL = re.compile(r"<extra_id_(\d+)>")


def sentinel_number(token: str) -> int | None:
    """Return the number of a sentinel (`<extra_id_7>` -> 7); None for any other token."""
    match = _SENTINEL.fullmatch(token)
    return int(match[1]) if match else None
