"""The page as one file that needs no controller: its own code, and a run to show (docs/page.md).

Browsers load no ES modules from a folder, so that the modules are put into one script, each in a function. Scripts and
style are named in a Content-Security-Policy by their digests: nothing else runs, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import re
from gzip import compress
from typing import Any

import msgspec

from hocket.service.page_files import page_files

_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_ICON = "page/icon.svg"


def page_with(run: dict[str, Any]) -> str:
    """A whole HTML document that shows this run."""
    files = {name: file.body.decode() for name, file in page_files().items()}
    icon = f"data:image/svg+xml;base64,{_base64(files['icon.svg'].encode())}"
    script = one_script(files).replace(_ICON, icon)
    theme, style = files["theme.js"], files["style.css"]
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_digest(theme)} {_digest(script)}",
            f"style-src {_digest(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    head = {
        '<meta charset="utf-8">': f'<meta charset="utf-8">\n  <meta http-equiv="Content-Security-Policy" '
        f'content="{policy}">',
        f'href="{_ICON}"': f'href="{icon}"',
        '<link rel="stylesheet" href="page/style.css">': f"<style>{style}</style>",
        '<script src="page/theme.js"></script>': f"<script>{theme}</script>",
        '<script type="module" src="page/main.js"></script>': "",
        "</body>": f'<script type="application/gzip" id="recording">{_base64(_packed(run))}</script>\n'
        f"  <script>{script}</script>\n</body>",
    }
    page = files["index.html"]
    for before, after in head.items():
        if page.count(before) != 1:
            raise ValueError(f"index.html must have {before} once")
        page = page.replace(before, after)
    return page


def one_script(files: dict[str, str]) -> str:
    """The modules of the page as one script that is none."""
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"{name}.js must not import itself: {' → '.join((*path, name))}")
        if name in order:
            return
        for _names, other in _IMPORT.findall(files[f"{name}.js"]):
            visit(other, (*path, name))
        order.append(name)

    visit("main", ())
    return '"use strict";\n' + "\n".join(_in_function(name, files[f"{name}.js"]) for name in order)


def _in_function(name: str, source: str) -> str:
    exported = _EXPORT.findall(source)
    body = _EXPORT.sub("", _IMPORT.sub(r"const { \1 } = from_\2;", source))
    if wrong := re.search(r"^(?:import|export)\b.*$|</script|<!--", body, re.MULTILINE):
        raise ValueError(f"{name}.js must have no '{wrong[0]}'")
    return f"const from_{name} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _packed(run: dict[str, Any]) -> bytes:
    return compress(msgspec.json.encode(run), 9, mtime=0)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _digest(text: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'"
