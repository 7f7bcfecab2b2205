"""The import of typer's help pages, without what ours never show."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

# typer.rich_utils imports these for help in Markdown and for coloured tracebacks, which we do not use. They bring
# a Markdown parser and a syntax highlighter along: more than half of what it takes to show a help page.
_SELDOM_USED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


class _ImportedOnUse(type):
    """The metaclass of a class that stands for another one, which is imported when it is used after all."""

    stands_for: tuple[str, str]

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return cls._real()(*args, **options)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._real(), name)

    def _real(cls) -> Any:
        module, name = cls.stands_for
        return getattr(import_module(module), name)


def import_help_renderer() -> None:
    """Import what shows help pages."""
    if "typer.rich_utils" in sys.modules:
        return
    stand_ins = [module for module in _SELDOM_USED if module not in sys.modules]
    for module in stand_ins:
        name = _SELDOM_USED[module]
        sys.modules[module] = ModuleType(module)
        setattr(sys.modules[module], name, _ImportedOnUse(name, (), {"stands_for": (module, name)}))
    try:
        import_module("typer.rich_utils")
    except ImportError:
        pass  # typer imports it itself then, and all that belongs to it; or does without, if rich is not there.
    finally:
        for module in stand_ins:
            del sys.modules[module]
