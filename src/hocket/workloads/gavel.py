"""Speeds that Gavel measured (Narayanan et al., OSDI'20): steps/s of job types by GPU kind and count.

The file is `d[kind]["('ResNet-50 (batch size 64)', 4)"]["null"]`: steps/s of that type on 4 GPUs, alone. The
kinds are k80, p100 and v100, and each with `_unconsolidated` for GPUs of several nodes. A type that did not
run has 0, and counts as not measured. Keys other than "null" are pairs on one GPU, not used here.

Between measured counts speed is interpolated; beyond the last it grows in proportion, which is optimistic.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.model.curve import Curve, Point
from hocket.model.job import Job
from hocket.workloads.errors import WorkloadError, did_you_mean, plain, shown
from hocket.workloads.fields import BrokenRuleError, Number
from hocket.workloads.files import read_bytes
from hocket.workloads.truth import Submission, Truth, Workload

_KEY = re.compile(r"\('(.{1,200})', ([0-9]{1,4})\)")
_APART = "_unconsolidated"


class GavelProfile(Struct, frozen=True):
    """One job type: kind → GPUs → steps/s, on one node (`together`) and over several (`apart`)."""

    name: str
    together: dict[str, dict[int, float]]
    apart: dict[str, dict[int, float]]

    def speed(self, kind: str, gpus: int) -> float:
        """Steps/s on one node."""
        measured = self.together[kind]
        counts = sorted(measured)
        at = bisect_left(counts, gpus)
        if at == len(counts):
            return measured[counts[-1]] * gpus / counts[-1]
        if counts[at] == gpus:
            return measured[gpus]
        if at == 0:
            return measured[counts[0]] * gpus / counts[0]
        low, high = counts[at - 1], counts[at]
        return measured[low] + (measured[high] - measured[low]) * (gpus - low) / (high - low)

    def curve(self, kind: str, job: Job, reference_size: int) -> Curve:
        """Speed at each of a job's sizes, 1 at the reference size."""
        each = job.demand.gpus
        unit = self.speed(kind, reference_size * each)
        sizes = sorted({*job.sizes, reference_size})
        return Curve(tuple(Point(float(n), self.speed(kind, n * each) / unit) for n in sizes))

    def kinds(self, reference_kind: str, gpus: int) -> dict[str, float]:
        """Speed on each kind relative to the reference, on as many GPUs or as near to that as both have."""
        out = {}
        for kind, measured in self.together.items():
            both = sorted(measured.keys() & self.together[reference_kind].keys())
            if both:
                n = min(both, key=lambda c: abs(c - gpus))
                out[kind] = measured[n] / self.together[reference_kind][n]
        return out

    def spread(self, kind: str, gpus: int) -> float:
        """Speed over several nodes relative to one, on as many GPUs or as near to that as was measured."""
        apart, together = self.apart.get(kind, {}), self.together[kind]
        both = [n for n in sorted(apart.keys() & together.keys()) if n > 1]
        if not both:
            return 1.0
        n = min(both, key=lambda c: abs(c - gpus))
        return apart[n] / together[n]


class GavelSpeeds(Struct, frozen=True):
    """Profiles by name, and the GPU kind on which traces' run times are taken to be measured."""

    path: str
    profiles: dict[str, GavelProfile]  # those measured on the reference kind, at least one
    parallel: tuple[GavelProfile, ...]  # those measured on several GPUs too; all, when none was
    reference_kind: str = "v100"

    def profile(self, name: str) -> GavelProfile:
        """The job type of that name."""
        if name not in self.profiles:
            hint = did_you_mean(name, self.profiles)
            raise WorkloadError(f"{plain(self.path)}: there must be a job type {shown(name)}{hint}")
        return self.profiles[name]

    def pairing(self, job: Job, seed: int) -> GavelProfile | None:
        """The type a job gets: that of its model's name, else one by seed and id; none without GPUs."""
        if not job.demand.gpus:
            return None
        if job.model in self.profiles:
            return self.profiles[job.model]
        several = job.sizes[-1] * job.demand.gpus > 1
        candidates = self.parallel if several else tuple(self.profiles.values())
        digest = blake2b(f"{seed}/gavel/{job.id}".encode(), digest_size=8).digest()
        return candidates[int.from_bytes(digest, "big") % len(candidates)]

    def apply(self, workload: Workload, seed: int = 0) -> Workload:
        """The same workload with true speeds, GPU kinds and spread of the paired types."""
        shared: dict[tuple[str, tuple[int, ...], int, int], Truth] = {}
        out = []
        for s in workload.submissions:
            if (profile := self.pairing(s.job, seed)) is None:
                out.append(s)
                continue
            size, each = s.truth.reference_size, s.job.demand.gpus
            key = (profile.name, s.job.sizes, size, each)
            if (known := shared.get(key)) is None:
                known = shared[key] = Truth(
                    0.0,
                    speed=profile.curve(self.reference_kind, s.job, size),
                    kinds=profile.kinds(self.reference_kind, size * each),
                    spread=profile.spread(self.reference_kind, s.job.sizes[-1] * each),
                )
            truth = replace(s.truth, speed=known.speed, kinds=known.kinds, spread=known.spread)
            out.append(Submission(s.at_s, replace(s.job, model=profile.name), truth))
        return replace(workload, submissions=tuple(out))

    def words(self, seed: int = 0) -> str:
        """The assumptions, printed with every result that depends on them."""
        return (
            f"speeds as Gavel measured them, relative to {self.reference_kind}: a job that names one of the "
            f"{len(self.profiles)} types gets it, others get one by seed {seed} (jobs of several GPUs one "
            f"of the {len(self.parallel)} measured on several), which is an assumption"
        )

    def __str__(self) -> str:
        return f"gavel:{self.path}"


def read_gavel(path: str, reference_kind: str = "v100") -> GavelSpeeds:
    """The profiles of a .json or .json.gz file."""
    together: dict[str, dict[str, dict[int, float]]] = {}  # type → kind → GPUs → steps/s
    apart: dict[str, dict[str, dict[int, float]]] = {}
    kinds: set[str] = set()
    for kind, by_type in _decoded(path).items():
        kinds.add(kind.removesuffix(_APART))
        for key, measured in by_type.items():
            name, gpus, steps_per_s = _entry(path, kind, key, measured)
            if steps_per_s:
                side = apart if kind.endswith(_APART) else together
                side.setdefault(name, {}).setdefault(kind.removesuffix(_APART), {})[gpus] = steps_per_s
    profiles = {
        name: GavelProfile(name, by_kind, apart.get(name, {}))
        for name, by_kind in together.items()
        if reference_kind in by_kind
    }
    if not profiles:
        hint = did_you_mean(reference_kind, sorted(kinds)[:50])
        raise WorkloadError(
            f"{plain(path)}: the reference must be a measured GPU kind, not {shown(reference_kind)}{hint}"
        )
    parallel = tuple(p for p in profiles.values() if max(p.together[reference_kind]) > 1)
    return GavelSpeeds(path, profiles, parallel or tuple(profiles.values()), reference_kind)


def _decoded(path: str) -> dict[str, dict[str, dict[str, Any]]]:
    data = read_bytes(path)
    try:
        return msgspec.json.decode(data, type=dict[str, dict[str, dict[str, Any]]])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{plain(path)}: the file must be Gavel's JSON, but: {error}") from None
    except RecursionError:
        raise WorkloadError(f"{plain(path)}: the file must be Gavel's JSON, but is nested too deeply") from None


def _entry(path: str, kind: str, key: str, measured: dict[str, Any]) -> tuple[str, int, float]:
    where = f"{plain(path)}: {shown(kind)}"
    match = _KEY.fullmatch(key)
    if match is None or not 1 <= int(match[2]) <= 1024:
        raise WorkloadError(f"{where}: every type must be written as \"('LM', 4)\", not {shown(key)}")
    try:
        return match[1], int(match[2]), Number().of(measured.get("null"))
    except BrokenRuleError as broken:
        raise WorkloadError(f"{where} {shown(key)}: null must be {broken}, not {shown(measured.get('null'))}") from None
