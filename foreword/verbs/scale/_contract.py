"""Fit scaling laws to runs: what a size, or more text, is worth."""

from __future__ import annotations

from abc import ABC

from foreword.verbs._contract import R, Verb


class ScaleVerb(Verb[R], ABC):
    """A command of `foreword scale`."""
