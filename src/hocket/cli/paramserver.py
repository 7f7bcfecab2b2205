"""`hocket paramserver nmf|lda|mlr|lasso`: trains a model on parameter servers; `generate` makes data for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hocket.cli.terminal.errors import InputError

if TYPE_CHECKING:
    from hocket.paramserver import EpochEnd
    from hocket.runtimes.paramserver.file_blocks import FileReading
    from hocket.runtimes.paramserver.input_cache import InputCache

paramserver = typer.Typer(name="paramserver", no_args_is_help=True)

Data = Annotated[Path, typer.Option(metavar="FILE", help="Its input; .gz is decompressed. On every host.")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="Threads that compute, on each host. By default the cores it may use."),
]
Epochs = Annotated[int, typer.Option(min=1, help="How often all data is computed on.")]
Blocks = Annotated[int, typer.Option(min=1, max=100_000, help="Parts that the data is divided into.")]
_BATCH = "Blocks of an iteration: all are computed on the same version of the model."
Batch = Annotated[int, typer.Option(min=1, help=_BATCH)]
BatchOfAll = Annotated[int | None, typer.Option(min=1, help=f"{_BATCH} By default every block.")]
Seed = Annotated[int, typer.Option(min=0, help="Of random numbers.")]
CheckpointFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where its state is saved and resumed from. Default: $HOCKET_CHECKPOINT_DIR."),
]
CheckpointEvery = Annotated[str, typer.Option(metavar="TIME", help="Between two checkpoints.")]
ObjectiveEvery = Annotated[int, typer.Option(min=0, metavar="EPOCHS", help="Compute the objective so often; 0: never.")]
Target = Annotated[float | None, typer.Option(help="End when the objective is at most this.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the trained model there: .npz.")]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory of each host's process, such as 2GiB; input beyond it is kept on disk. Default: the job's --mem.",
    ),
]
SpillDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="For input on disk. Default: the folder for temporary files.")
]
InputCacheFolder = Annotated[
    str | None,
    typer.Option(
        "--input-cache",
        metavar="DIR|none",
        help="Keep the input there as it was read, for later starts on the same file. "
        "Default: ~/.cache/hocket/input, of which at most a tenth of the disk's free room is used.",
    ),
]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print a JSON object for each epoch.")]
ZeroBased = Annotated[bool, typer.Option("--zero-based", help="Indices of features are counted from 0, not 1.")]


@paramserver.callback()
def about() -> None:
    """Train a model on parameter servers, or generate data for it.

    It runs alone, or as a job: `hocket submit -- hocket paramserver nmf --data ratings.txt`. On several nodes, each has
    a part of the model and of the data.
    """


@paramserver.command("nmf")
def nmf(
    data: Data,
    rank: Annotated[int, typer.Option(min=1, max=4096, help="Factors of a user and of an item.")] = 16,
    learning_rate: Annotated[float, typer.Option(min=0, help="Step of the descent.")] = 0.02,
    regularisation: Annotated[float, typer.Option(min=0, help="Keeps factors small.")] = 0.02,
    workers: Workers = None,
    epochs: Epochs = 20,
    blocks: Blocks = 16,
    batch: Batch = 4,
    seed: Seed = 0,
    checkpoint: CheckpointFolder = None,
    checkpoint_every: CheckpointEvery = "60s",
    objective_every: ObjectiveEvery = 1,
    target: Target = None,
    out: Out = None,
    memory: Memory = None,
    spill_dir: SpillDir = None,
    input_cache: InputCacheFolder = None,
    as_json: AsJsonLines = False,
) -> None:
    """Non-negative matrix factorisation of ratings, lines `user item rating`.

    The objective is the mean squared error.
    """
    own = {"rank": rank, "learning_rate": learning_rate, "regularisation": regularisation}
    _train("nmf", locals(), own)


@paramserver.command("lda")
def lda(
    data: Data,
    topics: Annotated[int, typer.Option(min=2, max=32_767, help="Topics of all documents.")] = 20,
    alpha: Annotated[float, typer.Option(min=0, help="How even a document's topics are.")] = 0.1,
    beta: Annotated[float, typer.Option(min=0, help="How even a topic's words are.")] = 0.01,
    workers: Workers = None,
    epochs: Epochs = 100,
    blocks: Blocks = 16,
    batch: BatchOfAll = None,
    seed: Seed = 0,
    checkpoint: CheckpointFolder = None,
    checkpoint_every: CheckpointEvery = "60s",
    objective_every: ObjectiveEvery = 5,
    target: Target = None,
    out: Out = None,
    memory: Memory = None,
    spill_dir: SpillDir = None,
    input_cache: InputCacheFolder = None,
    as_json: AsJsonLines = False,
) -> None:
    """Topics of documents (UCI's docword format), by collapsed Gibbs sampling.

    The objective is the mean negative log-likelihood of a word.
    """
    for name, value in (("--alpha", alpha), ("--beta", beta)):
        if value <= 0:
            raise InputError(f"{name} must be above 0, not {value:g}")
    _train("lda", locals(), {"topics": topics, "alpha": alpha, "beta": beta})


@paramserver.command("mlr")
def mlr(
    data: Data,
    classes: Annotated[
        int | None, typer.Option(min=2, max=1 << 20, help="Labels are 0 to one less. By default as in the data.")
    ] = None,
    l2: Annotated[float, typer.Option(min=0, help="Penalty of large weights.")] = 1e-3,
    zero_based: ZeroBased = False,
    workers: Workers = None,
    epochs: Epochs = 100,
    blocks: Blocks = 16,
    batch: BatchOfAll = None,
    seed: Seed = 0,
    checkpoint: CheckpointFolder = None,
    checkpoint_every: CheckpointEvery = "60s",
    objective_every: ObjectiveEvery = 5,
    target: Target = None,
    out: Out = None,
    memory: Memory = None,
    spill_dir: SpillDir = None,
    input_cache: InputCacheFolder = None,
    as_json: AsJsonLines = False,
) -> None:
    """Multinomial logistic regression on svmlight data.

    The objective is the mean log loss with the penalty, as scikit-learn has it.
    """
    _train("mlr", locals(), {"classes": classes, "l2": l2, "zero_based": zero_based})


@paramserver.command("lasso")
def lasso(
    data: Data,
    l1: Annotated[float, typer.Option(min=0, help="Penalty of the weights' absolute values.")] = 0.01,
    zero_based: ZeroBased = False,
    workers: Workers = None,
    epochs: Epochs = 100,
    blocks: Blocks = 16,
    batch: BatchOfAll = None,
    seed: Seed = 0,
    checkpoint: CheckpointFolder = None,
    checkpoint_every: CheckpointEvery = "60s",
    objective_every: ObjectiveEvery = 5,
    target: Target = None,
    out: Out = None,
    memory: Memory = None,
    spill_dir: SpillDir = None,
    input_cache: InputCacheFolder = None,
    as_json: AsJsonLines = False,
) -> None:
    """Linear regression with few weights that are not 0, on svmlight data.

    The objective is half the mean squared error with the penalty, as scikit-learn has it.
    """
    _train("lasso", locals(), {"l1": l1, "zero_based": zero_based})


@paramserver.command("generate")
def generate(
    application: Annotated[Literal["nmf", "lda", "mlr", "lasso"], typer.Argument(help="What the data is for.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where it is written.")],
    size: Annotated[
        Literal["small", "large"], typer.Option(help="The smaller or the larger of Harmony's two data sets.")
    ] = "small",
    scale: Annotated[float, typer.Option(help="1: a thousandth of Harmony's.")] = 1.0,
    seed: Seed = 0,
) -> None:
    """Make up data with the proportions of the data sets in Harmony's evaluation."""
    from hocket.runtimes.paramserver.algorithm import TrainingError
    from hocket.runtimes.paramserver.generators import generate as write

    try:
        made = write(application, out, size, scale, seed)
    except TrainingError as error:
        raise InputError(str(error)) from error
    print(f"{out}: {made.examples:,} examples, a model of {made.rows:,} rows")


def _train(application: str, given: dict[str, Any], own: dict[str, Any]) -> None:
    """Load the data and train; what all applications share is in the command's options."""
    from importlib import import_module

    from hocket.job_input.units import BadValue, mebibytes, seconds
    from hocket.paramserver import TrainingError, print_epoch, train
    from hocket.runtimes.paramserver.model_file import write_model

    try:
        every_s = seconds(given["checkpoint_every"])
    except BadValue as error:
        raise InputError(f"--checkpoint-every {error}") from None
    try:
        memory = None if given["memory"] is None else int(mebibytes(given["memory"]) * (1 << 20))
    except BadValue as error:
        raise InputError(f"--memory {error}") from None
    _must_be_writable(given["out"])
    try:
        loader = import_module(f"hocket.runtimes.paramserver.applications.{application}")
        batch = given["batch"] or given["blocks"]
        with _reading(given["data"], memory, given["spill_dir"], given["input_cache"]) as reading:
            algorithm, blocks = loader.load(
                given["data"], given["blocks"], batch, seed=given["seed"], reading=reading, **own
            )
        blocks.is_used_once = True
        trained = train(
            algorithm, blocks, workers=given["workers"], epochs=given["epochs"], batch=given["batch"],
            seed=given["seed"], checkpoint=given["checkpoint"], checkpoint_every_s=every_s,
            objective_every=given["objective_every"], target=given["target"],
            on_epoch=_print_json if given["as_json"] else print_epoch, memory=memory, spill_dir=given["spill_dir"],
        )  # fmt: skip
        if given["out"] is not None and trained.model:
            write_model(given["out"], trained.model)
    except TrainingError as error:
        raise InputError(str(error)) from error
    except MemoryError as error:
        raise InputError(f"'{given['data']}' needs more memory than there is: {error}") from error


@contextmanager
def _reading(data: Path, memory: int | None, spill_dir: Path | None, input_cache: str | None) -> Iterator[FileReading]:
    """How a file is read within the memory that there is, with a bar if that takes a while."""
    import os

    from hocket.cli.terminal.progress import watching
    from hocket.runtimes.paramserver.file_blocks import FileReading
    from hocket.runtimes.paramserver.host_blocks import spill_file
    from hocket.runtimes.paramserver.launch_variables import LaunchVariables

    memory = memory or LaunchVariables.of(os.environ).memory_bytes
    size = data.stat().st_size if data.is_file() else 0
    folder = spill_file(None if spill_dir is None else str(spill_dir)).folder
    reading = FileReading.within(memory, size, folder, _cache(input_cache))
    with watching(f"reading {data.name}", size // 1_000_000, lambda: reading.done_bytes // 1_000_000, "MB"):
        yield reading


def _cache(chosen: str | None) -> InputCache | None:
    """Where input is kept as it was read. A folder that was chosen must be there, or be made."""
    from hocket.runtimes.paramserver.cache_folder import cache_folder
    from hocket.runtimes.paramserver.input_cache import InputCache

    if chosen == "none":
        return None
    folder = cache_folder("input") if chosen is None else Path(chosen)
    if chosen is not None:
        try:
            Path(chosen).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--input-cache '{chosen}' cannot be used: {error.strerror}") from error
    return None if folder is None else InputCache(folder)


def _print_json(end: EpochEnd) -> None:
    import json
    from dataclasses import asdict

    print(json.dumps(asdict(end)), flush=True)


def _must_be_writable(out: Path | None) -> None:
    from hocket.cli.terminal.errors import refusing
    from hocket.cli.terminal.output_files import must_be_writable

    if out is not None:
        with refusing():
            if out.suffix != ".npz":
                raise ValueError(f"--out '{out}' must end in .npz")
            must_be_writable(out, "--out")
