"""Print how far apart runs of one configuration end on different layouts: by rounding alone.

    for n in 1 3 41; do
        mpirun -n $n python -m fedmpi.train --dataset adult --setting PSG --clients 40 \
            --rounds 200 --output runs/rounding-$n
    done
    python benchmarks/rounding.py runs/rounding-1 runs/rounding-3 runs/rounding-41
"""

import json
import sys
from pathlib import Path

import torch


def theta(folder: Path) -> torch.Tensor:
    state = torch.load(folder / "model.pt", weights_only=True)["last"]
    return torch.cat([p.reshape(-1) for p in state.values()]).double()


def main(first: str, *others: str) -> None:
    reference = json.loads((Path(first) / "config.json").read_text())
    a = theta(Path(first))
    worst = json.loads((Path(first) / "result.json").read_text())["worst_risk"]
    print(f"against {first}, {reference['rounds']} rounds, {reference['dtype']}:")
    for other in others:
        config = json.loads((Path(other) / "config.json").read_text())
        if config["science"] != reference["science"]:
            sys.exit(f"{other} is of another configuration")
        relative = ((theta(Path(other)) - a).abs().max() / a.abs().max()).item()
        risk = json.loads((Path(other) / "result.json").read_text())["worst_risk"] - worst
        ranks = config["layout"]["ranks"]
        print(f"  {ranks:3} ranks: theta {relative:.1e} (relative), worst test risk {risk:+.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
