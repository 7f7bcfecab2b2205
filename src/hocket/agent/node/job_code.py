"""What a job brings with it to a node: its working directory, and packages that pip installs. Each is made once.

| path in the state folder | holds | is removed |
| --- | --- | --- |
| `code/DIGEST/` | an unpacked bundle; jobs of the same bundle share it | unused for two weeks |
| `pip/KEY` | a link to the environment `pip/KEY.*/` that is complete | unused for two weeks |
| `pip/KEY.log` | what pip said | with it |
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

from hocket.agent.bundle import BundleError, digest_of, is_digest, unpack
from hocket.agent.node import pip_environment
from hocket.agent.node.controller_link import Away, CallRefused, Gone, Patience
from hocket.agent.node.state_folder import StateFolder, remove

_log = logging.getLogger("hocket.agent")
BUNDLE, PIP = "working_dir", "pip"  # in the spec of an order
_UNUSED_S = 14 * 86_400.0
_NO_PATH = "/usr/local/bin:/usr/bin:/bin"

ReadPart = Callable[[str, int], bytes]  # (digest, offset) → the next bytes of a bundle; none at its end


class CodeError(Exception):
    """What the job brought will not do; says why."""


class CodeNeeds(NamedTuple):
    """What an order asks for, beside its command."""

    bundle: str
    pip: tuple[str, ...]

    @property
    def environment(self) -> str:
        """The name of its environment; empty if it needs none."""
        return pip_environment.environment_key(self.pip, self.bundle) if self.pip else ""


def needs_of(spec: dict[str, Any]) -> CodeNeeds | None:
    """What the spec of an order asks for; None if the node has all that it needs. Raises CodeError."""
    bundle, pip = spec.get(BUNDLE) or "", spec.get(PIP) or []
    if not bundle and not pip:
        return None
    if not isinstance(bundle, str) or (bundle and not is_digest(bundle)):
        raise CodeError(f"{BUNDLE} must be the digest of a bundle, not {bundle!r}")
    if not isinstance(pip, list) or not all(isinstance(line, str) and line and "\n" not in line for line in pip):
        raise CodeError(f"{PIP} must be a list of requirements")
    return CodeNeeds(bundle, tuple(pip))


class JobCode:
    """Fetches, unpacks and builds, in a thread for each that is asked for."""

    def __init__(self, state: StateFolder, read_part: ReadPart) -> None:
        self._state, self._read_part = state, read_part
        self._bundles, self._environments = (os.path.join(state.path, name) for name in ("code", "pip"))
        self._lock = threading.Lock()
        self._making: set[CodeNeeds] = set()
        self._locks: dict[str, threading.Lock] = {}  # by bundle and environment: two needs may share one

    def is_there(self, needs: CodeNeeds) -> bool:
        """Can a run that needs it begin? What is used stays for a while."""
        paths = [self._bundle(needs)] if needs.bundle else []
        paths += [self._environment(needs)] if needs.pip else []
        if not all(map(os.path.isdir, paths)):
            return False
        for path in paths:
            with suppress(OSError):
                os.utime(path)
        return True

    def make(self, needs: CodeNeeds, made: Callable[[CodeNeeds, Exception | None], None], wanted: _IsWanted) -> None:
        """Make it, and call `made` from another thread then; not twice at once. What is not `wanted` is given up."""
        with self._lock:
            if needs in self._making:
                return
            self._making.add(needs)

        def work() -> None:
            error: Exception | None = None
            try:
                self._make(needs, wanted)
            except Exception as found:  # It is told to the run that needs it.
                error = found
            with self._lock:
                self._making.discard(needs)
            made(needs, error)

        threading.Thread(target=work, name="job-code", daemon=True).start()

    def apply(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The spec of a run, without what it needs and with what was made of it: its folder, its Python."""
        needs = needs_of(spec)
        spec = {name: value for name, value in spec.items() if name not in (BUNDLE, PIP)}
        if needs is None:
            return spec
        if needs.bundle:
            spec["cwd"] = self._bundle(needs)
        if needs.pip:
            env, folder = dict(spec.get("env") or {}), os.path.realpath(self._environment(needs))
            path = env.get("PATH") or os.environ.get("PATH") or _NO_PATH
            env |= {"PATH": f"{folder}/bin:{path}", "VIRTUAL_ENV": folder}
            spec["env"] = env
        return spec

    def _bundle(self, needs: CodeNeeds) -> str:
        return os.path.join(self._bundles, needs.bundle)

    def _environment(self, needs: CodeNeeds) -> str:
        return os.path.join(self._environments, needs.environment)

    def _lock_of(self, path: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(path, threading.Lock())

    def _make(self, needs: CodeNeeds, wanted: _IsWanted) -> None:
        self._remove_unused()
        if needs.bundle:
            with self._lock_of(self._bundle(needs)):
                if not os.path.isdir(self._bundle(needs)):
                    self._fetch(needs.bundle, wanted)
        if needs.pip:
            with self._lock_of(self._environment(needs)):
                if not os.path.isdir(self._environment(needs)):
                    self._build(needs, wanted)

    def _fetch(self, digest: str, wanted: _IsWanted) -> None:
        os.makedirs(self._bundles, 0o700, exist_ok=True)
        part = os.path.join(self._bundles, f".{digest}.{uuid4().hex}")
        folder = f"{part}.new"
        try:
            self._download(digest, part, wanted)
            if digest_of(part) != digest:
                raise CodeError(f"bundle {digest[:12]} came damaged")
            try:
                unpack(part, folder)
            except BundleError as error:
                raise CodeError(f"bundle {digest[:12]} cannot be unpacked: {error}") from error
            os.rename(folder, os.path.join(self._bundles, digest))
        finally:
            remove(part)
            remove(folder)
        _log.info("working directory %s is here", digest[:12])

    def _download(self, digest: str, path: str, wanted: _IsWanted) -> None:
        patience, offset = Patience(), 0
        with open(path, "wb") as file:
            while wanted():
                try:
                    part = self._read_part(digest, offset)
                except (Away, Gone) as trouble:
                    time.sleep(patience.wait_s(trouble))
                    continue
                except CallRefused as error:
                    raise CodeError(f"bundle {digest[:12]} cannot be fetched: {error}") from error
                if not part:
                    return
                file.write(part)
                offset += len(part)
        raise CodeError("it is not wanted any more")

    def _build(self, needs: CodeNeeds, wanted: _IsWanted) -> None:
        os.makedirs(self._environments, 0o700, exist_ok=True)
        link = self._environment(needs)
        folder = f"{link}.{uuid4().hex[:8]}"  # Its scripts have its path in them, so it cannot be renamed.
        cwd = self._bundle(needs) if needs.bundle else self._environments
        _log.info("pip installs %d requirements of a job; see '%s.log'", len(needs.pip), link)
        try:
            pip_environment.build(folder, needs.pip, cwd, f"{link}.log", wanted)
            os.symlink(os.path.basename(folder), f"{folder}.link")
            os.rename(f"{folder}.link", link)
        except pip_environment.PipError as error:
            remove(folder)
            raise CodeError(f"its pip environment cannot be built: {error}") from error
        except BaseException:
            remove(folder)
            raise

    def _remove_unused(self) -> None:
        """What no run has, and none had for long; and what an agent left that was killed while it made it."""
        before_s, used = time.time() - _UNUSED_S, self._in_use()
        for folder in (self._bundles, self._environments):
            for path in _listed(folder):
                with suppress(OSError):
                    is_link = os.path.islink(path)
                    if os.path.realpath(path) in used or os.stat(path).st_mtime > before_s:
                        continue
                    remove(os.path.realpath(path)) if is_link else None
                    remove(path)

    def _in_use(self) -> set[str]:
        found: set[str] = set()
        for run in self._state.runs():
            with suppress(OSError, ValueError), open(os.path.join(run, "spec.json"), encoding="utf-8") as file:
                spec = json.load(file)
                found |= {os.path.realpath(spec.get("cwd", "")), str(spec.get("env", {}).get("VIRTUAL_ENV", ""))}
        return found


_IsWanted = Callable[[], bool]


def _listed(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []
