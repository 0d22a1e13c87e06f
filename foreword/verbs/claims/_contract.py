"""Decide the claims of lectures by experiment."""

from __future__ import annotations

from abc import ABC
from typing import TypeVar

from foreword.verbs._contract import Verb

R = TypeVar("R")


class ClaimsVerb(Verb[R], ABC):
    """A command of `foreword claims`."""
