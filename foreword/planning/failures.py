"""What failures cost a long run, and how often to save a checkpoint.

Failures come at random at a constant rate: the time between two is exponential with mean M. A run
works for an interval T, saves for C, and after a failure waits R and repeats what it did since the
last checkpoint. A failure may also hit a save or a restart.
"""

from __future__ import annotations

import math

# GPU-hours between unexpected interruptions: 419 of 16,384 GPUs in 54 days (Llama Team 2024, "The
# Llama 3 Herd of Models", section 3.3.4).
FAILURE_HOURS = 16_384 * 54 * 24 / 419


def best_interval(save: float, between: float) -> float:
    """Return the seconds of work between checkpoints that lose the least time.

    Daly 2006, "A higher order estimate of the optimum checkpoint interval", equation 37; its first
    term is the rule of Young 1974, sqrt(2 C M).

    Args:
        save: seconds to save a checkpoint, C.
        between: mean seconds between failures, M.
    """
    if save >= 2 * between:
        return between
    ratio = save / (2 * between)
    return math.sqrt(2 * save * between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def expected_time(
    work: float, interval: float, save: float, restart: float, between: float
) -> float:
    """Return the expected seconds of a run that needs `work` seconds without failures.

    M exp(R/M) (exp((T + C)/M) - 1) for each interval T (Daly 2006, equation 20); infinite beyond
    the largest number.

    Args:
        work: seconds of work.
        interval: seconds of work between checkpoints, T.
        save: seconds to save one, C.
        restart: seconds from a failure to the first step after it, R.
        between: mean seconds between failures, M.
    """
    try:
        piece = math.expm1((interval + save) / between) * math.exp(restart / between)
    except OverflowError:
        return math.inf
    return work / interval * between * piece
