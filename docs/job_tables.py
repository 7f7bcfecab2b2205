"""The tables of fields in docs/jobs.md and docs/api.md: `python docs/job_tables.py` renews them from model/job.py."""

from __future__ import annotations

from pathlib import Path

from hocket.model.job_spec import FIELDS, SpecField

FOLDER = Path(__file__).parent
BEGIN, END = "<!-- made by docs/job_tables.py from model/job.py -->", "<!-- end of the table -->"


def table_for_users() -> str:
    """Options and keys of files."""
    rows = [_row(_names(field), _told(field.about.help, field.about.more), field.about.default) for field in FIELDS]
    return "\n".join(["| option, key of a file | meaning | default |", "| --- | --- | --- |", *rows])


def table_for_programs() -> str:
    """Fields of the API's JobSpec."""
    fields = [field for field in FIELDS if field.part != "shell"]
    rows = [_row(f"`{f.api}`", f.about.api_help or f.about.help, _option(f)) for f in fields]
    return "\n".join(["| field | meaning | as an option |", "| --- | --- | --- |", *rows])


TABLES = {"jobs.md": table_for_users, "api.md": table_for_programs}


def renewed(page: str, table: str) -> str:
    """The page with this table between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}"


def _names(field: SpecField) -> str:
    if field.about.panel is None:
        return f"`{field.name}` (behind `--`)"
    options = [_option(field), *([f"`{field.about.short}`"] if field.about.short else [])]
    if field.reads == "flag" and field.part != "shell":
        options.append(f"`--no-{field.name.replace('_', '-')}`")
    return ", ".join([*options, f"`{field.name}`"])


def _option(field: SpecField) -> str:
    return f"`--{field.name.replace('_', '-')}`" if field.about.panel is not None else "behind `--`"


def _told(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    for name, table in TABLES.items():
        path = FOLDER / name
        path.write_text(renewed(path.read_text(encoding="utf-8"), table()), encoding="utf-8")
