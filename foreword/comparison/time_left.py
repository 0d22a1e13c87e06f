"""The time left of a comparison, estimated from the jobs done so far."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import fmean


class TimeLeft:
    """An estimate of the time left, from the mean time of each group of similar jobs.

    Args:
        groups: group of each job, in order; jobs of a group take about equally long.
    """

    def __init__(self, groups: Sequence[Hashable]) -> None:
        self._groups = groups
        self._known: dict[Hashable, list[float]] = {}

    def add(self, number: int, seconds: float) -> None:
        """Record how long job `number` took."""
        self._known.setdefault(self._groups[number], []).append(seconds)

    def estimate(self, number: int, share: float, seconds: float) -> tuple[float, bool]:
        """Estimate the seconds left of this job and all after it.

        Args:
            number: the current job.
            share: share of it that is done, 0 to 1.
            seconds: how long that took.

        Returns:
            The sum over the jobs whose time is known, and whether that is all of them.
        """
        means = {group: fmean(values) for group, values in self._known.items()}
        if share > 0:
            means.setdefault(self._groups[number], seconds / share)
        later = [means.get(group) for group in self._groups[number + 1 :]]
        current = seconds / share - seconds if share > 0 else means.get(self._groups[number])
        estimates = [job for job in [current, *later] if job is not None]
        return sum(estimates), len(estimates) == len(later) + 1
