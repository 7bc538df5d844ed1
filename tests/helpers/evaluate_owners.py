"""Train on owners' files, evaluate on others of theirs, and keep what each rank gives to MPI.

mpirun -n 4 python tests/helpers/evaluate_owners.py OUT

OUT/run is the run, OUT/figures.json what evaluating OUT/tests gave, OUT/refused.txt the line for
OUT/marked, where birch has cells that nobody else may see, and OUT/<case>-<rank>.pickle what the
rank gave away.
"""

import pickle
import sys
from pathlib import Path

from mpi4py import MPI
from owner_cases import HEADER, MARK, OWNERS, Given, csv, rows
from recorder import Recorder

from fedmpi import evaluate, train
from fedmpi.mpi.ranks import AgreedError, Ranks


def write_files(out: Path) -> None:
    """Write files to train on, to test with, and with marked cells."""
    for owner in OWNERS:
        table, test = rows(owner, 90), rows(f"{owner} test", 30)
        marked = [[f"{MARK}{i}", *row[1:]] for i, row in enumerate(test)]
        header = [f"{MARK} age", *HEADER[1:]]
        for folder, content in (
            ("owners", csv(table)),
            ("tests", csv(test)),
            ("marked", csv(marked) if owner == "birch" else csv(test)),
            ("renamed", csv(test, header) if owner == "birch" else csv(test)),
        ):
            (out / folder).mkdir(exist_ok=True)
            (out / folder / f"{owner}.csv").write_bytes(content)


def main() -> None:
    out, world, log = Path(sys.argv[1]), MPI.COMM_WORLD, Given()
    ranks = Ranks(world)
    ranks.on_server(lambda: write_files(out))
    sys.argv = [
        *("fedmpi.train", "--dataset", f"csv:{out / 'owners'}/", "--test", str(out / "tests")),
        *("--target", "ill", "--group", "sex,ill", "--rounds", "20", "--lr", "0.3"),
        *("--progress", "none", "--output", str(out / "run")),
        *("--metrics", "auc,calibration,odds"),
    ]
    train.main()
    evaluate.main(
        [
            *(str(out / "run"), f"csv:{out / 'tests'}/", "--output", str(out / "metrics.json")),
            *("--metrics", "auc,calibration,odds"),
        ]
    )
    for case in ("tests", "marked", "renamed"):
        log.begin()
        MPI.COMM_WORLD = Recorder(world, log)
        output = ["--output", str(out / "figures.json")] if case == "tests" else []
        try:
            evaluate.main([str(out / "run"), f"csv:{out / case}/", *output])
        except AgreedError as error:
            (out / f"{case}.txt").write_text(str(error))
        MPI.COMM_WORLD = world
        (out / f"{case}-{world.rank}.pickle").write_bytes(pickle.dumps(log.given))
        ranks.meet()


if __name__ == "__main__":
    main()
