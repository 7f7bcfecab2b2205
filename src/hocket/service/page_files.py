"""The files of the page, as they are sent: no build step, and nothing that a browser must fetch from elsewhere."""

from __future__ import annotations

import hashlib
from functools import cache
from gzip import compress
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

from msgspec import Struct

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing but our own files is loaded or run, no script can make another from text, and no other page shows this one.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": _POLICY,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",  # Asked for again each time, and answered by its tag.
        "Vary": "Accept-Encoding",
    }
)


class PageFile(Struct, frozen=True):
    """One of them."""

    kind: str
    body: bytes
    compressed: bytes
    tag: str  # changes with the body


@cache
def page_files() -> dict[str, PageFile]:
    """The files by name; index.html is the page itself."""
    return {name: _read(item) for item in files("hocket").joinpath("page").iterdir() if _kind(name := item.name)}


def _read(item: Traversable) -> PageFile:
    body = item.read_bytes()
    return PageFile(_kind(item.name), body, compress(body, 9, mtime=0), f'"{hashlib.sha256(body).hexdigest()[:16]}"')


def _kind(name: str) -> str:
    return _KINDS.get(name[name.rfind(".") :], "")
