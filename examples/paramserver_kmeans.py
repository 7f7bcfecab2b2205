"""K-means on parameter servers: `python paramserver_kmeans.py`, alone, as a job of Hocket, or on several hosts."""

import numpy as np

from hocket.paramserver import Algorithm, DataBlock, train


class KMeans(Algorithm):
    def init(self, rng):
        return {"centres": rng.normal(0, 3, (5, 3)), "members": np.zeros((5, 1))}

    def compute(self, block, params):
        away, nearest = self.nearest(block, params)
        moves = np.zeros_like(params["centres"])
        np.add.at(moves, nearest, away)
        return {"centres": moves, "members": np.bincount(nearest, minlength=5)[:, None]}

    def apply(self, values, updates, _iteration):
        values["members"][:] = updates["members"]
        values["centres"][:] += updates["centres"] / np.maximum(updates["members"], 1)

    def objective(self, block, params):
        return float(np.square(self.nearest(block, params)[0]).sum())

    def nearest(self, block, params):
        away = block.data["points"][:, None] - params["centres"]
        nearest = np.square(away).sum(axis=2).argmin(axis=1)
        return away[np.arange(len(away)), nearest], nearest


if __name__ == "__main__":
    rng = np.random.default_rng(1)
    points = rng.normal(0, 1, (8, 500, 3)) + rng.normal(0, 3, (5, 3))[rng.integers(5, size=(8, 500))]
    blocks = [DataBlock(f"points {i}", {"points": part}) for i, part in enumerate(points)]
    trained = train(KMeans(), blocks, epochs=10)
    print("members:", *sorted(trained.model["members"][:, 0].astype(int)))
