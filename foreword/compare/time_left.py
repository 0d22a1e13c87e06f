"""How long the rest will take, from what was done so far."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import fmean


class TimeLeft:
    """The work in order, each piece of a group whose pieces take about as long as each other.

    Args:
        groups: of each piece.
    """

    def __init__(self, groups: Sequence[Hashable]) -> None:
        self._groups = groups
        self._known: dict[Hashable, list[float]] = {}

    def add(self, number: int, seconds: float) -> None:
        """Piece `number` took so long."""
        self._known.setdefault(self._groups[number], []).append(seconds)

    def estimate(self, number: int, share: float, seconds: float) -> tuple[float, bool]:
        """Seconds that are left while piece `number` is done to `share` after so many.

        Returns:
            The sum over what can be said, and whether that is all.
        """
        known = {group: fmean(values) for group, values in self._known.items()}
        if share > 0:
            known.setdefault(self._groups[number], seconds / share)
        pieces = [known.get(group) for group in self._groups[number + 1 :]]
        here = seconds / share - seconds if share > 0 else known.get(self._groups[number])
        said = [piece for piece in [here, *pieces] if piece is not None]
        return sum(said), len(said) == len(pieces) + 1
