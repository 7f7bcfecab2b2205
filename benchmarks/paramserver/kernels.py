"""The applications' kernels inside the runtime, beside scikit-learn in the same run (and gensim, where it is there)."""

from __future__ import annotations

import time
import warnings
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.machine import table
from hocket.paramserver import Trained, train
from hocket.runtimes.paramserver.generators import generate
from hocket.runtimes.paramserver.readers import read_bags_of_words

_FACTS = {
    "lda": 6.1,
    "nmf": 27.9,
}  # millions of words and ratings a second, one core, of the project's own measurements
_CLOSE = 1e-3  # how close to scikit-learn's objective, as a ratio


def measured(quick: bool) -> dict[str, Any]:
    """All of it."""
    with TemporaryDirectory(prefix="hocket-bench-") as folder:
        found: dict[str, Any] = {
            "lda": [_lda(Path(folder), topics, quick) for topics in (10, 20, 50)],
            "nmf": [_nmf(Path(folder), rank, quick) for rank in (8, 16, 64)],
        }
        found["lda_peers"] = _lda_peers(Path(folder), found["lda"][1]["millions_a_second"])
        found["solvers"] = [_mlr(Path(folder), quick), _lasso(Path(folder), quick)]
        return found


def text(found: dict[str, Any]) -> list[str]:
    """As tables."""
    rows = [
        (f"{name}, {of['what']}", f"{of['millions_a_second']:.1f}", f"{_FACTS[name]:g}")
        for name in ("lda", "nmf")
        for of in found[name]
    ]
    lines = ["KERNELS (millions of words or ratings a CPU-second, whole iterations, one worker, best of 7)"]
    lines += table(("", "M/s", "measured before (size not noted)"), rows)
    lines += ["", "LDA BESIDE OTHERS (20 topics, one pass over the same words, a CPU-second; ours as above)"]
    lines += table(
        ("", "M words/s", "ours is × as fast"),
        [(of["name"], f"{of['millions_a_second']:.3f}", f"{of['ratio']:.0f}") for of in found["lda_peers"]],
    )
    lines += [
        "",
        f"CPU-SECONDS TO WITHIN {_CLOSE:.1%} OF SCIKIT-LEARN'S OBJECTIVE (it stops by its own tolerance)",
    ]
    lines += table(
        ("", "scikit-learn", "ours", "ratio", "objective theirs", "ours"),
        [
            (
                of["name"], f"{of['theirs_s']:.2f}", f"{of['ours_s']:.2f}", f"{of['theirs_s'] / of['ours_s']:.2f}",
                f"{of['their_objective']:.5g}", f"{of['our_objective']:.5g}",
            )
            for of in found["solvers"]
        ],
    )  # fmt: skip
    return lines


def _trained(
    application: str, data: Path, epochs: int, options: dict[str, Any], on_epoch: Any = None, **more: Any
) -> Trained:
    algorithm, blocks = _loaded(application, data, options)
    return train(algorithm, blocks, workers=1, epochs=epochs, on_epoch=on_epoch, **more)


def _loaded(application: str, data: Path, options: dict[str, Any]) -> Any:
    return import_module(f"hocket.runtimes.paramserver.applications.{application}").load(data, 8, 8, **options)


def _rate(application: str, data: Path, options: dict[str, Any], count: int) -> float:
    """Millions a CPU-second in the best of the epochs after those in which kernels are loaded and states made."""
    ends_s: list[float] = []
    _trained(application, data, 9, options, lambda _end: ends_s.append(time.process_time()), objective_every=0)
    return count / min(after - before for before, after in pairwise(ends_s[1:])) / 1e6


def _lda(folder: Path, topics: int, quick: bool) -> dict[str, Any]:
    data = folder / "bags.txt"
    if not data.exists():
        generate("lda", data, "large", 0.1 if quick else 1.0)
    count = int(read_bags_of_words(data).counts.sum())
    rate = _rate("lda", data, {"topics": topics}, count)
    return {"what": f"{topics} topics", "words": count, "millions_a_second": rate}


def _lda_peers(folder: Path, ours: float) -> list[dict[str, Any]]:
    from sklearn.decomposition import LatentDirichletAllocation

    bags = read_bags_of_words(folder / "bags.txt")
    from scipy.sparse import csr_matrix

    counts = csr_matrix((bags.counts, (bags.document, bags.word)), shape=(bags.documents, bags.words))
    words = int(bags.counts.sum())

    def pass_s(iterations: int) -> float:
        began_s = time.process_time()
        LatentDirichletAllocation(20, doc_topic_prior=0.1, topic_word_prior=0.01, max_iter=iterations).fit(counts)
        return time.process_time() - began_s

    rates = [("scikit-learn", words * 2 / max(pass_s(3) - pass_s(1), 1e-9) / 1e6)]
    try:
        from gensim.models import LdaModel
    except ImportError:
        pass  # `pip install gensim` adds it.
    else:
        corpus = [list(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in counts]
        began_s = time.process_time()
        LdaModel(corpus, num_topics=20, passes=1, eval_every=None)
        rates.append(("gensim", words / (time.process_time() - began_s) / 1e6))
    return [{"name": name, "millions_a_second": rate, "ratio": ours / rate} for name, rate in rates]


def _nmf(folder: Path, rank: int, quick: bool) -> dict[str, Any]:
    data = folder / "ratings.txt"
    if not data.exists():
        generate("nmf", data, "small", 0.05 if quick else 0.5)
    count = sum(1 for _ in data.open())
    return {"what": f"rank {rank}", "ratings": count, "millions_a_second": _rate("nmf", data, {"rank": rank}, count)}


def _mlr(folder: Path, quick: bool) -> dict[str, Any]:
    from sklearn.datasets import load_svmlight_file
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    data, penalty = folder / "classes.txt", 1e-2
    generate("mlr", data, "small", 0.02 if quick else 0.2)
    x, y = load_svmlight_file(str(data))
    began_s = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That its limit is reached is shown by its objective.
        fitted = LogisticRegression(C=1 / (penalty * len(y)), max_iter=500).fit(x, y)
    theirs_s = time.process_time() - began_s
    theirs = float(log_loss(y, fitted.predict_proba(x)) + penalty / 2 * np.square(fitted.coef_).sum())
    return _solver("mlr", data, {"l2": penalty}, theirs_s, theirs)


def _lasso(folder: Path, quick: bool) -> dict[str, Any]:
    from sklearn.datasets import load_svmlight_file
    from sklearn.linear_model import Lasso

    data, penalty = folder / "regression.txt", 1e-2
    generate("lasso", data, "small", 0.02 if quick else 0.2)
    x, y = load_svmlight_file(str(data))
    columns = x.tocsc()
    columns.indices, columns.indptr = columns.indices.astype(np.int32), columns.indptr.astype(np.int32)
    began_s = time.process_time()
    fitted = Lasso(alpha=penalty, fit_intercept=False).fit(columns, y)
    theirs_s = time.process_time() - began_s
    theirs = float(np.square(x @ fitted.coef_ - y).mean() / 2 + penalty * np.abs(fitted.coef_).sum())
    return _solver("lasso", data, {"l1": penalty}, theirs_s, theirs)


def _solver(application: str, data: Path, options: dict[str, Any], theirs_s: float, theirs: float) -> dict[str, Any]:
    """Ours until it is as good; reading the data is counted for neither."""
    _trained(application, data, 1, options)  # Kernels are loaded.
    algorithm, blocks = _loaded(application, data, options)
    began_s = time.process_time()
    found = train(
        algorithm, blocks, workers=1, epochs=1000, on_epoch=None, target=theirs * (1 + _CLOSE), objective_every=5
    )
    ours_s = time.process_time() - began_s
    return {
        "name": application, "theirs_s": theirs_s, "ours_s": ours_s, "their_objective": theirs,
        "our_objective": found.objective,
    }  # fmt: skip
