"""csv:DIR/ with --secure --keys: each rank sees its own owner's file and private key, as on a host.

The server has neither.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import people
from runs import Run, launch

from fedmpi import keys

pytestmark = [pytest.mark.launch, pytest.mark.once]
OWNERS = {"ash": 110, "birch": 80, "oak": 50}
"""Rows of each owner: the first rank hosts the one with most."""
OPTIONS = [
    *("--dataset", "csv:rows/", "--target", "y", "--group", "g", "--rounds", "4"),
    *("--model", "logistic", "--solver", "paper", "--lr-mu", "0.1", "--progress", "none"),
]


@pytest.fixture
def hosts(tmp_path, capsys) -> Path:
    """A folder for the server, and one for each owner: its rows, its .key, and everybody's .pub."""
    head, *rows = people(tmp_path / "people.csv").read_text().splitlines()
    (tmp_path / "server").mkdir()
    for name, many in OWNERS.items():
        own, rows = rows[:many], rows[many:]
        for folder in (tmp_path / name / "rows", tmp_path / "all/rows"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.csv").write_text("\n".join([head, *own]) + "\n")
        assert keys.main([name, "--dir", str(tmp_path / name / "keys")]) == 0
    for name in OWNERS:
        for other in set(OWNERS) - {name}:
            shutil.copy(tmp_path / other / f"keys/{other}.pub", tmp_path / name / "keys")
    capsys.readouterr()
    return tmp_path


def on_hosts(hosts: Path) -> subprocess.CompletedProcess:
    """Start a rank in each of the folders, by one mpirun."""
    train = [sys.executable, "-m", "fedmpi.train", *OPTIONS, "--output", "run"]
    train += ["--secure", "--keys", "keys"]
    command = ["mpirun"]
    for name in ("server", *OWNERS):
        command += ["-n", "1", "-wdir", str(hosts / name), *train, ":"]
    return launch(command[:-1])


def test_owners_are_known_by_their_names(hosts, train):
    done = on_hosts(hosts)
    assert done.returncode == 0, done.stderr
    run = Run(hosts / "server/run")
    note = r"sums are masked by keys in keys: ([0-9a-f]{4} ){5}[0-9a-f]{4}"
    assert any(re.fullmatch(note, text) for text in run.config["notes"])
    options = [*OPTIONS, "--sums", "exact", "--min-count", "5"]
    options[1] = f"csv:{hosts}/all/rows/"
    alone = train(*options)
    assert run.result["receipt"]["sha256"] == alone.result["receipt"]["sha256"]
    assert not list(hosts.rglob("server/**/*.key"))


def test_who_has_not_the_key_of_a_name_is_found(hosts):
    for kind in ("key", "pub"):
        (hosts / f"birch/keys/birch.{kind}").unlink()
    assert keys.main(["birch", "--dir", str(hosts / "birch/keys")]) == 0
    done = on_hosts(hosts)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("fedmpi:")]
    assert "rank 2 (birch) does not have the same keys as ranks 1, 3: its birch.key is not" in line
    assert not (hosts / "server/run").exists()
