"""Compiles what numba compiles, into its cache on disk: `make test` does so once, before its workers all need it."""

from hocket.executors.simulated.phases import Phases, interleave
from hocket.model.phases import Profile
from hocket.policies.harmony.schedule import schedule

if __name__ == "__main__":
    schedule([Profile(40.0, 2.0), Profile(8.0, 10.0)], 4)
    interleave((Phases(1.0, 2.0, (0,)), Phases(2.0, 1.0, (0,))))
