"""`python trained_job.py nmf|lda|mlr|lasso …` is `hocket paramserver …`, with its imports at the top.

So a job that is prepared (`warm`) has done them before it has its hosts.
"""

import hocket.cli.paramserver
import hocket.runtimes.paramserver.applications.lasso
import hocket.runtimes.paramserver.applications.lda
import hocket.runtimes.paramserver.applications.mlr
import hocket.runtimes.paramserver.applications.nmf  # noqa: F401
from hocket.cli.main import run

if __name__ == "__main__":
    import sys

    sys.argv[1:1] = ["paramserver"]
    run()
