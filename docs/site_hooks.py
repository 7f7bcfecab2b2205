"""What MkDocs does not do by itself: pages from outside docs/, the commands' help, and links to the repository's files.

MkDocs calls the functions below while it builds the site (`hooks` in mkdocs.yml).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTSIDE = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
GENERATED = {*OUTSIDE.values(), "decisions/index.md", "reference/commands.md"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `FOLDER/*` in the navigation by the folder's pages."""
    config.nav = _expanded(config.nav)
    return config


def _expanded(nav: Any) -> Any:
    if isinstance(nav, list):
        return [entry for item in nav for entry in (_pages(item[:-2]) if _is_folder(item) else [_expanded(item)])]
    if isinstance(nav, dict):
        return {title: _expanded(value) for title, value in nav.items()}
    return nav


def _is_folder(item: Any) -> bool:
    return isinstance(item, str) and item.endswith("/*")


def _pages(folder: str) -> list[str]:
    return [f"{folder}/{page.name}" for page in sorted((DOCS / folder).glob("*.md")) if page.name != "README.md"]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files in docs/."""
    texts = {page: (ROOT / source).read_text(encoding="utf-8") for source, page in OUTSIDE.items()}
    texts["decisions/index.md"] = _decisions()
    texts["reference/commands.md"] = _commands()
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    return files


def _decisions() -> str:
    """A list of the decision records."""
    lines = ["# Decisions", "", "Why things are as they are, one page for each decision.", ""]
    for page in sorted((DOCS / "decisions").glob("0*.md")):
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}]({page.name})")
    return "\n".join(lines)


def _commands() -> str:
    """The help text of every command, as `hocket COMMAND --help` prints it."""
    os.environ.update(COLUMNS="100", TERMINAL_WIDTH="100", NO_COLOR="1")
    from typer.main import get_command
    from typer.testing import CliRunner

    from hocket.cli.main import app

    runner = CliRunner()
    names = sorted(getattr(get_command(app), "commands", {}))
    lines = ["# Commands", "", "What `hocket --help` and `hocket COMMAND --help` print."]
    for words in ([], *([name] for name in names)):
        shown = runner.invoke(app, [*words, "--help"], prog_name="hocket").output
        text = "\n".join(line.rstrip() for line in shown.strip().splitlines())
        lines += ["", f"## {' '.join(['hocket', *words])}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Make links valid in the site: to pages from outside docs/, and, as plain text, to files of the repository."""
    source = next((ROOT / s for s, p in OUTSIDE.items() if p == page.file.src_uri), DOCS / page.file.src_uri)

    def changed(found: re.Match[str]) -> str:
        image, text, target, anchor = found.groups()
        if "://" in target or target.startswith(("mailto:", "/")):
            return found[0]
        there = (source.parent / target).resolve()
        if not there.exists():
            if there.is_relative_to(DOCS) and there.relative_to(DOCS).as_posix() in GENERATED:
                return found[0]
            raise PluginError(f"{page.file.src_uri}: the link to '{target}' leads nowhere")
        inside = _in_site(there)
        if inside is None:
            return text if text.startswith("`") else f"`{there.relative_to(ROOT)}`"
        return f"{image}[{text}]({os.path.relpath(inside, Path(page.file.src_uri).parent)}{anchor or ''})"

    blocks = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(block if block.startswith("```") else LINK.sub(changed, block) for block in blocks)


def _in_site(there: Path) -> str | None:
    """A file's page or image in the site; None if it has none."""
    if there == DOCS / "decisions":
        return "decisions/index.md"
    if there == ROOT / "README.md":
        return "index.md"
    if there.is_relative_to(DOCS):
        inside = there.relative_to(DOCS).as_posix()
        return f"{inside}/README.md" if there.is_dir() else inside
    return OUTSIDE.get(there.name) if there.parent == ROOT else None
