"""What contains the jobs of this agent: a cgroup for each attempt where cgroups can be made, and otherwise nothing.

All cgroups of an agent are in a folder `hocket-IDENTITY` below the agent's own cgroup, so that the limits of that hold
for its jobs too. Whether they can be made is found out by making one and entering it. In version 2, a cgroup that has
processes cannot pass memory and CPU controllers on. So an agent that is alone in its cgroup moves into one below it,
and one that is not takes a cgroup above, with the controllers that it passes on already unless it was delegated to us.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from hocket.agent.cgroup import CPU, CPU_TIME, MEMORY, PROCESSES, Cgroup, remove_folder, set_cpu_shares
from hocket.agent.node.cgroup_hierarchies import Hierarchy, hierarchies
from hocket.agent.node.run_log import log_run
from hocket.agent.node.state_folder import safe_name
from hocket.agent.process_tree import descendants, read
from hocket.agent.protocol import RunKey, RunLimits

_AGENTS = "hocket-agent"  # where an agent moves that has a cgroup of version 2 to itself
_LONGEST_JOB = 100  # characters of a job's name in that of its cgroup
_CLOSING_S = 1.0  # for that, when the agent ends
_FIRST_RETRY_S, _LAST_RETRY_S = 0.02, 10.0  # between attempts to remove a cgroup that something is in
_V2_CONTROLLERS = (MEMORY, CPU)
_V1_CONTROLLERS = {PROCESSES: "freezer", MEMORY: "memory", CPU: "cpu", CPU_TIME: "cpuacct"}


class Wanted(StrEnum):
    """What contains jobs, as `--containment` has it."""

    AUTO = "auto"  # cgroups where they can be made
    CGROUP = "cgroup"  # cgroups with limits for memory and CPU, or the agent does not start
    NONE = "none"


class _Place(NamedTuple):
    """Where the cgroups of runs are made."""

    folders: dict[str, str]  # by what they are used for, as in `Cgroup`; empty: they cannot be made
    trouble: str  # why not, or why there are no limits
    versions: tuple[str, ...] = ()  # of cgroups that are used


class Containment:
    """Makes cgroups, and finds those that earlier agents left."""

    def __init__(
        self,
        wanted: Wanted = Wanted.NONE,
        identity: str = "",
        cores: float = 0.0,
        hard_cpus: bool = False,
        found: list[Hierarchy] | None = None,
    ) -> None:
        """For the agent of the state folder with this identity, on a node with so many cores.

        Raises ValueError if cgroups are wanted and cannot be had.
        """
        self._wanted, self._name, self._cores, self._hard_cpus = wanted, f"hocket-{identity[:12]}", cores, hard_cpus
        self._place = _Place({}, "it is switched off (--containment none)")
        self._found = found
        self._busy: dict[Cgroup, tuple[float, float]] = {}  # to be removed → when to try next, after which delay
        if wanted is not Wanted.NONE:
            self._find_place()
        if wanted is Wanted.CGROUP and not self.limits_all:
            raise ValueError(f"--containment cgroup: {self._place.trouble}")

    def _find_place(self) -> None:
        self._place = _place(hierarchies() if self._found is None else self._found, self._name)
        if self._cores and (cpu := self._place.folders.get(CPU)) is not None:
            with suppress(OSError):  # All jobs together, beside whatever else runs on the machine.
                set_cpu_shares(cpu, self._cores)

    @property
    def limits_all(self) -> bool:
        """Whether memory and CPU limits are enforced."""
        return MEMORY in self._place.folders and CPU in self._place.folders

    @property
    def kind(self) -> str:
        """In a word or two: `cgroup v2`, `cgroup v1`, `none`; with `, no limits` if it enforces none of them."""
        folders = self._place.folders
        if not folders:
            return "none"
        lacking = [name for name, role in (("memory", MEMORY), ("CPU", CPU)) if role not in folders]
        return f"cgroup {'+'.join(self._place.versions)}" + (f", no {' or '.join(lacking)} limits" if lacking else "")

    @property
    def text(self) -> str:
        """The same as a sentence, with the reason why it is not more."""
        if not self._place.folders:
            return f"jobs are not contained: {self._place.trouble}"
        said = f"each job runs in a cgroup of its own ({self.kind}), below '{self._place.folders[PROCESSES]}'"
        return said if self.limits_all else f"{said}: {self._place.trouble}"

    def create(self, run: RunKey, mark: str, limits: RunLimits) -> Cgroup | None:
        """A new cgroup for a run; None if there is none. OSError if there has to be one."""
        if not self._place.folders and self._wanted is not Wanted.CGROUP:
            return None
        name = f"{safe_name(run.job)[:_LONGEST_JOB]}-{run.number}-{mark[:8]}"
        try:
            try:
                return self._make(name, limits)
            except FileNotFoundError:  # Our folder was removed, as by a service manager that tidies up.
                self._find_place()
                return self._make(name, limits)
        except OSError as error:
            if self._wanted is Wanted.CGROUP:
                raise
            log_run(logging.WARNING, run, "is not contained: its cgroup cannot be made: %s", error)
            return None

    def _make(self, name: str, limits: RunLimits) -> Cgroup:
        if not self._place.folders:
            raise OSError(errno.ENOENT, self._place.trouble)
        folders = {role: os.path.join(folder, name) for role, folder in self._place.folders.items()}
        try:
            for folder in dict.fromkeys(folders.values()):
                os.mkdir(folder)
            made = Cgroup(folders)
            made.limit(limits.mem_mib, limits.cores, self._hard_cpus)
            return made
        except OSError:
            Cgroup(folders).remove()
            raise

    def change_limits(self, run: RunKey, cgroup: Cgroup | None, limits: RunLimits) -> None:
        """Set other limits for what was prepared: it may get another size."""
        try:
            if cgroup is not None:
                cgroup.limit(limits.mem_mib, limits.cores, self._hard_cpus)
        except OSError as error:  # In version 1, a limit cannot be less than what is held already.
            log_run(logging.WARNING, run, "keeps the limits that it was prepared with: %s", error)

    def remove(self, cgroup: Cgroup | None) -> None:
        """Kill what is in a cgroup and remove it, now or when that becomes possible; see `tick`."""
        if cgroup is not None:
            cgroup.kill()
            if not cgroup.remove():
                self._busy[cgroup] = time.monotonic() + _FIRST_RETRY_S, _FIRST_RETRY_S

    def tick(self) -> list[float]:
        """Try again what could not be removed; in how many seconds to come back for what is left."""
        now_s = time.monotonic()
        for cgroup, (at_s, delay_s) in list(self._busy.items()):
            if now_s >= at_s:
                cgroup.kill()
                if cgroup.remove():
                    del self._busy[cgroup]
                else:  # A process that cannot be killed has it, perhaps for ever.
                    self._busy[cgroup] = now_s + min(2 * delay_s, _LAST_RETRY_S), min(2 * delay_s, _LAST_RETRY_S)
        return [at_s - now_s for at_s, _ in self._busy.values()]

    def remove_all_but(self, kept: Iterable[Cgroup | None]) -> None:
        """Remove what is left of runs of earlier agents of the same state folder."""
        names = {os.path.basename(folder) for cgroup in kept if cgroup is not None for folder in cgroup.each}
        found = {entry for folder in set(self._place.folders.values()) for entry in _folders_in(folder)} - names
        for name in sorted(found):
            self.remove(Cgroup({role: os.path.join(folder, name) for role, folder in self._place.folders.items()}))

    def close(self) -> None:
        """Remove the folder of this agent if there is no run in it."""
        until_s = time.monotonic() + _CLOSING_S
        while (waiting := self.tick()) and time.monotonic() < until_s:
            time.sleep(max(0.0, min(waiting)))
        for folder in set(self._place.folders.values()):
            with suppress(OSError):
                os.rmdir(folder)


def _place(found: list[Hierarchy], name: str) -> _Place:
    """Where cgroups can be made: of version 2 as far as there is one, and of version 1 for what that does not have."""
    folders: dict[str, str] = {}
    troubles: list[str] = []
    v2 = next((hierarchy for hierarchy in found if hierarchy.is_v2), None)
    if v2 is not None and (place := _v2_place(v2, name, troubles)) is not None:
        folder, controllers = place
        folders = {PROCESSES: folder, **dict.fromkeys(controllers, folder)}
    versions = {"v2"} if folders else set()
    by_controller = {name: hierarchy for hierarchy in found for name in hierarchy.controllers}
    for role, controller in _V1_CONTROLLERS.items():
        if role not in folders and controller in by_controller:
            folder = os.path.join(by_controller[controller].own, name)
            if _can_be_used(folder, [], troubles):
                folders[role] = folder
                versions.add("v1")
    if not folders:
        return _Place({}, troubles[0] if troubles else "there are no cgroups on this machine")
    folders.setdefault(PROCESSES, next(iter(folders.values())))
    lacking = [role for role in _V2_CONTROLLERS if role not in folders]
    trouble = troubles[0] if troubles else f"there is no {' or '.join(lacking)} controller" if lacking else ""
    return _Place(folders, trouble, tuple(sorted(versions)))


def _v2_place(hierarchy: Hierarchy, name: str, troubles: list[str]) -> tuple[str, list[str]] | None:
    """The nearest folder from our own cgroup upward with most of the controllers, and which ones."""
    best: tuple[str, list[str]] | None = None
    for above in hierarchy.upward():
        if os.path.basename(above) == _AGENTS:  # An agent of ours, perhaps an earlier one, has moved here.
            continue
        folder = os.path.join(above, name)
        is_ours = above == hierarchy.own or _is_delegated(above, hierarchy.own)
        offered = _words(above, "cgroup.controllers" if is_ours else "cgroup.subtree_control")
        controllers = [controller for controller in _V2_CONTROLLERS if controller in offered]
        if best is not None and len(controllers) <= len(best[1]):
            continue
        if above == hierarchy.own and controllers:
            _make_way(above, troubles)
        if not _can_be_used(folder, controllers, troubles):
            # A cgroup that has processes passes no controllers on; what is in it can be killed all the same.
            controllers = []
            if best is not None or not _can_be_used(folder, controllers, troubles):
                continue
        if best is not None:
            remove_folder(best[0])
        best = folder, controllers
        if len(controllers) == len(_V2_CONTROLLERS):
            break
    return best


def _is_delegated(above: str, own: str) -> bool:
    """May we decide what a cgroup above our own passes on? If systemd says so, if it is of our user, or if we moved."""
    if os.path.basename(own) == _AGENTS and above == os.path.dirname(own):
        return True
    for name in ("trusted.delegate", "user.delegate"):
        with suppress(OSError):
            if os.getxattr(above, name) == b"1":
                return True
    user = os.geteuid()
    return user != 0 and os.stat(above).st_uid == user


def _can_be_used(folder: str, controllers: list[str], troubles: list[str]) -> bool:
    """Make a folder for cgroups with these controllers of version 2, and try whether a process can enter one."""
    there_before = os.path.isdir(folder)
    trial = os.path.join(folder, "trial")
    try:
        os.makedirs(folder, exist_ok=True)
        for each in (os.path.dirname(folder), folder) if controllers else ():
            lacking = [c for c in controllers if c not in _words(each, "cgroup.subtree_control")]
            if lacking:
                _write(each, "cgroup.subtree_control", " ".join(f"+{controller}" for controller in lacking))
        if os.path.exists(os.path.join(folder, "memory.use_hierarchy")):
            with suppress(OSError):  # It has been so since Linux 5.11.
                _write(folder, "memory.use_hierarchy", "1")
        with suppress(FileExistsError):
            os.mkdir(trial)
        _enter_in_child(trial)
        return True
    except OSError as error:
        why = f"no cgroup can be made in '{os.path.dirname(folder)}': {os.strerror(error.errno or 0)}"
        if error.errno == errno.EBUSY:
            why = f"cgroup '{os.path.dirname(folder)}' has other processes: start the agent in one of its own"
        troubles.append(why)
        if not there_before:
            remove_folder(folder)
        return False
    finally:
        remove_folder(trial)


def _enter_in_child(folder: str) -> None:
    """Raise OSError if a process of ours cannot enter a cgroup."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            Cgroup({PROCESSES: folder}).enter()
            code = 0
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    _pid, status = os.waitpid(pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise OSError(code, os.strerror(code), folder)


def _make_way(own: str, troubles: list[str]) -> None:
    """Move all that is in our cgroup of version 2 into one below it, if that is only this agent and its controller."""
    there = {int(pid) for pid in _words(own, "cgroup.procs")}
    ours = {os.getpid(), *(process.pid for process in descendants(os.getpid()))}
    if _is_controller(os.getppid()):
        ours.add(os.getppid())
    if not there or there - ours or 0 in there:
        return
    leaf = os.path.join(own, _AGENTS)
    try:
        with suppress(FileExistsError):
            os.mkdir(leaf)
        for pid in there:
            with suppress(ProcessLookupError):
                _write(leaf, "cgroup.procs", str(pid))
    except OSError as error:
        troubles.append(f"no cgroup can be made in '{own}': {error.strerror}")


def _is_controller(pid: int) -> bool:
    words = (read(f"/proc/{pid}/cmdline") or b"").split(b"\0")
    return any(os.path.basename(word) == b"hocket" for word in words[:5]) and b"up" in words


def _folders_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _words(folder: str, name: str) -> list[str]:
    return (read(os.path.join(folder, name)) or b"").decode().split()


def _write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(text)
