"""Compiles what numba compiles, into its cache on disk: `make test` does so once, before its workers all need it."""

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from hocket.executors.simulated.phases import Phases, interleave
from hocket.model.phases import Profile
from hocket.policies.harmony.schedule import schedule
from hocket.runtimes.paramserver.generators import SIZES, generate
from hocket.runtimes.paramserver.training import train


def compile_applications() -> None:
    """Train each application of the parameter servers on a few examples."""
    with TemporaryDirectory() as folder:
        for application in SIZES:
            data = Path(folder) / application
            generate(application, data, scale=1e-4)
            module = import_module(f"hocket.runtimes.paramserver.applications.{application}")
            algorithm, blocks = module.load(data, blocks=2, batch=2)
            train(algorithm, blocks, epochs=2)


if __name__ == "__main__":
    schedule([Profile(40.0, 2.0), Profile(8.0, 10.0)], 4)
    interleave((Phases(1.0, 2.0, (0,)), Phases(2.0, 1.0, (0,))))
    compile_applications()
