"""What a decision waits for once idle GPUs were lent."""

import pytest

from hocket.model.plan import Wake
from hocket.policies.kit.lent_gpus import Lending


@pytest.mark.parametrize(
    ("lending_s", "policy_s", "first_s"), [(None, None, None), (5.0, None, 5.0), (None, 7.0, 7.0), (5.0, 7.0, 5.0)]
)
def test_the_first_of_both_moments_is_waited_for(lending_s, policy_s, first_s):
    policys = Wake(freed_gpus=None, at_s=policy_s)
    assert Lending(True, lending_s).wake(policys) == Wake(freed_gpus=1, at_s=first_s)
    assert Lending().wake(policys) == policys
