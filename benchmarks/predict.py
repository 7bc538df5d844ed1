"""Rows a second of fedmpi.predict on a large file, beside a plain torch loop on prepared arrays.

    python benchmarks/predict.py --rows 1000000

Adult's raw rows are repeated into a CSV file, which predict reads, encodes, scores and writes with
the predictions. The loop has the inputs in memory already, and keeps the probabilities there. Each
is a process of its own with one thread of torch's; the two take turns, and the best of --times
counts. Memory is the peak of predict's process; a tenth of the rows shows what the rows take of it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fedmpi.data.datasets.adult import COLUMNS

LOOP = """
import sys, time, json
import numpy as np, torch
from pathlib import Path
from fedmpi import models
from fedmpi.data.store import Prepared
run, folder, rows = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
x = np.resize(Prepared.open(folder).array("train_x"), (rows, 91))
state = torch.load(run / "model.pt", weights_only=True)["averaged"]
module = models.build("mlp", (91,), 2, 0)
module.load_state_dict(state)
began, cpu, found = time.perf_counter(), time.process_time(), []
with torch.no_grad():
    for start in range(0, rows, 1024):
        found.append(torch.softmax(module(torch.from_numpy(x[start:start + 1024])), dim=1))
p = torch.cat(found)
took = time.perf_counter() - began, time.process_time() - cpu
print(json.dumps({"seconds": took[0], "cpu": took[1]}))
"""
PREDICT = """
import sys, time, json, resource
from fedmpi.predict import main
from fedmpi.scoring import chunks, prediction, sources  # imports are not what is measured
began, cpu = time.perf_counter(), time.process_time()
assert main(sys.argv[1:]) == 0
took = time.perf_counter() - began, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": took[0], "cpu": took[1], "mb": peak}))
"""


def measured(program: str, *words: object) -> dict:
    command = [sys.executable, "-c", program, *map(str, words)]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # more would spin where others are busy
    done = subprocess.run(command, env=one_thread, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def write_rows(path: Path, raw: str, rows: int) -> None:
    lines = raw.strip().splitlines()
    with open(path, "w", encoding="utf-8") as file:
        file.write(",".join(COLUMNS) + "\n")
        file.writelines(f"{lines[i % len(lines)]}\n" for i in range(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--data-dir", default="data")
    args = parser.parse_args()
    data = Path(args.data_dir)
    with tempfile.TemporaryDirectory() as folder:
        run, table = Path(folder) / "run", Path(folder) / "rows.csv"
        words = f"--dataset adult --rounds 3 --limit-train 2000 --clients 4 --output {run}"
        subprocess.run(
            [sys.executable, "-m", "fedmpi.train", *words.split(), "--data-dir", data], check=True
        )
        raw = (data / "raw/adult/adult.data").read_text()
        write_rows(table, raw, args.rows)
        loops, scored = [], []
        for _ in range(args.times):
            loops.append(measured(LOOP, run, data / "prepared/adult", args.rows))
            out = Path(folder) / "scored.csv"
            scored.append(measured(PREDICT, run, table, "--output", out, "--force"))
        write_rows(table, raw, args.rows // 10)
        small = measured(PREDICT, run, table, "--output", out, "--force")
    for what, key in (("of CPU time", "cpu"), ("of wall time", "seconds")):
        plain, ours = (min(one[key] for one in some) for some in (loops, scored))
        rates = f"{args.rows / plain:,.0f} and {args.rows / ours:,.0f}"
        print(f"rows a second {what}, loop and predict: {rates}, {plain / ours:.2f} of it")
    peak = max(one["mb"] for one in scored)
    print(f"peak memory: {peak:,.0f} MB; with a tenth of the rows {small['mb']:,.0f} MB")


if __name__ == "__main__":
    main()
