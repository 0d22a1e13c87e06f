"""One thread each: tests run side by side, and sums then have one order."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

import torch

torch.set_num_threads(1)
