"""The applications reach what scikit-learn or a plain loop reaches, with any number of workers, paused or not.

Scikit-learn takes seconds to load, and so is imported where it is used.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from tests.unit.runtimes.paramserver.least_squares import on_hosts
from tests.unit.runtimes.paramserver.turns import LeaveAfter

from hocket.runtimes.paramserver.algorithm import Algorithm, DataBlock, TrainingError
from hocket.runtimes.paramserver.applications import lda, nmf
from hocket.runtimes.paramserver.generators import SIZES, generate
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.readers import read_bags_of_words, read_ratings
from hocket.runtimes.paramserver.training import Paused, Trained, train

BLOCKS = 8
# Scale of the data, blocks of an iteration, epochs, and how far the objective may be from the reference's (as a ratio).
CASES: dict[str, tuple[float, int, int, float]] = {
    "nmf": (0.005, 2, 30, 0.1),
    "lda": (0.2, BLOCKS, 100, 0.02),
    "mlr": (0.005, BLOCKS, 100, 0.001),
    "lasso": (0.005, BLOCKS, 100, 0.001),
}
OPTIONS: dict[str, dict[str, float]] = {
    "nmf": {"learning_rate": 0.03},
    "lda": {},
    "mlr": {"l2": 0.01},
    "lasso": {"l1": 0.01},
}


@cache
def data(application: str) -> tuple[TemporaryDirectory[str], Path]:
    folder = TemporaryDirectory()
    path = Path(folder.name) / f"{application}.txt"
    generate(application, path, scale=CASES[application][0])
    return folder, path


def loaded(application: str) -> tuple[Algorithm, list[DataBlock]]:
    load = import_module(f"hocket.runtimes.paramserver.applications.{application}").load
    found: tuple[Algorithm, list[DataBlock]] = load(
        data(application)[1], BLOCKS, CASES[application][1], **OPTIONS[application]
    )
    return found


def trained(application: str, launch: LaunchVariables | None = None, **options: Any) -> Trained:
    algorithm, blocks = loaded(application)
    _scale, batch, epochs, _tolerance = CASES[application]
    given = {"workers": 1, "epochs": epochs, "objective_every": epochs, **options}
    return train(algorithm, blocks, batch=batch, launch=launch or LaunchVariables(), **given)


@cache
def undisturbed(application: str, workers: int) -> Trained:
    return trained(application, workers=workers)


def plain_nmf(path: Path) -> float:
    """The same descent as one loop over all ratings, without blocks and servers."""
    ratings = read_ratings(path)
    (block,) = nmf.load(path, 1, 1)[1]
    start = float(np.sqrt(ratings.values.mean() / 16))
    rng = np.random.default_rng(3)
    users = rng.uniform(0.5, 1.5, (int(block.data["users"][0]), 16)).astype(np.float32) * np.float32(start)
    items = rng.uniform(0.5, 1.5, (len(block.data["items"]), 16)).astype(np.float32) * np.float32(start)
    given = block.data["user"], block.data["item"], block.data["rating"], users, items
    for _ in range(CASES["nmf"][2]):
        nmf.descend(*given, np.float32(OPTIONS["nmf"]["learning_rate"]), np.float32(0.02), np.empty(16, np.float32))
    return float(np.sqrt(nmf.squared_error(*given) / len(ratings.values)))


def plain_lda(path: Path) -> float:
    """The same sampler as one loop over all documents."""
    bags = read_bags_of_words(path)
    (block,) = lda.load(path, 1, 1, seed=5)[1]
    algorithm = lda.Lda(bags.words, int(bags.counts.sum()))
    model = dict(algorithm.init(np.random.default_rng(0)))
    for _ in range(CASES["lda"][2]):
        params = {"word_topics": model["word_topics"][block.data["words"]], "topics": model["topics"]}
        updates = algorithm.compute(block, params)
        model["word_topics"][block.data["words"]] += updates["word_topics"]
        model["topics"] += updates["topics"]
    return algorithm.objective(
        block, {"word_topics": model["word_topics"][block.data["words"]], "topics": model["topics"]}
    )


def sklearn_mlr(path: Path) -> float:
    from sklearn.datasets import load_svmlight_file
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    x, y = load_svmlight_file(str(path))
    penalty = OPTIONS["mlr"]["l2"]
    fitted = LogisticRegression(C=1 / (penalty * len(y)), max_iter=2000, tol=1e-8).fit(x, y)
    return float(log_loss(y, fitted.predict_proba(x)) + penalty / 2 * np.square(fitted.coef_).sum())


def sklearn_lasso(path: Path) -> float:
    from sklearn.datasets import load_svmlight_file
    from sklearn.linear_model import Lasso

    x, y = load_svmlight_file(str(path))
    penalty = OPTIONS["lasso"]["l1"]
    fitted = Lasso(alpha=penalty, fit_intercept=False, tol=1e-8).fit(x.toarray(), y)
    return float(np.square(x @ fitted.coef_ - y).mean() / 2 + penalty * np.abs(fitted.coef_).sum())


REFERENCES: dict[str, Callable[[Path], float]] = {
    "nmf": plain_nmf, "lda": plain_lda, "mlr": sklearn_mlr, "lasso": sklearn_lasso,
}  # fmt: skip


@pytest.mark.parametrize("application", CASES)
def test_it_reaches_what_the_reference_reaches(application: str) -> None:
    found = undisturbed(application, 1).objective
    assert found is not None
    reached = np.sqrt(found) if application == "nmf" else found
    assert reached == pytest.approx(REFERENCES[application](data(application)[1]), rel=CASES[application][3])


def test_topics_are_as_good_as_those_of_scikit_learn() -> None:
    """By the same measure: how likely words are, given their document's topics."""
    from sklearn.decomposition import LatentDirichletAllocation

    bags = read_bags_of_words(data("lda")[1])
    counts = np.zeros((bags.documents, bags.words))
    counts[bags.document, bags.word] = bags.counts
    fitted = LatentDirichletAllocation(20, doc_topic_prior=0.1, topic_word_prior=0.01, max_iter=15, random_state=0)
    mixtures = fitted.fit_transform(counts)
    likely = mixtures @ (fitted.components_ / fitted.components_.sum(axis=1, keepdims=True))
    theirs = -np.log(likely[bags.document, bags.word]) @ bags.counts / bags.counts.sum()
    ours = undisturbed("lda", 1).objective
    assert ours is not None
    assert ours < theirs * 1.03


@pytest.mark.parametrize("application", CASES)
def test_four_workers_compute_what_one_does(application: str) -> None:
    one, four = undisturbed(application, 1), undisturbed(application, 4)
    assert one.objective == four.objective
    for name, array in one.model.items():
        assert (array == four.model[name]).all()


@pytest.mark.parametrize("application", CASES)
def test_it_is_paused_resumed_with_other_workers_and_ends_the_same(application: str, tmp_path: Path) -> None:
    iterations = undisturbed(application, 1).iterations
    for leaves, workers in ((iterations // 3, 1), (iterations // 2, 4)):
        with pytest.raises(Paused):
            trained(application, workers=workers, checkpoint=tmp_path, turns=LeaveAfter(leaves))
    found = trained(application, workers=2, checkpoint=tmp_path)
    for name, array in undisturbed(application, 1).model.items():
        assert (array == found.model[name]).all()


@pytest.mark.parametrize("application", CASES)
def test_it_is_moved_to_two_hosts_and_reaches_the_same(application: str, tmp_path: Path) -> None:
    whole = undisturbed(application, 1)
    with pytest.raises(Paused):
        trained(application, checkpoint=tmp_path, turns=LeaveAfter(whole.iterations * 4 // 5))
    first, _second = on_hosts(2, lambda at: trained(application, at), checkpoint=tmp_path)
    assert isinstance(first, Trained), first
    assert first.iterations == whole.iterations
    assert first.objective == pytest.approx(whole.objective, rel=1e-4)


def test_lasso_finds_which_weights_are_not_zero() -> None:
    from sklearn.datasets import load_svmlight_file
    from sklearn.linear_model import Lasso

    x, y = load_svmlight_file(str(data("lasso")[1]))
    fitted = Lasso(alpha=OPTIONS["lasso"]["l1"], fit_intercept=False, tol=1e-10).fit(x.toarray(), y)
    found = undisturbed("lasso", 1).model["weights_last"]
    clear = (np.abs(fitted.coef_) > 1e-3) | (fitted.coef_ == 0)
    assert ((found != 0) == (fitted.coef_ != 0))[clear].mean() > 0.97


def test_numbers_that_overflow_fail_with_the_name_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "wild.txt"
    path.write_text("".join(f"{user} {item} {2e38 if user == 7 else 1}\n" for user in range(10) for item in range(5)))
    algorithm, blocks = nmf.load(path, 10, 10)
    with pytest.raises(
        TrainingError, match=r"^block 'wild\.txt, users 7-7': update of 'items' has a NaN or an infinite"
    ):
        train(algorithm, blocks, workers=2, launch=LaunchVariables())


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("application", SIZES)
def test_generated_data_has_both_sizes_and_the_same_content_for_a_seed(
    application: str, size: str, tmp_path: Path
) -> None:
    made = [generate(application, tmp_path / str(n), size, 0.001, seed=4) for n in range(2)]
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    assert made[0].rows == max(20, round(SIZES[application][size].rows * 0.001))
    load = import_module(f"hocket.runtimes.paramserver.applications.{application}").load
    algorithm, blocks = load(tmp_path / "0", 3, 3)
    assert sum(array.shape[0] for array in algorithm.init(np.random.default_rng(0)).values()) >= 20
    assert 1 <= len(blocks) <= 3


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("svm",), "there is no data set for 'svm'; there are: nmf, lda, mlr, lasso"),
        (("nmf", "huge"), "size must be small or large, not 'huge'"),
        (("nmf", "small", 0.0), "scale must be above 0 and at most 1000, not 0"),
    ],
)
def test_data_that_cannot_be_made_is_refused(given: tuple[Any, ...], why: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=why):
        generate(given[0], tmp_path / "data", *given[1:])
    with pytest.raises(TrainingError, match="nowhere/data: No such file or directory"):
        generate("nmf", tmp_path / "nowhere" / "data", scale=0.001)
    assert not list(tmp_path.iterdir())
