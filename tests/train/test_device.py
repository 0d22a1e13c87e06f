"""Devices and precisions by name."""

from __future__ import annotations

import pytest
import torch

from foreword.errors import UserError
from foreword.train.device import choose_device, choose_precision


def test_what_there_is_not_is_said() -> None:
    with pytest.raises(UserError, match="device: there is no 'cpuu'; did you mean 'cpu'"):
        choose_device("cpuu")
    with pytest.raises(UserError, match="precision: there is no 'fp16'; did you mean"):
        choose_precision("fp16", torch.device("cpu"))
    assert choose_precision("bf16", torch.device("cpu")) == torch.bfloat16
