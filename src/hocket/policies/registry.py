"""How a policy says that it is one, and how it is found.

A policy is a function of a snapshot, in a file of its own. It is found by scanning this folder, the entry-point
group `hocket.policies`, and the folders named in HOCKET_POLICIES; no list of policies stands anywhere. A layer is a
policy around another: it sees what that one decides, and adds to it. Order, shifts and needs are those of the other.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta, Struct

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.validation import explained
from hocket.model.view import JobView

OPTIONAL_FIELDS = ("priority", "urgency", "deadline_s", "weight")  # of a job, by which a policy may go or not


class Params(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy's knobs: subclass it, one annotated field with a default for each.

    `before` is for a knob that is added to a policy with which journals were recorded: the value with which it decides
    as it did without the knob. Journals name every parameter that there was, so a missing one was not there yet.
    """

    before: ClassVar[dict[str, Any]] = {}


class LayerParams(Params, frozen=True):
    """A layer's knobs: subclass it, as Params."""

    inner: Annotated[str, Meta(description="the policy that it is put around")] = "fifo"
    inner_params: Annotated[dict[str, Any], Meta(description="that policy's parameters")] = {}


P = TypeVar("P", bound=Params)
Decide = Callable[[Snapshot, Any], Plan]
Add = Callable[[Snapshot, Callable[[Snapshot], Plan], Any], Plan]
D = TypeVar("D", bound=Callable[..., Plan])
Order = Callable[[JobView, float, Any], tuple[Any, ...]]
Shifts = Callable[[JobView, float, Any], float | None]


class UnknownPolicy(KeyError):
    """No policy has that name."""

    def __str__(self) -> str:
        return str(self.args[0])


class PolicyError(ValueError):
    """A policy, or a parameter of it, breaks a rule."""


class Policy(Struct, frozen=True):
    """A registered policy."""

    name: str
    decide: Decide | Add
    params: type[Params]
    order: Order | None
    paper: str
    summary: str
    source: str
    reads_beliefs: bool = True
    shifts: Shifts | None = None
    reads_usage: bool = True
    reads: tuple[str, ...] | None = None  # those of OPTIONAL_FIELDS that it goes by; None: its author does not say
    reads_past_jobs: bool = False  # beliefs about when jobs complete, which rest on past jobs
    compiles: Callable[[], None] | None = None  # what its decisions need compiled, which may take long the first time

    @property
    def is_layer(self) -> bool:
        """Is it put around another policy?"""
        return issubclass(self.params, LayerParams)

    def bound(self, settings: dict[str, Any] | None = None) -> BoundPolicy:
        """The policy with its parameters, which may come as text from a command line."""
        try:
            params = msgspec.convert(settings or {}, type=self.params, strict=False)
        except msgspec.ValidationError as error:
            known = [f.name for f in msgspec.structs.fields(self.params)]
            wrong = explained(error, settings, known).replace("unknown field", "unknown parameter")
            raise PolicyError(
                f"policy '{self.name}': {wrong} (its parameters: {', '.join(known) or 'none'})"
            ) from error
        if isinstance(params, LayerParams):
            inner = find(params.inner).bound(params.inner_params)
            within = partial(_bound(self.decide, params), **{list(signature(self.decide).parameters)[1]: inner.decide})
            return BoundPolicy(self, params, within, inner.order, inner.shifts, inner)
        order = _bound(self.order, params) if self.order is not None else _by_submission
        shifts = _bound(self.shifts, params) if self.shifts is not None else None
        return BoundPolicy(self, params, _bound(self.decide, params), order, shifts)


class BoundPolicy(Struct, frozen=True):
    """A policy and its parameters: what a controller runs."""

    policy: Policy
    params: Params
    decide: Callable[[Snapshot], Plan]
    order: Callable[[JobView, float], tuple[Any, ...]]
    shifts: Callable[[JobView, float], float | None] | None = None
    inner: BoundPolicy | None = None  # what a layer is put around

    def compile(self) -> None:
        """Do now what would delay its first decision."""
        for each in (self, self.inner):
            if each is not None and each.policy.compiles is not None:
                each.policy.compiles()

    @property
    def needs(self) -> dict[str, Any]:
        """What it wants the state to keep for it, as a controller takes it."""
        of = self.policy
        own = {
            "learns": of.reads_beliefs,
            "counts": of.reads_usage,
            "shifts": self.shifts,
            "recalls": of.reads_past_jobs,
        }
        if self.inner is not None:
            theirs = self.inner.needs
            return own | {name: own[name] or theirs[name] for name in ("learns", "counts", "recalls")}
        return own

    @property
    def reads(self) -> tuple[str, ...] | None:
        """Those of OPTIONAL_FIELDS that change what it decides, the policy inside a layer included; None: unknown."""
        own, theirs = self.policy.reads, () if self.inner is None else self.inner.reads
        if own is None or theirs is None:
            return None
        own = tuple(name for name in own if getattr(self.params, name, True))  # A knob of that name turns it off.
        return tuple(name for name in OPTIONAL_FIELDS if name in own or name in theirs)

    @property
    def settings(self) -> dict[str, Any]:
        """All parameters as plain data; those of a layer include all parameters of the policy inside it."""
        settings: dict[str, Any] = msgspec.to_builtins(self.params)
        return settings if self.inner is None else settings | {"inner_params": self.inner.settings}


def _bound(function: Callable[..., Any], params: Params) -> Callable[..., Any]:
    """The function with its last argument given."""
    last = list(signature(function).parameters.values())[-1]
    if type(function) is not FunctionType or hasattr(function, "__wrapped__") or last.kind is last.KEYWORD_ONLY:
        return partial(function, **{last.name: params})
    # A copy that has it as a default: a rank is computed all the time, and to pass a `partial` takes as long as that.
    defaults = (*(function.__defaults__ or (None,))[:-1], params)
    return FunctionType(function.__code__, function.__globals__, function.__name__, defaults, function.__closure__)


_SAME: tuple[Any, ...] = ()


def _by_submission(_view: JobView, _now_s: float) -> tuple[Any, ...]:
    return _SAME


_REGISTRY: dict[str, Policy] = {}
_scanned: list[tuple[str, ...]] = []


def policy(
    name: str,
    *,
    params: type[Params] = Params,
    order: Order | None = None,
    shifts: Shifts | None = None,
    paper: str = "",
    reads_beliefs: bool = True,
    reads_usage: bool = True,
    reads: tuple[str, ...] | None = None,
    reads_past_jobs: bool = False,
    compiles: Callable[[], None] | None = None,
) -> Callable[[D], D]:
    """Register a policy where it is defined.

    `order` ranks jobs: both queues of the snapshot are kept in it, and re-sorted only where an event touched. `shifts`
    says when a running job's rank changes next if it goes on as it does; then it is re-sorted too, without a decision.
    For a policy that reads no beliefs none are learned; for one that reads no owners' usage it is not summed up, but
    where quotas need it. For one that reads past jobs, beliefs say when jobs will have met their criteria. `reads` are
    the fields among priority, urgency, deadline_s and weight that it goes by; users who set another are told that it
    has no effect, unless `reads` is not given. One whose `params` are LayerParams is a layer: it gets the policy that
    it is put around, with its parameters bound, as an argument before its own. A live controller calls `compiles`
    before it begins, so that no decision keeps it from answering.
    """
    if unknown := [field for field in reads or () if field not in OPTIONAL_FIELDS]:
        raise PolicyError(f"policy '{name}': reads must name some of {', '.join(OPTIONAL_FIELDS)}, not '{unknown[0]}'")

    def register(decide: D) -> D:
        known = _REGISTRY.get(name)
        source = decide.__code__.co_filename if hasattr(decide, "__code__") else decide.__module__
        if known is not None and known.source != source:
            raise PolicyError(f"policy '{name}' is defined in {known.source} and in {source}")
        doc = (decide.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        summary = " ".join(doc.split())
        _REGISTRY[name] = Policy(
            name,
            decide,
            params,
            order,
            paper,
            summary,
            source,
            reads_beliefs,
            shifts,
            reads_usage,
            reads,
            reads_past_jobs,
            compiles,
        )
        return decide

    return register


def policies() -> dict[str, Policy]:
    """All policies there are, by name."""
    folders = tuple(f for f in os.environ.get("HOCKET_POLICIES", "").split(os.pathsep) if f)
    if folders not in _scanned:
        _scan(folders)
        _scanned.append(folders)
    return dict(sorted(_REGISTRY.items()))


def find(name: str) -> Policy:
    """The policy of that name."""
    known = policies()
    if name not in known:
        close = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(known)}"
        raise UnknownPolicy(f"policy '{name}' is unknown{hint}")
    return known[name]


def bind(name: str, settings: dict[str, Any]) -> BoundPolicy:
    """The policy of that name with its parameters, as a journal has them."""
    return find(name).bound(as_recorded(name, settings))


def as_recorded(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The policy's parameters in a journal, and for those that were added later the values that change nothing."""
    params = find(name).params
    if issubclass(params, LayerParams) and "inner" in settings:
        inner = as_recorded(settings["inner"], settings.get("inner_params", {}))
        settings = settings | {"inner_params": inner}
    return {**params.before, **settings}


def _scan(folders: tuple[str, ...]) -> None:
    package = importlib.import_module("hocket.policies")
    for module in pkgutil.walk_packages(package.__path__, "hocket.policies."):
        importlib.import_module(module.name)
    for entry in entry_points(group="hocket.policies"):
        try:
            entry.load()
        except Exception as error:  # A plug-in that breaks names itself and hides no other policy.
            raise PolicyError(f"policy plug-in '{entry.name}' ({entry.value}) does not load: {error}") from error
    for folder in folders:
        if not Path(folder).is_dir():
            raise PolicyError(f"HOCKET_POLICIES names '{folder}', which is not a folder")
        for path in sorted(Path(folder).glob("*.py")):
            _load(path)


def _load(path: Path) -> None:
    name = f"hocket_policies_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PolicyError(f"policy file '{path}' does not load: {type(error).__name__}: {error}") from error
