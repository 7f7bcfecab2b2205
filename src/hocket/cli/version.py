"""`hocket version`."""

from __future__ import annotations

from hocket.cli.options import AsJson


def version(as_json: AsJson = False) -> None:
    """Print the version."""
    import platform

    from hocket import __version__

    if as_json:
        import msgspec

        print(msgspec.json.encode({"hocket": __version__, "python": platform.python_version()}).decode())
    else:
        print(f"hocket {__version__} (Python {platform.python_version()})")
