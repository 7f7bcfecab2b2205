import pytest

from hocket.reports.figure_style import STYLE


@pytest.fixture(autouse=True)
def coarse_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn to see that they can be: at a low resolution, and without the search for the best layout."""
    monkeypatch.setitem(STYLE, "figure.dpi", 30)
    monkeypatch.setitem(STYLE, "figure.constrained_layout.use", False)
