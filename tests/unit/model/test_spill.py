import pytest

from hocket.model.spill import Climb, climb, first_alpha


def test_what_fits_comfortably_stays_in_memory():
    assert first_alpha(10_000, 1_000, 32_000) == 0
    assert first_alpha(40_000, 0, 32_000) == pytest.approx((40_000 - 25_600) / 40_000)
    assert first_alpha(10_000, 90_000, 32_000) == 1
    assert first_alpha(0, 90_000, 32_000) == 0


@pytest.mark.parametrize("best", [0.0, 0.12, 0.34, 0.8, 1.0])
@pytest.mark.parametrize(("start", "least"), [(0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.3, 0.3), (1.0, 0.3)])
def test_climbing_finds_the_valley_that_memory_allows(best, start, least):
    at = Climb(start, best_alpha=start)
    for _ in range(60):
        assert least <= at.alpha <= 1
        if at.done:
            break
        at = climb(at, 50 + 100 * abs(at.alpha - best), least)
    assert at.done
    assert at.best_alpha == pytest.approx(max(best, least), abs=0.06)
