"""Questions on language models, with answers that anyone can check."""

from __future__ import annotations

from abc import ABC

from foreword.verbs._contract import R, Verb


class LabVerb(Verb[R], ABC):
    """A command of `foreword lab`."""
