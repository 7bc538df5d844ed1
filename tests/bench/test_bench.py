"""fedmpi.bench, on a small problem: it measures, and it notices other work."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from jobs import people
from runs import launcher, limit

from fedmpi import models
from fedmpi.bench.__main__ import read_command_line
from fedmpi.bench.plain import PieceLoop, PlainLoop
from fedmpi.bench.results import Row, draw, write
from fedmpi.bench.rounds import shares
from fedmpi.errors import UserError

SMALL = ["--target", "y", "--group", "g", "--setting", "SSG", "--model", "mlp"]


def a_row(**changes: object) -> Row:
    row = Row("rounds", "step", "fedmpi, 3 ranks", 3, "MPICH", 0.5, 0.4, 0.6, 1.0, 0.1, 0.2, 5, 1.0)
    return Row(**(vars(row) | changes))


@pytest.mark.launch
@pytest.mark.once
@pytest.mark.parametrize("ranks", ["1", pytest.param("13", marks=pytest.mark.slow)])
def test_rounds_are_measured_and_are_the_same_work(tmp_path, ranks):
    """It ends with an error if theta is not the plain loop's."""
    command = [sys.executable, "-m", "fedmpi.bench", "--parts", "rounds", "--ranks", *ranks]
    command += ["--repeats", "1", "--block", "1", "--clients", "4", "--pythons", sys.executable]
    command += [
        "--output",
        str(tmp_path),
        "--",
        "--dataset",
        f"csv:{people(tmp_path / 'people.csv')}",
    ]
    command += [*SMALL, "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, env=launcher(), capture_output=True, text=True, timeout=limit())
    assert done.returncode == 0, done.stdout + done.stderr
    with open(tmp_path / "bench.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["ranks"], r["task"]) for r in rows] == [
        (number, task) for number in ranks for task in ("epoch", "step")
    ]
    assert all(float(r["ratio"]) > 0 and float(r["base"]) > 0 for r in rows)
    # With one rank nobody waits; with more than the cores they wait for these.
    noted = [1 + len(os.sched_getaffinity(0)) >= 3 if r["ranks"] == "3" else False for r in rows]
    assert ["of each other; exchange" in r["note"] for r in rows] == noted


def test_what_the_messages_take_is_not_what_ranks_wait_for_each_other():
    """Two rounds of two ranks, of 1 s each: a slow rank is no message."""
    first = [(1.0, 0.9, 0.5), (1.0, 0.6, 0.5)]
    second = [(1.0, 0.3, 0.6), (1.0, 0.8, 0.6)]
    found = shares([first, second])
    assert found["exchange"] == pytest.approx(1 - (0.9 + 0.8) / 2)
    assert found["uneven"] == pytest.approx(0.2)


def test_pieces_make_the_step_of_the_plain_loop():
    """Clients that take one step each, averaged by rows, are one step on all rows."""
    draw_ = torch.Generator().manual_seed(0)
    shards = [
        (torch.randn(n, 3, generator=draw_).double(), torch.randint(0, 2, (n,), generator=draw_))
        for n in (5, 11, 2)
    ]
    modules = [models.build("mlp", (3,), 2, seed=0).double() for _ in range(2)]
    plain = PlainLoop(modules[0], shards, "cross-entropy", 0.1, None)
    pieces = PieceLoop(modules[1], shards, "cross-entropy", 0.1, 4)
    start = plain.theta()
    for _ in range(3):
        plain.round()
        pieces.round()
    assert torch.allclose(plain.theta(), pieces.theta(), rtol=1e-12)
    assert not torch.allclose(plain.theta(), start)


def test_the_order_of_rows_matters_to_batches_alone():
    shard = [(torch.randn(9, 3).double(), torch.randint(0, 2, (9,)))]
    ends = []
    for batch, order in ((None, None), (None, 1), (4, None), (4, 1)):
        module = models.build("mlp", (3,), 2, seed=0).double()
        loop = PlainLoop(module, shard, "cross-entropy", 0.1, batch)
        loop.round((lambda k: np.arange(9)[::-1].copy()) if order else None)
        ends.append(loop.theta())
    assert torch.allclose(ends[0], ends[1], rtol=1e-12)
    assert not torch.allclose(ends[2], ends[3], rtol=1e-6)


def test_the_table_has_every_row(tmp_path):
    rows = [a_row(), a_row(task="epoch", cpu_ratio=None, note="busy")]
    write(tmp_path, ["a head"], rows)
    lines = (tmp_path / "bench.md").read_text().splitlines()
    assert lines[0] == "a head" and len(lines) == 4 + len(rows)
    assert "0.50 | 0.40–0.60 | 1.00" in lines[4] and lines[5].endswith("| busy |")
    with open(tmp_path / "bench.csv", newline="") as file:
        assert [r["task"] for r in csv.DictReader(file)] == ["step", "epoch"]


def test_the_figure_shows_ratios_to_the_plain_loop(tmp_path):
    pytest.importorskip("matplotlib")
    assert draw(tmp_path / "bench.svg", [a_row()])
    assert "<svg" in (tmp_path / "bench.svg").read_text()
    assert not draw(tmp_path / "none.svg", [a_row(part="startup")])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ranks", "0"], "at least 1"),
        (["--ranks", "42"], "40 clients fill 41 ranks"),
        (["--pythons", "/no/such/python"], "no mpirun beside it"),
    ],
)
def test_bad_options_are_named(arguments, words):
    with pytest.raises(UserError, match=words):
        read_command_line(arguments)


def test_an_environment_that_is_being_made_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("fedmpi.bench.__main__.REPOSITORY", tmp_path)
    made = tmp_path / ".venv-openmpi/bin"
    made.mkdir(parents=True)
    (made / "python").touch()
    assert read_command_line([]).pythons == [Path(sys.executable)]
    (made / "mpirun").touch()
    assert read_command_line([]).pythons == [Path(sys.executable), made / "python"]
