"""Contract checks for kinds, to be run on your own: `check_objective(MyObjective())`.

The checks are plain functions that raise AssertionError if a promise is broken. pytest is not
required, but a test may be parametrised over the tuples of single checks (`OBJECTIVE_CHECKS`, ...).
"""

from foreword.testing.attentions import ATTENTION_CHECKS, check_attention
from foreword.testing.candidates import CANDIDATE_CHECKS, check_candidate
from foreword.testing.layouts import LAYOUT_CHECKS, check_layout
from foreword.testing.objectives import CASE_CHECKS, OBJECTIVE_CHECKS, check_objective
from foreword.testing.packings import PACKING_CHECKS, check_packing
from foreword.testing.positions import POSITION_CHECKS, check_position
from foreword.testing.probes import PROBE_CHECKS, check_probe
from foreword.testing.strategies import STRATEGY_CHECKS, check_strategy
from foreword.testing.tasks import TASK_CHECKS, check_task
from foreword.testing.tokenizers import TOKENIZER_CHECKS, TRAINING_CHECKS, check_tokenizer
from foreword.testing.trackers import TRACKER_CHECKS, check_tracker
from foreword.testing.training import (
    OPTIMIZER_CHECKS,
    SCHEDULE_CHECKS,
    check_optimizer,
    check_schedule,
)

__all__ = [
    "ATTENTION_CHECKS",
    "CANDIDATE_CHECKS",
    "CASE_CHECKS",
    "LAYOUT_CHECKS",
    "OBJECTIVE_CHECKS",
    "OPTIMIZER_CHECKS",
    "PACKING_CHECKS",
    "POSITION_CHECKS",
    "PROBE_CHECKS",
    "SCHEDULE_CHECKS",
    "STRATEGY_CHECKS",
    "TASK_CHECKS",
    "TOKENIZER_CHECKS",
    "TRACKER_CHECKS",
    "TRAINING_CHECKS",
    "check_attention",
    "check_candidate",
    "check_layout",
    "check_objective",
    "check_optimizer",
    "check_packing",
    "check_position",
    "check_probe",
    "check_schedule",
    "check_strategy",
    "check_task",
    "check_tokenizer",
    "check_tracker",
]
