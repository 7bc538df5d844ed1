"""What leaves a client rank, seen at MPI: docs/privacy.md, checked.

Nothing is taken from the code but what is documented: the expected vectors of the first round are
computed here, in numpy, from the rank's own rows.
"""

import json
import pickle
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from given import CLASSES, FEATURES, GROUPS, TABLES, Given, record
from owner_cases import CASES, MARK, NUMBER, OWNERS, csv, rows
from recorder import EVAL_EVERY, ROUNDS, RUNS
from runs import REPOSITORY, launch, limit

from fedmpi import methods, models
from fedmpi.report.__main__ import main as report
from fedmpi.run.arguments import REPLICATES

pytestmark = [pytest.mark.launch, pytest.mark.once]
LR = 0.5
THETA = CLASSES * (FEATURES + 1)
HONEST = [name for name in RUNS if name != "leaks"]
OF_ITSELF = 2
"""Numbers that a rank gives of itself in an evaluated round: the seconds that it computed, and a
sum over the bits of its theta."""
PLACE = [("gather", "NoneType"), ("gather", "Room"), ("gather", "Place")]
"""Nothing of the data, but from the first rank of a host; its shared memory, and where it runs."""
WINDOW = [("allreduce", "int")] * 2
"""With hierarchical sums: how many hosts there are, and that this rank has its part of a window."""
PAGE = 4096
REPORTS = {
    "fedminmax": "groups",
    "centralized": "groups",
    "localfedminmax": "cells",
    "afl": "clients",
    "fedavg": None,
    "qfedavg": None,
    "term": "clients",
    "term-sample": None,
    "ditto": None,
    "fedmgda": None,
    "propfair": None,
    "scaffold": None,
    "fedprox": None,
    "bgl": "groups",
    "scaffpd": "groups",
    "drfa": "clients",
    "fedfb": "groups",
    "gifair": "clients",
    "gifair-group": "groups",
    "fairfed": "cells",
    "eominmax": "groups",
}
"""What a method's report has, by docs/privacy.md."""
BESIDE = {"qfedavg": 1, "scaffold": THETA + 1, "scaffpd": THETA, "drfa": THETA}
"""Numbers beside the change of theta and the flag, in the sum of all ranks."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Every method on two tables, which differ in all but their shape, in one launch."""
    return record(tmp_path_factory.mktemp("privacy"), ranks=3)


def client_ranks(run: str) -> list[int]:
    return [1] if run == "centralized" else [1, 2]


def method_of(run: str) -> str:
    return run if run in REPORTS else run.partition("-")[0]


def classes_of(run: str) -> int:
    """Number of classes of the run's target: two, where the method takes no other number."""
    return 2 if methods.find(method_of(run).partition("-")[0]).needs_attribute else CLASSES


def theta_of(run: str) -> int:
    return classes_of(run) * (FEATURES + 1)


def schedule(run: str, t: int, hosted: int) -> list[tuple[str, int]]:
    """The documented messages of a client rank in round t: call, and numbers in it."""
    reports = REPORTS[method_of(run)]
    evaluated = t % EVAL_EVERY == 0 or t in (1, ROUNDS)
    shared = run.endswith("-hierarchical")
    messages = []
    if reports == "groups" or evaluated:
        messages.append(("tells" if shared else "Ireduce", GROUPS))
    if reports in ("clients", "cells"):
        messages.append(("Igatherv", hosted * (GROUPS if reports == "cells" else 1)))
    if method_of(run) == "fedmgda":
        messages.append(("Igatherv", hosted * theta_of(run)))
    beside = BESIDE.get(method_of(run), 0)
    messages.append(("shares" if shared else "Iallreduce", theta_of(run) + beside + 1))
    if evaluated:
        messages.append(("Igatherv", OF_ITSELF))
    return messages


def test_every_method_is_here():
    assert {method_of(run) for run in HONEST} == {*methods.FILES, "term-sample", "gifair-group"}


@pytest.mark.parametrize("run", HONEST)
def test_a_round_sends_what_is_documented_and_nothing_else(folder, run):
    for name in TABLES:
        for rank in client_ranks(run):
            given = Given.read(folder, run, rank, name)
            for t in range(1, ROUNDS + 1):
                sent = given.sent("rounds", t)
                expected = schedule(run, t, len(given.own["numbers"]))
                assert [(call["call"], call.get("size")) for call in sent] == expected
                assert {call["dtype"] for call in sent} == {"float64"}


def test_a_method_that_gives_a_row_away_is_found(folder):
    given = Given.read(folder, "leaks", 1)
    hosted = len(given.own["numbers"])
    shapes = [[(call["call"], call["size"]) for call in given.sent("rounds", t)] for t in (2, 3)]
    assert shapes[0] != schedule("fedminmax", 2, hosted)
    assert shapes[1] == schedule("fedminmax", 3, hosted)


@pytest.mark.parametrize("run", HONEST)
def test_no_object_is_pickled_within_the_rounds(folder, run):
    for rank in range(3):
        calls = Given.read(folder, run, rank).calls
        rounds = [call for call in calls if call["phase"] == "rounds"]
        assert {call["gives"] for call in rounds} <= {"buffer", "window", "nothing"}
        assert not {call["call"] for call in rounds} & {"bcast", "scatter", "gather", "allgather"}
        assert not [call for call in calls if call["gives"] == "unknown"]


@pytest.mark.parametrize("run", HONEST)
def test_what_a_rank_gives_at_set_up_and_at_the_end(folder, run):
    """The cores it may use, whether it hosts clients, its host; then scores, bytes and memory."""
    node = [("allgather", "set"), ("allreduce", "int")]
    teams = 2 if run == "centralized" else 1  # which leaves a rank out, and makes a team
    for name in TABLES:
        for rank in client_ranks(run):
            given = Given.read(folder, run, rank, name)
            set_up = [(call["call"], call.get("type")) for call in given.sent("set-up")]
            window = WINDOW if run.endswith("-hierarchical") else []
            assert set_up == [*node * teams, *PLACE[:2], *window, *PLACE[2:]]
            scores = ("Ireduce", GROUPS * (2 + classes_of(run) ** 2))
            end = given.sent("end")
            last = not methods.find(method_of(run).partition("-")[0]).averages_theta
            replicates = ("Ireduce", GROUPS * 3 * REPLICATES + 2)
            expected = [scores, replicates, scores] if last else [scores, scores, replicates]
            if run == "ditto":  # and of the clients' own models, and of theta on their rows
                expected[2:2] = [scores] * 2
            assert [(call["call"], call.get("size")) for call in end[:-1]] == expected
            assert (end[-1]["call"], end[-1]["type"]) == ("gather", "tuple")
            numbers = json.loads(end[-1]["value"].replace("(", "[").replace(")", "]"))
            assert len(numbers) == 2  # bytes a round, and the most memory


@pytest.mark.parametrize("run", [run for run in HONEST if not run.endswith("-8")])
def test_sizes_do_not_depend_on_the_data(folder, run):
    """The tables have other values, other numbers of rows, and other shares of the groups."""
    keys = ("phase", "round", "call", "gives", "dtype", "size", "type")
    for rank in client_ranks(run):
        both = [Given.read(folder, run, rank, name) for name in TABLES]
        assert len(both[0].own["x"]) != len(both[1].own["x"])
        # How many clients a rank has does depend on their rows; both ranks have two here.
        assert len(both[0].own["numbers"]) == len(both[1].own["numbers"])
        one, two = ([tuple(map(call.get, keys)) for call in given.calls] for given in both)
        # How often a rank looks whether it is called is a matter of time.
        assert [c for c in one if c[2] != "Iprobe"] == [c for c in two if c[2] != "Iprobe"]


def test_for_fedminmax_they_do_not_depend_on_the_clients_of_the_rank_either(folder):
    """Twice the clients: the same vectors for FedMinMax, twice the numbers for AFL."""

    def sizes(run: str) -> list[int]:
        return [call["size"] for call in Given.read(folder, run, 1).sent("rounds")]

    assert sizes("fedminmax") == sizes("fedminmax-8")
    assert sizes("afl") != sizes("afl-8")


def test_a_window_has_room_for_the_change_and_no_more(folder):
    """The second window is the board, which is the server's: a line for each rank and its own."""
    line = 64  # of the processor's cache, as are a rank's flags and its semaphore
    board = Given.read(folder, "fedminmax-hierarchical", 0).calls
    assert [c["size"] for c in board if c["call"] == "Allocate_shared"][1:] == [(3 + 1 + 6) * line]
    for run in HONEST:
        for rank in client_ranks(run):
            calls = Given.read(folder, run, rank).calls
            sizes = [call["size"] for call in calls if call["call"] == "Allocate_shared"]
            assert 8 * (THETA + 1) <= PAGE
            assert sizes == ([PAGE, 0] if run.endswith("-hierarchical") else [])


def losses_and_slopes(own: dict, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of logistic regression: the loss of each row, and its gradient."""
    x, y = own["x"], own["y"]
    classes = len(theta) // (FEATURES + 1)
    weight, bias = theta[:-classes].reshape(classes, FEATURES), theta[-classes:]
    logits = x @ weight.T + bias
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    slope = p - np.eye(classes)[y]
    by_row = (slope[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    return -np.log(p[np.arange(len(x)), y]), np.concatenate([by_row, slope], axis=1)


def predicted(own: dict, theta: np.ndarray) -> list[list[int]]:
    """Rows of each client and group that are predicted to be of the second of two classes."""
    weight, bias = theta[:-2].reshape(2, FEATURES), theta[-2:]
    second = (own["x"] @ (weight[1] - weight[0]) + bias[1] - bias[0]) > 0
    return [
        [(second & (own["client"] == k) & (own["group"] == a)).sum() for a in range(GROUPS)]
        for k in own["numbers"]
    ]


def gifair(risks: dict[int, float], shares: dict[int, float]) -> dict[int, float]:
    """Factor of each client's, or group's, losses: its rank times half of the largest penalty."""
    penalty = 0.5 * min(shares.values()) / max(1, len(risks) - 1)
    ranks = {i: sum(np.sign(risks[i] - r) for r in risks.values()) for i in risks}
    return {i: 1 + penalty * ranks[i] / shares[i] for i in risks}


@pytest.mark.parametrize("run", HONEST)
def test_the_vectors_are_what_they_are_said_to_be(folder, run):
    """Round 1, at the seeded theta, from the rank's own rows, by hand."""
    module = models.build("logistic", (FEATURES,), classes_of(run), seed=0)
    theta = np.concatenate(
        [p.detach().numpy().astype(float).reshape(-1) for p in module.parameters()]
    )
    everybody = [Given.read(folder, run, rank) for rank in client_ranks(run)]
    n = sum(len(given.own["x"]) for given in everybody)
    means = {}
    for given in everybody:
        losses, _ = losses_and_slopes(given.own, theta)
        means |= {k: losses[given.own["client"] == k].mean() for k in given.own["numbers"].tolist()}
    groups = np.concatenate([given.own["group"] for given in everybody])
    all_losses = np.concatenate([losses_and_slopes(given.own, theta)[0] for given in everybody])
    of_groups = {a: all_losses[groups == a].mean() for a in range(GROUPS)}
    sizes = {k: sum((given.own["client"] == k).sum() for given in everybody) for k in means}
    of_client = gifair(means, {k: size / n for k, size in sizes.items()})
    of_group = gifair(of_groups, {a: (groups == a).mean() for a in range(GROUPS)})
    tilted = {
        k: np.exp(3 * means[k]) * np.count_nonzero(np.isin(given.own["client"], k))
        for given in everybody
        for k in given.own["numbers"].tolist()
    }
    for given in everybody:
        own, method = given.own, method_of(run)
        losses, slopes = losses_and_slopes(own, theta)
        cells = [
            [losses[(own["client"] == k) & (own["group"] == a)].sum() for a in range(GROUPS)]
            for k in own["numbers"]
        ]
        by_group = np.sum(cells, axis=0)
        change, sum_h, units = np.zeros(len(theta)), 0.0, []
        for k in own["numbers"].tolist():
            rows = own["client"] == k
            share, by_row = rows.sum() / n, np.full(rows.sum(), 1 / rows.sum())
            if method == "term":
                share = tilted[k] / sum(tilted.values())
            if method == "term-sample":
                by_row = np.exp(3 * losses[rows]) / np.exp(3 * losses[rows]).sum()
            if method == "gifair":
                by_row *= of_client[k]
            if method == "gifair-group":
                by_row *= [of_group[a] for a in own["group"][rows]]
            slope = by_row @ slopes[rows]
            if method == "propfair":
                slope /= 5 - means[k]
            if method == "fedmgda":
                slope /= LR * np.linalg.norm(slope)
                units.append(-LR * slope)
            if method == "qfedavg":
                share = means[k] ** 2 / LR
                sum_h += 2 * means[k] * (slope @ slope) + means[k] ** 2 / LR
            change -= LR * share * slope
        report, *rest = (call["buffer"] for call in given.sent("rounds", 1))
        np.testing.assert_allclose(report, by_group, rtol=1e-9)
        if REPORTS[method] == "clients":
            told = np.sum(cells, axis=1) * (method != "drfa")  # whose first round has no snapshot
            np.testing.assert_allclose(rest.pop(0), told, rtol=1e-9)
        if REPORTS[method] == "cells":
            told = predicted(own, theta) if method == "fairfed" else cells
            np.testing.assert_allclose(rest.pop(0), np.ravel(told), rtol=1e-9)
        if units:
            np.testing.assert_allclose(rest.pop(0), np.ravel(units), rtol=1e-7, atol=1e-12)
        sums, seconds = rest
        np.testing.assert_allclose(sums[: len(theta)], change, rtol=1e-7, atol=1e-12)
        beside = {
            "qfedavg": [sum_h],
            "scaffold": [*(-change / LR), len(own["x"]) / n],
            "scaffpd": -change / LR,
            "drfa": np.zeros(THETA),  # the snapshot is before the only step
        }
        scalars = [*beside.get(method, []), 0.0]
        np.testing.assert_allclose(sums[len(theta) :], scalars, rtol=1e-9)
        assert 0 < seconds[0] < limit()


def test_the_server_gives_no_rows_and_holds_none(folder):
    assert not Given.read(folder, "fedminmax", 0).own


# What an owner holds, while its file is read: owner_cases.py.

HIDDEN = [MARK.encode(), NUMBER.encode(), *(struct.pack(f"{o}d", float(NUMBER)) for o in "<>")]


def has_a_cell(content: bytes) -> bool:
    return any(cell in content for cell in HIDDEN)


@dataclass
class Tried:
    """All cases, on a server and three owners' ranks."""

    folder: Path
    printed: dict[str, str]
    errors: str


@pytest.fixture(scope="module")
def tried(tmp_path_factory) -> Tried:
    out = tmp_path_factory.mktemp("owners")
    script = str(REPOSITORY / "tests/helpers/owner_cases.py")
    done = launch(["mpirun", "-n", "4", sys.executable, script, str(out)])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    _, *parts = re.split(r"<<(.*)>>\n", done.stdout)
    return Tried(out, dict(zip(parts[::2], parts[1::2], strict=True)), done.stderr)


@pytest.mark.parametrize("name", CASES)
def test_a_cell_stays_with_its_owner(tried, name):
    """On the screen, in the run's folder, and in what any rank gives to MPI."""
    case, folder = CASES[name], tried.folder / name
    assert re.search(case.says, tried.printed[name], re.MULTILINE), tried.printed[name]
    assert not has_a_cell(tried.printed[name].encode())
    left = [path for path in folder.rglob("run/**/*") if path.is_file()]
    found = [path.name for path in left if has_a_cell(path.read_bytes())]
    assert set(found) <= ({"model.pt"} if case.told else set())  # where the categories are
    if not case.told:
        for rank in range(len(OWNERS) + 1):
            given = pickle.loads((folder / f"given-{rank}.pickle").read_bytes())
            assert given and not any(map(has_a_cell, given)), rank
    # What quotes it is where the owner has it: so a cell was there to be told.
    aside = folder / "owners/birch.fedmpi.txt"
    assert case.aside == (aside.exists() and has_a_cell(aside.read_bytes()))
    assert not aside.exists() or aside.stat().st_mode & 0o777 == 0o600


def test_what_owners_agree_on_is_seen_by_the_recorder(tried):
    """The same search finds a category, which is told by its nature."""
    files = (tried.folder / "words among numbers").glob("given-*.pickle")
    assert any(has_a_cell(part) for file in files for part in pickle.loads(file.read_bytes()))


def test_nothing_else_is_printed_by_any_rank(tried):
    assert not has_a_cell(tried.errors.encode()) and "Traceback" not in tried.errors


def test_the_report_has_no_cell_of_an_owner(tried):
    done = [str(tried.folder / name / "run") for name in CASES]
    done = [folder for folder in done if (Path(folder) / "result.json").exists()]
    page = tried.folder / "report.html"
    assert len(done) > 10 and report([*done, "--output", str(page)]) == 0
    assert not has_a_cell(page.read_bytes())


def test_an_error_in_training_does_not_quote_rows(tmp_path):
    for owner in OWNERS:
        (tmp_path / f"{owner}.csv").write_bytes(csv(rows(owner)))
    command = ["mpirun", "-n", "4", sys.executable, "-m", "fedmpi.train", "--dataset"]
    command += [f"csv:{tmp_path}/", "--target", "ill", "--group", "sex", "--rounds", "2"]
    command += ["--model", "owner_cases:fails_on_rows", "--output", str(tmp_path / "run")]
    done = launch(command)
    assert done.returncode != 0 and MARK not in done.stdout + done.stderr
    assert re.search(r"rank \d of 4 on .*: ValueError \(owner_cases.py, line \d+\)", done.stderr)
    assert any(MARK in path.read_text() for path in tmp_path.glob("*.fedmpi.txt"))
