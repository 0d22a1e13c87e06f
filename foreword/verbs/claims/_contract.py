"""Decide the claims of lectures by experiment."""

from __future__ import annotations

from abc import ABC

from foreword.verbs._contract import R, Verb


class ClaimsVerb(Verb[R], ABC):
    """A command of `foreword claims`."""
