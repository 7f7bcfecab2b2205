"""Every field of a job is described once, and can be set by option, TOML key and API, or says here why not."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from tests.unit.cli.typed import hocket

from hocket.job_input.read_job import NAMES
from hocket.model.job import Job, JobField, Launch, Panel
from hocket.model.job_spec import FIELDS, JobSpec, spec_fields, spec_struct
from hocket.model.resources import Demand

ROOT = Path(__file__).parents[2]
NOT_SUBMITTED = {
    "tasks": "task graphs come from workload files; no agent runs them yet",
    "protect_s": "set by the administrator for all jobs: `hocket up --protect`",
    "excluded_nodes": "set by the controller while nodes are reserved for other owners: `hocket node reserve`",
    "demand.net_mbps": "agents do not measure or limit the network",
    "demand.gpu_share": "only for simulated baselines that load GPUs in part",
}


def test_every_field_can_be_submitted_or_says_why_not() -> None:
    whole = {*Job.__struct_fields__} - {"demand", "launch"}
    whole |= {*Launch.__struct_fields__} | {f"demand.{name}" for name in Demand.__struct_fields__}
    said = {f"demand.{f.field}" if f.part == "demand" else f.field for f in FIELDS}
    assert whole - said == set(NOT_SUBMITTED)


@pytest.mark.parametrize("field", FIELDS, ids=lambda f: f.name)
def test_a_field_has_an_option_a_key_and_a_name_in_the_api(field: object) -> None:
    assert field.about.help.endswith(".")
    assert field.name in NAMES
    assert field.part == "shell" or field.api in JobSpec.__struct_fields__


def test_help_lists_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    page = hocket("submit", "--help").output
    options = {f"--{f.name.replace('_', '-')}" for f in FIELDS if f.about.panel is not None}
    assert {option for option in options if option not in page} == set()


class _JobWithColour(Job, frozen=True):
    colour_s: Annotated[float, JobField("A new field.", Panel.JOB, name="colour", metavar="1s")] = 2.0


def test_a_new_field_needs_its_description_and_nothing_else() -> None:
    fields = spec_fields(_JobWithColour)
    new = next(f for f in fields if f.field == "colour_s")
    assert (new.name, new.api, new.reads) == ("colour", "colour_s", "seconds")
    given = msgspec.convert({"command": ["x"], "colour_s": 3}, spec_struct(fields))
    assert given.colour_s == 3.0


@pytest.mark.parametrize("name", ["jobs.md", "api.md"])
def test_the_tables_in_the_documents_are_those_of_the_fields(name: str) -> None:
    path = ROOT / "docs" / "job_tables.py"
    module = module_from_spec(spec := spec_from_file_location("job_tables", path))  # docs/ is no package.
    spec.loader.exec_module(module)
    page = (path.parent / name).read_text(encoding="utf-8")
    assert page == module.renewed(page, module.TABLES[name]()), "renew them: python docs/job_tables.py"
