"""Print how far apart runs end that would be equal but for rounding.

On other layouts, or, by Lemma 2, those of FedMinMax in other settings and of `centralized`:

    for s in ESG PSG SSG; do
        python -m fedmpi.train --dataset fashionmnist --setting $s --output runs/rounding-$s
    done
    python -m fedmpi.train --dataset fashionmnist --method centralized --output runs/rounding-one
    python benchmarks/rounding.py runs/rounding-*

For each run against the first: the largest difference of an entry of the last theta and of the
mean of theta, over the largest entry; of the worst test risk; and of a group's risk on its
training rows after some rounds (history.csv).
"""

import csv
import json
import math
import sys
from pathlib import Path

import torch

LEMMA_2 = ("setting", "method", "clients", "skew", "output")
"""What may differ beside the layout: whoever holds which rows, the steps are the same."""
ROUNDS = (10, 30, 100, 300, 1000, 3000)


def theta(folder: Path, model: str) -> torch.Tensor:
    state = torch.load(folder / "model.pt", weights_only=True)[model]
    return torch.cat([p.reshape(-1) for p in state.values()]).double()


def risks(folder: Path) -> dict[int, list[float]]:
    """The groups' training risks by round."""
    with (folder / "history.csv").open(encoding="utf-8") as file:
        return {
            int(row["round"]): [float(x or "nan") for n, x in row.items() if n.startswith("risk/")]
            for row in csv.DictReader(file)
        }


def identity(folder: Path) -> dict:
    told = json.loads((folder / "config.json").read_text())["science"]
    return {name: value for name, value in told.items() if name not in LEMMA_2}


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((b - a).abs().max() / a.abs().max()).item()


def main(first: str, *others: str) -> None:
    reference = Path(first)
    known, history = identity(reference), risks(reference)
    worst = json.loads((reference / "result.json").read_text())["worst_risk"]
    print(f"against {first}, {known['rounds']} rounds, {known['dtype']}, worst {worst:.4f}:")
    for folder in map(Path, others):
        if (mine := identity(folder)) != known:
            other = sorted(n for n in known | mine if known.get(n) != mine.get(n))
            sys.exit(f"{folder} is of another configuration: {', '.join(other)}")
        last, mean = (gap(theta(reference, m), theta(folder, m)) for m in ("last", "averaged"))
        risk = json.loads((folder / "result.json").read_text())["worst_risk"] - worst
        print(f"  {folder}: last theta {last:.1e}, mean {mean:.1e}, worst test risk {risk:+.1e}")
        rows = risks(folder)
        for limit in ROUNDS:
            t = max((t for t in rows.keys() & history.keys() if t <= limit), default=0)
            if t <= limit / 2 or limit > 2 * max(rows):
                continue
            pairs = zip(history[t], rows[t], strict=True)
            known_gaps = [abs(x - y) for x, y in pairs if not math.isnan(x + y)]
            print(f"    a group's training risk, round {t:5,}: {max(known_gaps):.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
