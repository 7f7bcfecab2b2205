"""On a GPU, if there is one: what `cuda_checks.py` says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cuda_checks import CHECKS


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device on this machine")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_a_gpu(check: Callable[[], str]) -> None:
    check()
