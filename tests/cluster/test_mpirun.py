"""Ranks on several hosts, started by mpirun over ssh."""

import contextlib
import os
import re
from pathlib import Path

import pytest
from bed import FOR_HOSTS, Bed, missing
from jobs import people
from runs import Run
from starts import LONG, difference, mpirun, train

pytestmark = [pytest.mark.cluster, pytest.mark.launch]


@pytest.mark.once
def test_a_bed_leaves_nothing_behind(tmp_path):
    if why := missing(FOR_HOSTS):
        pytest.skip(why)
    with Bed(tmp_path / "net", hosts=2) as bed:
        bed.serve("sleep", "1000", host=2)
        assert bed.run("touch", f"/dev/shm/{tmp_path.name}", bed.disk / "mine").returncode == 0
        assert bed.run("ls", "/dev/shm", host=2).stdout == ""
        assert bed.run(bed.ssh, "n2", "hostname").stdout == "n2\n"
        names = {os.readlink(f"/proc/{host.pid}/ns/net") for host in bed.hosts}
        assert len(names) == 2 and names <= set(networks())
    assert not names & set(networks())
    assert not Path("/dev/shm", tmp_path.name).exists()
    assert not list(bed.disk.iterdir()) and str(tmp_path) not in Path("/proc/mounts").read_text()


def networks() -> list[str]:
    """The network namespaces of all processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end while we look
            found.append(os.readlink(process / "ns/net"))
    return found


def test_mpirun_over_three_hosts_gives_the_theta_of_one_process(bed, tmp_path, one_process):
    """With sums within each host first; those of the next test are flat."""
    command = [*mpirun(bed, 5), *train(tmp_path, "run"), "--reduce", "hierarchical"]
    done = bed.run(*command, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    run = Run(tmp_path / "run")
    assert run.config["layout"]["hosts"] == ["n1", "n1", "n2", "n2", "n3"]
    assert run.config["layout"]["reduce"] == "hierarchical"
    assert difference(run.theta(), one_process.theta()) < 1e-9


def test_hosts_that_share_no_disk_each_need_the_data(bed, tmp_path, one_process):
    """First n1 alone has the file, then all of them have it, each on a disk of its own."""
    people(tmp_path / "people.csv")
    command = [*mpirun(bed, 3, slots=1), *train(bed.disk, "run")]
    command[command.index("--output") + 1] = tmp_path / "run"
    assert bed.run("cp", tmp_path / "people.csv", bed.disk).returncode == 0
    done = bed.run(*command, timeout=LONG)
    assert done.returncode == 2 and not (tmp_path / "run").exists(), done.stderr
    (line,) = re.findall(r"^fedmpi: .*", done.stderr, re.MULTILINE)
    assert "n2, n3 cannot prepare the data: " in line and "people.csv" in line
    for host in (2, 3):
        assert bed.run("cp", tmp_path / "people.csv", bed.disk, host=host).returncode == 0
    done = bed.run(*command, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "prepared" in bed.run("ls", bed.disk / "data", host=3).stdout
    assert difference(Run(tmp_path / "run").theta(), one_process.theta()) < 1e-9
