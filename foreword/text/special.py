"""The special tokens: the first ids of every vocabulary that Foreword trains, always the same.

A token has a *role* (the name `transformers` gives it) and a name. Tokenizers made elsewhere spell
theirs differently (`<mask>`); they are found by role and known to the rest of Foreword by the
names below.
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

# How others spell them, for a tokenizer.json that comes without its tokenizer_config.json.
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
    """`<extra_id_7>` -> 7; None for any other token."""
    match = _SENTINEL.fullmatch(token)
    return int(match[1]) if match else None
