"""Jobs under a real Slurm, submitted with the scripts of launch/slurm, edited as a user would."""

import re
import shlex
import sys
import time
from pathlib import Path

import pytest
import torch
from jobs import options as options_of_train
from runs import REPOSITORY, Run
from starts import LONG, difference, pmi, train, vendor

from fedmpi.scaling.results import read

pytestmark = [pytest.mark.cluster, pytest.mark.slurm, pytest.mark.launch]

SCRIPTS = REPOSITORY / "launch/slurm"


def edited(name: str, folder: Path, sbatch: str, train: str, *more: tuple[str, str]) -> Path:
    """A copy of a batch script, with the two lines that users edit, and this environment."""
    text = (SCRIPTS / name).read_text()
    edits = [(r"(# Edit 1.*\n)#SBATCH .*", rf"\1#SBATCH {sbatch}")]
    edits += [(r"(# Edit 2.*\n).*", rf"\1{train}")]
    edits += [(r"environment=\S+", f"environment={Path(sys.executable).parent.parent}")]
    for pattern, to in (*edits, *more):
        text, found = re.subn(pattern, to, text)
        assert found == 1, pattern
    script = folder / name
    script.write_text(text)
    return script


def options(folder: Path, *more: object, **named: int) -> str:
    """The line `train=(...)` of a script."""
    arguments = train(folder, "run", *more, **named)[3:]
    return f"train=({shlex.join(map(str, arguments))})"


def submit(slurm, script: Path, *more: str) -> tuple[int, Path]:
    """A job, and where its output goes."""
    log = script.with_suffix(".out")
    # The bed's hosts do not have the cores that Slurm believes them to have.
    return slurm.submit(script, *more, log, FEDMPI=str(REPOSITORY), FEDMPI_BIND="none"), log


def wait_for(slurm, job: int, log: Path, pattern: str) -> None:
    """Until the job has printed this."""
    end = time.monotonic() + LONG
    while not (log.exists() and re.search(pattern, log.read_text())):
        assert time.monotonic() < end and slurm.state(job) not in ("FAILED", "COMPLETED"), (
            log.read_text()
        )
        time.sleep(0.2)


@pytest.mark.parametrize("script", ["many-nodes.sbatch", "mpirun.sbatch"])
def test_a_job_on_three_nodes_gives_the_theta_of_one_process(slurm, tmp_path, one_process, script):
    job, log = submit(slurm, edited(script, tmp_path, "--nodes=3 --ntasks=5", options(tmp_path)))
    assert slurm.wait(job, LONG) == "COMPLETED", log.read_text()
    run = Run(tmp_path / "run")
    assert set(run.config["layout"]["hosts"]) == {"n1", "n2", "n3"}
    assert difference(run.theta(), one_process.theta()) < 1e-9


def test_srun_with_the_other_pmi_is_refused_with_the_right_one(slurm, tmp_path):
    done = slurm.run("srun", pmi(wrong=True), "-N3", "-n3", *train(tmp_path, "run"), timeout=LONG)
    assert done.returncode != 0 and f"srun {pmi()}" in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()


def test_a_job_is_requeued_then_cancelled_and_goes_on_both_times(slurm, tmp_path, longer):
    """USR1 comes as at the time limit; scancel after that; the third job ends the run."""
    rounds = longer.result["rounds"]
    script = edited(
        "requeue.sbatch",
        tmp_path,
        "--nodes=3 --ntasks=4 --time=30",
        f"{options(tmp_path, '--checkpoint-every', '1h', rounds=rounds)} output={tmp_path / 'run'}",
    )
    job, log = submit(slurm, script)
    wait_for(slurm, job, log, r"round 1/")
    slurm.ask(f"scancel --batch --signal=USR1 {job}")
    wait_for(slurm, job, log, r"stopped by .* saved(.|\n)*back into the queue")
    wait_for(slurm, job, log, r"going on after round \d+")
    first = checkpoint(tmp_path)
    slurm.ask(f"scancel {job}")
    assert slurm.wait(job, LONG) == "CANCELLED"
    assert len(re.findall("saved. Go on", log.read_text())) == 2, log.read_text()
    assert first < checkpoint(tmp_path) < rounds
    job, log = submit(slurm, script)
    assert slurm.wait(job, LONG) == "COMPLETED", log.read_text()
    run = Run(tmp_path / "run")
    assert difference(run.theta(), longer.theta()) < 1e-9
    assert [row["round"] for row in run.history] == [row["round"] for row in longer.history]


def checkpoint(folder: Path) -> int:
    """The round of the checkpoint."""
    return torch.load(folder / "run/checkpoint.pt", weights_only=True)["round"]


@pytest.mark.once
def test_gpu_ranks_lie_as_the_gpus_do(slurm, tmp_path):
    """Two GPUs a node, two ranks each: the server, and four client ranks on every node."""
    script = edited(
        "gpus.sbatch",
        tmp_path,
        "--nodes=3 --ntasks-per-node=5",
        "train=() ranks_per_gpu=2",
        (r"--cpus-per-task=4", "--cpus-per-task=1"),
        (r"python -m fedmpi.train.*", "bash -c 'echo $SLURM_PROCID on $(hostname)'"),
    )
    log = tmp_path / "gpus.out"
    job = slurm.submit(script, log, FEDMPI=str(REPOSITORY), FEDMPI_BIND="none", GPUS_PER_NODE="2")
    assert slurm.wait(job) == "COMPLETED", log.read_text()
    hosts = dict(re.findall(r"^(\d+) on (\w+)$", log.read_text(), re.MULTILINE))
    assert [hosts[str(r)] for r in range(13)] == ["n1"] * 5 + ["n2"] * 4 + ["n3"] * 4
    assert not list(REPOSITORY.glob(".hosts-*"))


@pytest.mark.once
def test_an_array_does_every_method_setting_and_seed_once(slurm, tmp_path):
    script = edited(
        "array.sbatch",
        tmp_path,
        "--array=0-12",
        "train=(--dataset adult)",
        (r"methods=\(.*", "methods=(fedminmax afl) settings=(ESG PSG SSG) seeds=(0 5)"),
        (r"--ntasks=11", "--ntasks=1"),
        (r"python -m fedmpi.train", "echo"),
    )
    job = slurm.submit(script, tmp_path / "%a.out", FEDMPI=str(REPOSITORY), FEDMPI_BIND="none")
    end = time.monotonic() + LONG
    while slurm.ask(f"squeue -h -j {job}"):
        assert time.monotonic() < end
        time.sleep(1)
    text = "".join(log.read_text() for log in tmp_path.glob("*.out"))
    found = re.findall(r"^--dataset adult --method (\w+) --setting (\w+) --seed (\d)", text, re.M)
    wanted = {(m, s, n) for m in ("fedminmax", "afl") for s in ("ESG", "PSG", "SSG") for n in "05"}
    assert set(found) == wanted and len(found) == len(wanted)
    assert "use --array=0-11" in (tmp_path / "12.out").read_text()


def test_scaling_is_measured_by_srun_within_an_allocation(slurm, tmp_path):
    """Points that need more tasks than the allocation has are left out."""
    data = options_of_train(tmp_path, "unused", 1)
    data = data[: data.index("--model")]
    study = [sys.executable, "-m", "fedmpi.scaling", "--quick", "--studies", "strong", "weak"]
    study += ["--ranks", "1", "2", "4", "8", "--clients", "8", "--rows", "0", "--seconds", ".1"]
    study += ["--rows-per-rank", "40", "--output", tmp_path / "study", "--", *data]
    done = slurm.run("salloc", "-N3", "-n5", *study, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read(tmp_path / "study/scaling.csv")
    ranks = {(row.study, row.client_ranks): row.hosts for row in rows}
    assert set(ranks) == {(name, n) for name in ("strong", "weak") for n in (1, 2, 4)}
    assert ranks["strong", 4] == 3 and ranks["strong", 1] == 1
    assert "64 nodes" in (tmp_path / "study/scaling.md").read_text()


@pytest.mark.once
def test_a_script_without_its_environment_says_so(slurm, tmp_path):
    script = edited("one-node.sbatch", tmp_path, "--ntasks=2", "train=()")
    script.write_text(re.sub(r"environment=\S+", "environment=.nowhere", script.read_text()))
    job, log = submit(slurm, script)
    assert slurm.wait(job) == "FAILED" and ".nowhere: submit from the clone" in log.read_text()


def test_mpi_is_told_from_the_library(slurm, tmp_path):
    """By what Python loads: the scripts choose srun's flag by it."""
    script = edited(
        "one-node.sbatch",
        tmp_path,
        "--ntasks=1",
        "train=()",
        (r"python -m fedmpi.train.*", "true"),
    )
    job, log = submit(slurm, script)
    assert slurm.wait(job) == "COMPLETED", log.read_text()
    assert f"fedmpi: {vendor()}: srun {pmi()}" in log.read_text()
