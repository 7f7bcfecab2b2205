"""The controller's clock: seconds since 1970 that never jump, whatever is done to the clock of the machine.

Limits, delays and the time that jobs waited and ran are differences of these times. A step of the machine's clock must
neither end a job nor keep it waiting, also across a restart of the controller: so the difference between this clock and
the time since the machine booted is kept in a file, and changes only when the machine boots again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import time

import msgspec
from msgspec import Struct

from hocket.agent.lease_file import boot_id, boot_s

_log = logging.getLogger("hocket.service")
_WORTH_SAYING_S = 5.0


class _Anchor(Struct, frozen=True):
    boot: str  # which boot of the machine
    offset_s: float  # this clock, less the time since that boot


class SteadyClock:
    """Call it for the time."""

    def __init__(
        self,
        file: Path,
        write: Callable[[Path, str], None],
        wall: Callable[[], float] = time,
        steady: Callable[[], float] = boot_s,
        boot: str | None = None,
    ) -> None:
        """Go on with the clock of an earlier controller of this boot, by its `file`; or begin with the machine's."""
        self._steady = steady
        boot = boot_id() if boot is None else boot
        kept = _kept(file)
        if kept is not None and boot and kept.boot == boot:
            self._offset_s = kept.offset_s
            if abs(stepped_s := wall() - self()) > _WORTH_SAYING_S:
                message = "the clock of this machine was set by %+.0f s since it booted: times here go on as they were"
                _log.warning(message, stepped_s)
            return
        self._offset_s = wall() - steady()
        try:
            write(file, msgspec.json.encode(_Anchor(boot, self._offset_s)).decode())
        except OSError as error:  # Only a step of the clock before the next start would be noticed.
            _log.warning("'%s' cannot be written: %s", file, error)

    def __call__(self) -> float:
        return self._steady() + self._offset_s


def _kept(file: Path) -> _Anchor | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Anchor)
    except (OSError, msgspec.MsgspecError):
        return None
