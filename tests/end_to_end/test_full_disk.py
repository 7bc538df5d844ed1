"""A disk that is full at a checkpoint, at the history or at the model: a line, and nothing lost."""

import os
import subprocess
import sys

import numpy as np
import pytest
from input_cases import TABLE
from runs import Run, launcher, limit

from fedmpi.errors import UserError

OPTIONS = [
    "--solver",
    "paper",
    "--target",
    "y",
    "--group",
    "g",
    "--clients",
    "4",
    "--progress",
    "none",
]


@pytest.fixture
def disk(tmp_path):
    """A disk of 128 kB in tmp_path/disk, where this may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"no mount: {error}")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def options(tmp_path):
    (tmp_path / "p.csv").write_text(TABLE)
    return ["--dataset", f"csv:{tmp_path / 'p.csv'}", *OPTIONS]


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_at_a_checkpoint_the_one_before_stands_and_the_run_goes_on_from_it(
    disk, options, train, tmp_path
):
    """The first checkpoint fits, the second does not fit beside it; then there is room again."""
    options = [*options, "--rounds", "4", "--checkpoint-every", "1", "--eval-every", "1"]
    with pytest.raises(UserError, match=r"cannot write .*checkpoint\.pt: No space left on device"):
        train(*options, output="disk/run")
    saved = {"config.json", "partition.npz", "history.csv", "checkpoint.pt", "ranks.json"}
    assert names(disk / "run") == saved
    assert [row["round"] for row in Run(disk / "run").history] == ["1", "2"]  # --resume cuts it
    subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
    resumed = train(*options, "--resume", output="disk/run")
    whole = train(*options, output="whole")
    assert np.array_equal(resumed.theta(), whole.theta())
    assert np.array_equal(resumed.theta("averaged"), whole.theta("averaged"))


def test_at_the_history(disk, options, train):
    rounds = ["--rounds", "700", "--checkpoint-every", "700", "--eval-every", "1"]
    with pytest.raises(UserError, match=r"cannot write .*history\.csv: No space left on device"):
        train(*options, *rounds, "--model", "logistic", output="disk/run")
    rows = [row["round"] for row in Run(disk / "run").history]
    assert rows == [str(t) for t in range(1, len(rows) + 1)]  # whole rows, as many as had room
    assert "result.json" not in names(disk / "run")
    assert not [name for name in names(disk / "run") if name.startswith(".")]


def test_at_the_model(disk, options, train):
    (disk / "filler").write_bytes(bytes(90_000))
    with pytest.raises(UserError, match=r"cannot write .*model\.pt: No space left on device"):
        train(*options, "--rounds", "1", output="disk/run")
    assert names(disk / "run") == {"config.json", "partition.npz", "history.csv", "ranks.json"}


def test_at_the_prepared_data(disk, options, train):
    (disk / "filler").write_bytes(bytes(125_000))
    with pytest.raises(UserError, match=r"cannot write .*No space left .*--data-dir"):
        train(*options, "--data-dir", disk, "--rounds", "1")
    assert not list((disk / "prepared").iterdir())


@pytest.mark.launch
@pytest.mark.once
def test_on_three_ranks_it_is_one_line_and_ends_them_all(disk, options, mpirun):
    options = [*options, "--rounds", "4", "--checkpoint-every", "1", "--output", disk / "run"]
    done = mpirun(3, "-m", "fedmpi.train", *options)
    assert done.returncode not in (0, None)
    said = [line for line in done.stderr.splitlines() if line.startswith("fedmpi:")]
    assert len(said) == 1 and "checkpoint.pt: No space left on device" in said[0]
    assert "Traceback" not in done.stderr
    assert names(disk / "run") >= {"config.json", "checkpoint.pt"}
    assert "result.json" not in names(disk / "run")


LIMITED = """
import resource
from fedmpi.mpi.start import run
from fedmpi.train import main

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # MPI has its own files by now
run(main)
"""


def test_where_nothing_can_be_mounted_a_limit_on_files_does_the_same(options, train, tmp_path):
    train(*options, "--rounds", "1")  # so that the data are prepared
    options = [*options, "--rounds", "2", "--checkpoint-every", "1", "--output", "out"]
    options += ["--data-dir", tmp_path / "data"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, options)],
        cwd=tmp_path,
        env=launcher(),
        capture_output=True,
        text=True,
        timeout=limit(),
    )
    assert done.returncode not in (0, None) and "Traceback" not in done.stderr
    assert done.stderr.count("fedmpi:") == 1 and "checkpoint.pt: File too large" in done.stderr
    assert "checkpoint.pt" not in names(tmp_path / "out")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_that_goes_to_a_full_disk(options, tmp_path):
    command = [sys.executable, "-m", "fedmpi.train", *options, "--rounds", "1"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            list(map(str, command)),
            cwd=tmp_path,
            env=launcher(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=limit(),
        )
    assert done.returncode not in (0, None)
    (line,) = done.stderr.splitlines()
    assert line.startswith("fedmpi: cannot print: No space left on device")


@pytest.mark.launch
@pytest.mark.once
def test_every_rank_ends_with_a_code_that_is_not_zero(mpirun, tmp_path):
    """Seen from outside, by a shell around each rank."""
    (tmp_path / "p.csv").write_text("u,v,g,y\n1,2,a,yes\n")
    script = tmp_path / "rank.py"
    script.write_text(
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'fedmpi.train', *sys.argv[1:]]\n"
        "code = subprocess.call(command, close_fds=False)\n"
        "open('codes', 'a').write(f'{code}\\n')\n"
        "sys.exit(code)\n"
    )
    done = mpirun(3, script, "--dataset", "csv:p.csv", *OPTIONS, "--output", "out")
    assert done.returncode != 0
    assert (tmp_path / "codes").read_text().split() == ["2", "2", "2"]
    assert done.stderr.count("fedmpi:") == 1 and "one value only" in done.stderr
