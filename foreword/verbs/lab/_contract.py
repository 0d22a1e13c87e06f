"""Questions on language models, with answers that anyone can check."""

from __future__ import annotations

from abc import ABC
from typing import TypeVar

from foreword.verbs._contract import Verb

R = TypeVar("R")


class LabVerb(Verb[R], ABC):
    """A command of `foreword lab`."""
