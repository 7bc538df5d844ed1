"""Solve the games of AFL and FedMinMax on synthetic data without training: where runs must end.

All that x says in these data is its sign. So a model is two numbers h, and the Brier risk of any
set of rows is a quadratic of h: the smallest worst risk, over clients for AFL and over groups for
FedMinMax, is a small convex problem. A run can be compared with the test risk by group of the
problem's solution; the table shows how this risk depends on the rows that a client has:

    python benchmarks/afl_game.py --rows 10000 40000 200000 2000000
"""

import argparse

import numpy as np
from scipy.optimize import minimize

from fedmpi.data import find
from fedmpi.data.datasets.synthetic import U, draw
from fedmpi.data.partition import partition


def minimax(x: np.ndarray, y: np.ndarray, player: np.ndarray) -> np.ndarray:
    """Numbers h that minimise the largest risk among the players; `player` is of each row."""
    side = (x[:, 0] > 0).astype(int)
    rows, ones = (np.zeros((player.max() + 1, 2)) for _ in range(2))
    np.add.at(rows, (player, side), 1)
    np.add.at(ones, (player, side), y)
    size = rows.sum(axis=1, keepdims=True)
    share, positive = rows / size, ones / size

    def risks(h: np.ndarray) -> np.ndarray:
        return 2 * (share @ h**2 - 2 * positive @ h + positive.sum(axis=1))

    def slack(z: np.ndarray) -> np.ndarray:
        return z[2] - risks(z[:2])

    def slope(z: np.ndarray) -> np.ndarray:
        return np.column_stack([4 * (positive - share * z[:2]), np.ones(len(share))])

    solved = minimize(
        lambda z: z[2],
        [0.2, 0.7, 0.5],
        jac=lambda z: np.array([0.0, 0.0, 1.0]),
        constraints={"type": "ineq", "fun": slack, "jac": slope},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    if not solved.success:
        raise RuntimeError(solved.message)
    return solved.x[:2]


def test_risks(h: np.ndarray) -> list[float]:
    """Expected test risk by group: each side of 0 has half of the rows."""
    return [float(np.sum(h**2 - 2 * h * u + u)) for u in U]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, nargs="+", default=[10_000, 200_000])
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = options.parse_args()
    dataset = find("synthetic")
    print("rows     seed  " + "".join(f"{name:18}" for name in ("AFL ESG", "AFL SSG", "FedMinMax")))
    for rows in options.rows:
        for seed in options.seeds:
            stream = np.random.SeedSequence([int.from_bytes(b"data", "big"), seed]).spawn(2)[0]
            x, y, group = draw(rows, np.random.default_rng(stream))
            players = [
                partition(group, dataset.groups, 40, s, dataset, skew=50, seed=seed).client_of_row
                for s in ("ESG", "SSG")
            ]
            risks = [test_risks(minimax(x, y, player)) for player in (*players, group)]
            cells = "".join(f"{worst:.4f} / {best:.4f}   " for worst, best in risks)
            print(f"{rows:<9}{seed:<6}{cells}")


if __name__ == "__main__":
    main()
