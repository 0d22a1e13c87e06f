"""The Ray cluster that a verb works on, if one is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from foreword.process.cluster import Cluster, connected


@contextmanager
def on_cluster(address: str | None) -> Iterator[Cluster | None]:
    """Connect to the cluster at an address; None is yielded without one.

    Raises:
        UserError: Ray is not installed, or no cluster answers.
    """
    if address is None:
        yield None
        return
    with connected(address) as cluster:
        yield cluster
