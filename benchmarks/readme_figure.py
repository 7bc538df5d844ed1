"""The README's picture: test risk of each group, a bar a method.

python benchmarks/readme_figure.py runs/adult-PSG-{fedavg,afl,fedminmax}-s0 -o docs/adult-psg.svg
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

NAMES = {"fedavg": "FedAvg", "afl": "AFL", "fedminmax": "FedMinMax"}
COLOURS = ("#b8c4cf", "#e0a458", "#1f6f8b")  # apart also for colour-blind readers and in print


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("runs", nargs=3, type=Path)
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    results = [json.loads((run / "result.json").read_text()) for run in a.runs]
    groups = list(results[0]["groups"])
    matplotlib.rcParams.update({"svg.hashsalt": "fedmpi", "font.size": 9})
    figure, axes = plt.subplots(figsize=(7.2, 2.9))
    for i, (result, colour) in enumerate(zip(results, COLOURS, strict=True)):
        risks = [result["groups"][g]["risk"] for g in groups]
        at = [x + 0.27 * (i - 1) for x in range(len(groups))]
        bars = axes.bar(at, risks, 0.25, color=colour, label=NAMES[result["method"]])
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.set_xticks(range(len(groups)), [g.replace(" earning ", "\nearning ") for g in groups])
    axes.set_ylabel("test risk (cross entropy)")
    setting, dataset = results[0]["setting"], results[0]["dataset"].capitalize()
    axes.set_title(f"{dataset}, {setting}: risk of each group", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(a.output, metadata={"Date": None})


if __name__ == "__main__":
    main()
