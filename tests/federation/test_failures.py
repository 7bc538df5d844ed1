"""--on-client-failure continue: what is left of a run is what it would be without those clients."""

import contextlib
import faulthandler
import functools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dying
import numpy as np
import pytest
from jobs import Job, options, people
from runs import REPOSITORY, Run, launch, limit
from ulfm import OPEN_MPI, ULFM, no_segments_left, split_by_owner, ulfm
from without import Federation

from fedmpi.run.arguments import resolve

CONTINUE = ["--on-client-failure", "continue"]
TOLERANCE = 1e-9


def difference(run: Run, arguments: list[str]) -> float:
    """How far theta and its mean are from those of a plain training without the lost clients."""
    config = resolve(arguments, client_ranks=1, one_process=False)
    last_round = {k: lost["last_round"] for lost in run.result["lost"] for k in lost["clients"]}
    stated = Federation(config, last_round).train()
    found = [run.theta(which) for which in ("last", "averaged")]
    assert found[0].dtype == np.float64
    return max(float(np.abs(a - b).max()) for a, b in zip(found, stated, strict=True))


@pytest.fixture(scope="module")
def launches(tmp_path_factory) -> Callable[[tuple[str, ...]], tuple[Path, str]]:
    """Runs of these names, each losing a rank at another point; and what was printed."""

    @functools.cache
    def launched(names: tuple[str, ...]) -> tuple[Path, str]:
        out = tmp_path_factory.mktemp("dying")
        command = ["mpirun", *ULFM, "-n", str(dying.ranks_for(names)), sys.executable]
        command += [str(REPOSITORY / "tests/helpers/dying.py")]
        table = people(out / "people.csv")
        split_by_owner(table, out / "people")
        command += [str(out), str(table), str(ROUNDS), *names]
        with no_segments_left():
            done = launch(command)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return out, done.stderr

    return launched


@pytest.fixture
def runs(request, launches) -> tuple[Path, str]:
    """The quick runs; for slow tests a run of every method."""
    slow = request.node.get_closest_marker("slow")
    return launches(tuple(dying.RUNS) if slow else dying.QUICK)


def arguments_of(out: Path, name: str) -> list[str]:
    return dying.arguments(
        name, str(out / "people.csv"), str(out / "data"), str(ROUNDS), str(out / name)
    )


ROUNDS = 6


@ulfm
@pytest.mark.launch
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in dying.QUICK else [pytest.mark.slow])
        for name in dying.RUNS
        if name != "owners"
    ],
)
def test_a_run_that_loses_a_rank_goes_on_as_without_its_clients(runs, name):
    out, _ = runs
    run = Run(out / name)
    (lost,) = run.result["lost"]
    t, _, what = dying.WHEN[name]
    assert lost["rank"] == 2 and lost["clients"]
    assert lost["last_round"] == (ROUNDS if what == "evaluate" else t - 1)
    arguments = arguments_of(out, name)
    assert difference(run, arguments) < TOLERANCE
    assert [int(row["round"]) for row in run.history] == [1, 2, 4, 6]
    groups = run.result["groups"].values()
    assert sum(g["n_test"] for g in groups) == 48  # those of the dead rank, too
    left = sum(g["n_train"] for g in groups)
    assert left == 192 if what == "evaluate" else left < 192
    # The test could not fail if the lost clients had made no difference.
    if what != "evaluate":
        lost["last_round"] = ROUNDS
        config = resolve(arguments, client_ranks=1, one_process=False)
        whole = Federation(config).train()[0]
        assert np.abs(run.theta("last") - whole).max() > 1e-6


@ulfm
@pytest.mark.launch
@pytest.mark.parametrize("names", [dying.QUICK, pytest.param(dying.RUNS, marks=pytest.mark.slow)])
def test_the_loss_is_told(runs, names):
    said = [line for line in runs[1].splitlines() if line.startswith("fedmpi: lost rank 2 (PID ")]
    assert len(said) == len(names) and all("with client" in line for line in said)
    for line, (t, _, what) in zip(said, (dying.WHEN[name] for name in names), strict=True):
        when = "after the last round" if what == "evaluate" else f"in round {t}"
        assert f"{when}, going on with" in line


@ulfm
@pytest.mark.launch
def test_a_group_that_lost_all_its_rows_leaves_the_game(runs):
    run = Run(runs[0] / "fedminmax")
    assert run.result["lost"][0]["groups"] == ["b"]
    groups = run.result["groups"]
    assert groups["b"]["n_train"] == groups["b"]["weight"] == 0 and groups["b"]["n_test"] == 12
    assert sum(g["weight"] for g in groups.values()) == pytest.approx(1)
    assert [row["risk/b"] == "nan" for row in run.history] == [False, False, True, True]
    assert all(float(row["worst"]) > 0 for row in run.history)
    assert "nobody has rows of b any more" in runs[1]


@ulfm
@pytest.mark.launch
def test_an_owner_is_lost_with_its_test_rows(runs):
    run = Run(runs[0] / "owners")
    (lost,) = run.result["lost"]
    assert lost["last_round"] == 3 and 0 < len(lost["clients"]) < 4
    with np.load(run.folder / "partition.npz") as partition:
        counts = partition["counts"]
    left = np.delete(counts, lost["clients"], axis=1).sum(axis=1)
    groups = run.result["groups"].values()
    assert [g["n_train"] for g in groups] == left.tolist()
    sizes = np.array([90, 70, 50, 30])
    rows = sum(g["n_train"] + g["n_test"] for g in groups)
    assert rows == np.delete(sizes, lost["clients"]).sum()
    arguments = arguments_of(runs[0], "owners")
    arguments[1] = f"csv:{runs[0] / 'people.whole.csv'}"
    assert difference(run, [*arguments, "--client", "who"]) < TOLERANCE


@ulfm
@pytest.mark.launch
def test_a_run_that_was_stopped_after_a_loss_goes_on_without_the_lost(runs):
    """It is compared above; here, that it was stopped."""
    assert Run(runs[0] / "momentum").config["resume"] is True


@pytest.mark.launch
def test_who_cannot_go_on_is_refused(mpirun, tmp_path):
    arguments = options(tmp_path, "run", 5, *CONTINUE)
    done = mpirun(3, "-m", "fedmpi.train", *arguments)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("fedmpi:")]
    assert done.returncode == 2 and "mpirun --with-ft ulfm" in line
    assert ("needs Open MPI 5" in line) != OPEN_MPI
    assert not (tmp_path / "run").exists()


METHODS = [
    "fedminmax --setting SSG --lr-mu 0.1",
    f"fedminmax {dying.MOMENTUM}",
    "afl --setting PSG --lr-mu 0.1",
    "localfedminmax --setting PSG --lr-mu 0.1 --optimizer adam --batch-rows 30 --lr 0.01",
    f"fedavg --setting SSG {dying.LOCAL}",
    f"term --setting PSG {dying.LOCAL}",
    f"qfedavg --setting PSG --q 1 {dying.LOCAL}",
]


def kill_a_random_client(folder: Path, i: int, ranks: int, clients: int, rounds: int) -> str:
    """One job that loses a random client rank at a random moment of its rounds or after them."""
    rng = random.Random(1000 * ranks + i)
    method, *more = METHODS[i % len(METHODS)].split()
    arguments = options(folder, f"run{i}", rounds, "--method", method, "--lr", "0.1", *more)
    arguments += ["--clients", str(clients), "--model", "mlp", "--dtype", "float64", *CONTINUE]
    arguments += [
        "--eval-every",
        "2",
        "--checkpoint-every",
        "2",
        "--skew",
        "2",
        "--stall-timeout",
        str(limit(100)),
    ]
    run = Run(folder / f"run{i}")
    with no_segments_left():
        job = Job(arguments, folder / f"log{i}", ranks=ranks, flags=ULFM)
        try:
            while "round 1/" not in job.text and job.process.poll() is None:
                time.sleep(0.02)
            victim, moment = rng.randrange(1, ranks), rng.randrange(1, rounds + rounds // 10)
            pid = job.client_ranks()[victim - 1]
            wait_for_round(job, run, min(moment, rounds - 2))
            time.sleep(rng.uniform(0, 0.05 if moment < rounds else 0.5))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            code = job.process.wait(limit())
        except (subprocess.TimeoutExpired, IndexError) as error:
            return f"{method}: {error} after the kill of rank {victim}: {job.text[-1500:]}"
        finally:
            job.kill()
    if code != 0:
        return f"{method}: exit code {code} after the kill of rank {victim}: {job.text[-1500:]}"
    lost = run.result["lost"]
    if [event["rank"] for event in lost] not in ([victim], []):
        return f"{method}: rank {victim} was killed, and lost are {lost}"
    if (far := difference(run, arguments)) > TOLERANCE:
        return f"{method}: {far} from what it should be, lost {lost}"
    when = f"after round {lost[0]['last_round']}" if lost else "when all was done"
    what = " with batches" if "--batch-rows" in more else ""
    who = f"{method}{what} lost rank {victim}"
    return f"well: {who} {when} of {rounds}, {far:.1e} from the statement"


def wait_for_round(job: Job, run: Run, t: int) -> None:
    """Until history.csv has this round, or the job is done."""
    while job.process.poll() is None and not (run.folder / "result.json").exists():
        with contextlib.suppress(OSError, ValueError, TypeError):  # a line that is half written
            if any(int(row["round"]) >= t for row in run.history):
                return
        time.sleep(0.002)


@ulfm
@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize(("ranks", "times"), [(6, 20), (41, 10)])
def test_random_clients_lost_at_random_moments(tmp_path, ranks, times):
    faulthandler.cancel_dump_traceback_later()  # it takes longer than what pytest takes for a hang
    times = int(os.environ.get("FEDMPI_KILLS", times))
    seen = []
    for i in range(times):
        clients = 10 if ranks == 6 else 40
        seen.append(kill_a_random_client(tmp_path, i, ranks, clients, rounds=60))
        print(f"\n{ranks} ranks, {i + 1}: {seen[-1]}", flush=True)
    assert [line for line in seen if not line.startswith("well")] == []
