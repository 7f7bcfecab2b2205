"""How far a job is, without a change to its code: from what it prints, from files it writes, or because it says so.

| kind | reads | fields |
| --- | --- | --- |
| `stdout` (default) | lines as people print them, or the user's own patterns | `patterns` |
| `json` | JSON lines, printed or in a file | `file` |
| `csv` | a CSV file | `file` (needed) |
| `tensorboard` | event files in a folder | `folder` (needed) |
| `report` | `hocket.report(...)` alone, which is listened to in all the other kinds, too | |

For all: `epoch` (the counter's name, "epoch"), `epoch_length` (how many of it are one epoch, 1) and `first_epoch` (0 or
1 if known). `epoch_counter.py` tells how numbers become epochs, and what a job without epochs reports. Relative paths
are looked for in the working directory and in the checkpoint folder, and may begin with `$HOCKET_CHECKPOINT_DIR`. What
files held before the reader was opened is an earlier run's: open a reader for each attempt, before the job starts.

Nothing is imported before it is used: each sidecar pays for what it loads.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hocket.agent.progress.reader import Reader


def check_config(config: dict[str, Any]) -> str:
    """What is wrong with a configuration, in one sentence with field, rule and value; empty if nothing is."""
    from hocket.agent.progress.config import problem

    return problem(config)


def open_reader(
    config: dict[str, Any], cwd: str, checkpoint_dir: str, channel: str = "", counts_steps: bool = False
) -> Reader:
    """The reader for one attempt of a job, by a configuration that `check_config` finds nothing wrong with.

    `channel` is where the FIFO of `hocket.report` is made; without it, among the temporary files. `counts_steps` asks
    for the steps of jobs that name epochs, too.
    """
    from hocket.agent.progress.channel import Channel, Together
    from hocket.agent.progress.epoch_counter import EpochCounter
    from hocket.agent.progress.reader import Reader

    counter = config.get("epoch", "epoch")

    def epochs() -> EpochCounter:
        return EpochCounter(config.get("first_epoch"), config.get("epoch_length", 1), counts_steps)

    def found(field: str) -> list[str]:
        from hocket.agent.progress.follow import places

        return places(config[field], cwd, checkpoint_dir) if field in config else []

    reader: Reader
    match kind := config.get("kind", "stdout"):
        case "stdout" if "patterns" in config:
            from hocket.agent.progress.patterns import Patterns
            from hocket.agent.progress.stdout import Stdout

            reader = Stdout(Patterns(epochs(), config["patterns"], counter))
        case "stdout":
            from hocket.agent.progress.stdout import Guess, Stdout

            reader = Stdout(Guess(epochs(), counter))
        case "json":
            from hocket.agent.progress.json_lines import JsonLines

            reader = JsonLines(epochs(), counter, found("file"))
        case "csv":
            from hocket.agent.progress.csv_file import CsvFiles

            reader = CsvFiles(epochs(), counter, found("file"))
        case "tensorboard":
            from hocket.agent.progress.tensorboard import TensorBoard

            reader = TensorBoard(epochs(), counter, found("folder"))
        case "report":
            reader = Reader()
        case _:
            raise ValueError(f"progress: kind must be one of those above, not {kind!r}")
    return Together(reader, Channel(epochs(), channel), is_guess=kind == "stdout" and "patterns" not in config)
