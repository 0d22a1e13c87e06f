"""Contract checks for kinds, to be run on your own: `check_objective(MyObjective())`.

Plain functions that raise AssertionError where a promise is broken; pytest is not required, but a
test may be parametrised over the tuples of single checks (`OBJECTIVE_CHECKS`, ...).
"""

from foreword.testing.objectives import CASE_CHECKS, OBJECTIVE_CHECKS, check_objective
from foreword.testing.positions import POSITION_CHECKS, check_position
from foreword.testing.training import (
    OPTIMIZER_CHECKS,
    SCHEDULE_CHECKS,
    check_optimizer,
    check_schedule,
)

__all__ = [
    "CASE_CHECKS",
    "OBJECTIVE_CHECKS",
    "OPTIMIZER_CHECKS",
    "POSITION_CHECKS",
    "SCHEDULE_CHECKS",
    "check_objective",
    "check_optimizer",
    "check_position",
    "check_schedule",
]
