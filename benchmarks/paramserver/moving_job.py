"""A job for `regroup.py`: a model of so many MB, of which an iteration needs little; it writes when iterations end."""

import os
import sys
import time

import numpy as np

from hocket.paramserver import Algorithm, DataBlock, train

ENDED, MB, COMP_S, EPOCHS = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
COLUMNS = 1000


class Sparse(Algorithm):
    """Every block adds 1 to some rows."""

    def init(self, _rng):
        return {"rows": np.zeros((max(100, int(MB * 1e6 / 4 / COLUMNS)), COLUMNS), np.float32)}

    def needs(self, _block):
        return {"rows": np.arange(0, 100, dtype=np.int64)}

    def compute(self, _block, params):
        time.sleep(COMP_S)
        return {"rows": np.ones_like(params["rows"])}

    def objective(self, _block, params):
        return -float(params["rows"][0, 0])


def note(end):
    with open(ENDED, "a") as file:
        file.write(f"{os.environ.get('HOCKET_ATTEMPT', '1')} {end.iteration} {time.time()}\n")


if __name__ == "__main__":
    blocks = [DataBlock(f"block {i}", {}) for i in range(4)]
    trained = train(Sparse(), blocks, workers=2, epochs=EPOCHS, objective_every=EPOCHS, on_epoch=note)
    if trained.model:
        assert trained.model["rows"][0, 0] == 4 * EPOCHS, trained.model["rows"][0, 0]
