"""Devices and precisions by name."""

from __future__ import annotations

import pytest
import torch

from foreword.errors import UserError
from foreword.train.device import choose_device, choose_precision, matmul_flops_per_second


@pytest.mark.parametrize(("is_emulated", "expected"), [(True, "float32"), (False, "bfloat16")])
def test_emulated_bf16_is_not_chosen(
    is_emulated: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return including_emulation or not is_emulated

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert choose_precision("auto", torch.device("cuda")) == getattr(torch, expected)


def test_unknown_devices_and_precisions_are_refused() -> None:
    with pytest.raises(UserError, match="--device: there is no 'gpu'; there is: auto, cpu, cuda"):
        choose_device("gpu")
    with pytest.raises(
        UserError, match=r"train\.device: .*'cuda:3'; use 'cuda', .*VISIBLE_DEVICES"
    ):
        choose_device("cuda:3", "train.device")
    with pytest.raises(UserError, match="precision: there is no 'fp16'; did you mean"):
        choose_precision("fp16", torch.device("cpu"))
    assert choose_precision("bf16", torch.device("cpu")) == torch.bfloat16


def test_the_speed_of_matrix_products_is_measured() -> None:
    assert 1e8 < matmul_flops_per_second(torch.device("cpu"), torch.float32) < 1e14
