"""RoBERTa: `RobertaForMaskedLM`, whose positions begin after that of padding."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.interop.hf._roberta import LikeRoberta, names


@dataclass(frozen=True)
class RoBERTa(LikeRoberta):
    """RoBERTa (Liu et al. 2019): BERT without segments."""

    names = names("Roberta", "roberta.")
