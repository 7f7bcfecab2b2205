import pytest

from hocket.model.spill import Climb, climb, first_alpha


def test_what_fits_comfortably_stays_in_memory():
    assert first_alpha(10_000, 1_000, 32_000) == 0
    assert first_alpha(40_000, 0, 32_000) == pytest.approx((40_000 - 25_600) / 40_000)
    assert first_alpha(10_000, 90_000, 32_000) == 1
    assert first_alpha(0, 90_000, 32_000) == 0


@pytest.mark.parametrize("best", [0.0, 0.12, 0.34, 0.8, 1.0])
@pytest.mark.parametrize("start", [0.0, 0.5, 1.0])
def test_climbing_finds_the_valley(best, start):
    at = Climb(start, best_alpha=start)
    for _ in range(60):
        assert 0 <= at.alpha <= 1
        if at.done:
            break
        at = climb(at, 50 + 100 * abs(at.alpha - best))
    assert at.done
    assert at.best_alpha == pytest.approx(best, abs=0.06)
