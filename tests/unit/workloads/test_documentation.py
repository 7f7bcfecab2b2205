"""What docs/workloads.md says is so."""

import re
from pathlib import Path

import pytest

from hocket.workloads import load, parse_cluster, parse_speeds, parse_switching, sources

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "workloads.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("kind", ["csv", "toml"])
def test_the_example_files_are_valid(tmp_path, kind):
    path = tmp_path / f"example.{kind}"
    path.write_text(block(kind))
    assert len(load(str(path)).submissions) == {"csv": 3, "toml": 2}[kind]


def test_the_generators_of_the_table_work():
    names = [s.name for s in sources() if not s.takes_path]
    specs = [s for s in re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE) if re.split(r"\?", s)[0] in names]
    assert {s.partition("?")[0] for s in specs} == set(names)
    for spec in specs:
        assert load(spec).submissions


def test_every_source_is_documented():
    for source in sources():
        assert f"`{source.name}" in PAGE
        for option in filter(None, source.options.split(", ")):
            assert re.search(rf"[`?&]{option}\b", PAGE), option


def test_clusters_speeds_and_switching_are_as_written():
    for text in ("309x8", "8x8:v100+8x8:p100", "229x8+321x2"):
        assert f"`{text}`" in PAGE
        assert parse_cluster(text)
    for text in re.findall(r"`((?:law|power):[0-9.]+|linear)`", PAGE):
        assert parse_speeds(text)
    (switching,) = re.findall(r"`--switching ([^`]+)`", PAGE)
    assert parse_switching(switching).prepare_s == 20.0
