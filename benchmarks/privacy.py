"""Draw the worst group's test risk on Adult against epsilon, for FedMinMax and FedAvg's one step.

    python benchmarks/privacy.py OUT [options of fedmpi.train]

Trains both on 3 ranks with 40 clients (PSG) for each epsilon and seed; `none` has exact sums
without noise and without clipping. FedAvg's one step is FedMinMax whose weights stay the groups'
shares (--lr-mu 0 --epsilon 0). Writes OUT/privacy.csv, and OUT/privacy.svg.
"""

import csv
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EPSILONS = ("0.5", "1", "2", "4", "8", "none")
SEEDS = range(3)
METHODS = {"FedMinMax": [], "FedAvg, one step": ["--lr-mu", "0", "--epsilon", "0"]}


def train(options: list[str], folder: str) -> dict:
    """Train, and return the result."""
    mpirun = [str(Path(sys.executable).with_name("mpirun")), "-n", "3", sys.executable]
    common = ["--dataset", "adult", "--setting", "PSG", "--clients", "40", "--progress", "none"]
    command = [*mpirun, "-m", "fedmpi.train", *common, *options, "--force", "--output", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads((Path(folder) / "result.json").read_text())


def main() -> None:
    out, *given = sys.argv[1:]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, method in METHODS.items():
            for epsilon in EPSILONS:
                for seed in SEEDS:
                    budget = ["--sums", "exact"] if epsilon == "none" else ["--dp-epsilon", epsilon]
                    result = train([*method, *budget, "--seed", str(seed), *given], folder)
                    rows.append((name, epsilon, seed, result["worst_risk"], result["average_risk"]))
                print(*rows[-1][:2], *(round(row[3], 4) for row in rows[-len(SEEDS) :]), flush=True)
    with open(Path(out) / "privacy.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("method", "epsilon", "seed", "worst_risk", "average_risk"))
        writer.writerows(rows)
    draw(Path(out) / "privacy.svg", rows)


def draw(path: Path, rows: list[tuple]) -> None:
    """Draw means over the seeds, with their deviations."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fedmpi"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.4))
    for name, style in zip(METHODS, ("o-", "s--"), strict=True):
        risks = [[row[3] for row in rows if row[:2] == (name, epsilon)] for epsilon in EPSILONS]
        means, errors = map(statistics.mean, risks), map(statistics.stdev, risks)
        axes.errorbar(
            range(len(EPSILONS)), list(means), list(errors), fmt=style, capsize=3, label=name
        )
    axes.set_xticks(range(len(EPSILONS)), EPSILONS)
    axes.set_xlabel("epsilon (delta 1e-5); none: no noise, no clipping")
    axes.set_ylabel("worst group's test risk")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
