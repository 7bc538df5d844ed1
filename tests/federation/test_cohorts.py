"""Who takes part in a round, and that the sums over those few tell of all clients."""

import csv
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from runs import write_people

from fedmpi import methods
from fedmpi.federation.cohorts import Cohorts
from fedmpi.federation.job import Job
from fedmpi.mpi.ranks import Ranks
from fedmpi.run.arguments import resolve

CLIENTS, DRAWS = 10, 2000
PROBABILITIES = np.array([0.3, 0.9, 0.5, 0.2, 1.0, 0.7, 0.4, 0.6, 0.25, 0.8])
SIZES = {"a": 40, "b": 25, "c": 15}


def write_availability(folder: Path, probabilities=PROBABILITIES, names=None) -> Path:
    names = range(len(probabilities)) if names is None else names
    with open(folder / "availability.csv", "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerows([("client", "probability"), *zip(names, probabilities, strict=True)])
    return folder / "availability.csv"


@pytest.fixture
def available(tmp_path) -> list[object]:
    return ["--availability", write_availability(tmp_path)]


def cohorts(*options: object, method: str = "fedminmax", clients: int = CLIENTS) -> Cohorts:
    """The cohorts of a run in which each client has as many rows as its number, and one."""
    words = ["--dataset", "synthetic", "--method", method, "--clients", clients, *options]
    config = resolve([str(word) for word in words], 1, one_process=True)
    p = config.available and np.array([config.available[str(k)] for k in range(clients)])
    drawn = Cohorts(methods.find(method)(config), config, p)
    drawn.sizes = np.arange(1, clients + 1)
    return drawn


def test_a_cohort_is_of_distinct_clients_and_is_always_the_same():
    some = cohorts("--cohort", 3)
    drawn = [some.of_round(t) for t in range(1, 101)]
    for cohort in drawn:
        assert len(cohort.clients) == 3 and (np.diff(cohort.clients) > 0).all()
        np.testing.assert_array_equal(np.flatnonzero(cohort.counts_for), cohort.clients)
        np.testing.assert_allclose(cohort.counts_for[cohort.clients], 10 / 3)
        # McMahan's shares n_k / n_S.
        rows = np.where(cohort.counts_for > 0, some.sizes, 0)
        np.testing.assert_allclose(cohort.shares, rows / rows.sum())
    assert len({tuple(cohort.clients) for cohort in drawn}) > 50
    again = cohorts("--cohort", 3).of_round(7)
    np.testing.assert_array_equal(again.clients, drawn[6].clients)
    others = [cohorts("--cohort", 3, "--seed", 1).of_round(t).clients for t in range(1, 101)]
    assert any((a != b.clients).any() for a, b in zip(others, drawn, strict=True))


@pytest.mark.parametrize(
    ("share", "clients", "size"), [(0.1, 40, 4), (0.1, 4, 1), (0.5, 5, 2), (0.99, 10, 10)]
)
def test_a_share_is_rounded_and_somebody_is_always_there(share, clients, size):
    some = cohorts("--participation", share, clients=clients)
    assert len(some.of_round(1).clients) == size


def within_three_errors(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Whether the mean of the lines of `found` is within three standard errors, by column."""
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    return np.abs(found.mean(axis=0) - expected) <= 3 * error + 1e-12


def seen(some: Cohorts, of: str) -> np.ndarray:
    return np.array([getattr(some.of_round(t), of) for t in range(1, DRAWS + 1)])


def test_all_clients_are_drawn_equally_often():
    drawn = seen(cohorts("--cohort", 3), "counts_for") > 0
    assert within_three_errors(drawn, np.full(CLIENTS, 0.3)).all()
    pairs = drawn[:, :1] & drawn[:, 1:]
    assert within_three_errors(pairs, np.full(CLIENTS - 1, 3 / 10 * 2 / 9)).all()


def test_clients_are_available_as_often_as_the_file_says(available):
    drawn = seen(cohorts(*available), "counts_for")
    assert within_three_errors(drawn > 0, PROBABILITIES).all()
    for k, p in enumerate(PROBABILITIES):
        assert set(drawn[:, k]) <= {0.0, 1 / p}


@pytest.mark.parametrize("number", [(), ("--cohort", 3), ("--participation", 0.5)])
def test_what_clients_count_for_is_one_in_the_mean(available, number):
    assert within_three_errors(seen(cohorts(*available, *number), "counts_for"), 1.0).all()
    naive = cohorts(*available, *number, "--availability-correction", "no")
    off = ~within_three_errors(seen(naive, "counts_for"), 1.0)
    assert off.sum() > CLIENTS / 2


def test_after_a_death_cohorts_are_of_those_that_are_left():
    some = cohorts("--cohort", 3)
    before = [some.of_round(t) for t in range(1, 101)]
    some.sizes[[2, 5]] = 0
    after = [some.of_round(t) for t in range(1, 101)]
    for old, new in zip(before, after, strict=True):
        assert len(new.clients) == 3 and not {2, 5} & set(new.clients)
        assert set(old.clients) - {2, 5} <= set(new.clients)
        np.testing.assert_allclose(new.counts_for[new.clients], 8 / 3)
    some.sizes[:8] = 0
    assert some.of_round(1).clients.tolist() == [8, 9]
    assert some.of_round(1).counts_for[8] == 1


def test_nobody_may_be_available(tmp_path):
    write_availability(tmp_path, [0.01] * CLIENTS)
    some = cohorts("--availability", tmp_path / "availability.csv", "--cohort", 2)
    empty = [c for t in range(50) if not len((c := some.of_round(t)).clients)]
    assert empty and not empty[0].shares.any() and not empty[0].counts_for.any()


@pytest.mark.parametrize("options", [("--cohort", 3), ("--participation", 0.17)])
def test_no_client_ever_counts_for_more_than_exact_sums_have_room_for(available, options):
    some = cohorts(*available, *options)
    most = some.most()
    for left in range(1, CLIENTS + 1):
        some.sizes = np.where(np.arange(CLIENTS) < left, 1, 0)
        assert max(some.of_round(t).counts_for.max() for t in range(1, 50)) <= most * (1 + 1e-12)


# Sums of real rounds.


def standing(folder: Path, method: str, *options: object) -> Job:
    """A run whose theta stays, on clients that have unequal parts of unequal groups."""
    csv_file = folder / "people.csv"
    csv_file = csv_file if csv_file.exists() else write_people(csv_file, SIZES, lifted="c")
    words = ["--dataset", f"csv:{csv_file}", "--target", "y", "--group", "g", "--skew", 1]
    words += ["--method", f"standing:{method}", "--setting", "PSG", "--clients", CLIENTS]
    words += ["--rounds", DRAWS, "--eval-every", DRAWS, "--dtype", "float64", "--lr", 1]
    words += ["--model", "logistic", "--solver", "paper", "--progress", "none", "--force"]
    words += ["--data-dir", folder / "data", "--output", folder / "run", *options]
    job = Job(Ranks(MPI.COMM_SELF), resolve([str(w) for w in words], 1, one_process=True))
    job.run()
    return job


def sums(job: Job, of: str) -> np.ndarray:
    """The sums of each round; 0 of those in which nobody took part."""
    found = np.array(getattr(job.method, of))
    assert len(found) > DRAWS * 0.9
    return np.concatenate([found, np.zeros((DRAWS - len(found), *found.shape[1:]))])


DESIGNS = {
    "cohort": ["--cohort", 3],
    "available": ["--availability", "FILE"],
    "both": ["--availability", "FILE", "--cohort", 2],
}


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Sums of DRAWS cohorts of a method under a design, and the folder of the run."""
    done: dict[tuple[str, str], tuple[Job, Path]] = {}

    def run(method: str, design: str) -> tuple[Job, Path]:
        if (method, design) not in done:
            folder = tmp_path_factory.mktemp(design)
            file = write_availability(folder)
            options = (file if option == "FILE" else option for option in DESIGNS[design])
            done[method, design] = standing(folder, method, *options), folder
        return done[method, design]

    return run


@pytest.mark.parametrize(
    ("method", "design"),
    [
        ("StandingFedMinMax", "cohort"),
        ("StandingFedMinMax", "both"),
        pytest.param("StandingFedMinMax", "available", marks=pytest.mark.slow),
        pytest.param("StandingAFL", "cohort", marks=pytest.mark.slow),
        pytest.param("StandingLocal", "available", marks=pytest.mark.slow),
    ],
)
def test_risks_and_gradients_of_cohorts_are_unbiased(tmp_path, held, method, design):
    whole, (some, _) = standing(tmp_path, method, "--rounds", 1), held(method, design)
    for of in ("risks", "changes"):
        found, (expected, *_) = sums(some, of), getattr(whole.method, of)
        assert found.std(axis=0).max() > 0.01  # else the cohorts do not differ
        assert within_three_errors(found, expected).all()


def test_ratios_of_cohorts_are_biased_where_groups_are_unequally_spread(tmp_path, held):
    """The mean over the rows of the cohort would not do for the adversary."""
    (risks, *_) = standing(tmp_path, "StandingFedMinMax", "--rounds", 1).method.risks
    job, folder = held("StandingFedMinMax", "cohort")
    counts = job.plan.allocation.partition.counts
    took_part = np.array(job.method.counted) @ counts.T
    there = took_part > 0
    assert not there.all()
    ratio = sums(job, "risks") * counts.sum(axis=1) / np.where(there, took_part, np.nan)
    biased = [
        not within_three_errors(of_group[here], risk)
        for of_group, here, risk in zip(ratio.T, there.T, risks, strict=True)
    ]
    assert any(biased)
    # history.csv has these ratios: of the rows that took part, and nothing of a group without.
    with open(folder / "run/history.csv", newline="") as file:
        last = list(csv.DictReader(file))[-1]
    shown = [float(last[f"risk/{g}"]) for g in SIZES]
    np.testing.assert_allclose(shown, ratio[-1])
    assert float(last["worst"]) == pytest.approx(np.nanmax(ratio[-1])) and last["clients"] == "3"


def test_the_hosted_clients_of_a_cohort_have_their_own_rows(tmp_path):
    job = standing(tmp_path, "StandingFedMinMax", "--cohort", 3, "--rounds", 1)
    clients, counts_for = job.clients, np.zeros(CLIENTS)
    assert clients.among(counts_for) is None
    counts_for[[1, 7]] = 4.0
    some = clients.among(counts_for)
    assert some.numbers.tolist() == some.places.tolist() == [1, 7]
    assert some.counts_for.tolist() == [4, 4]
    rows = np.r_[tuple(slice(clients.ends[k] - clients.sizes[k], clients.ends[k]) for k in (1, 7))]
    np.testing.assert_array_equal(some.x, clients.x[rows])
    np.testing.assert_array_equal(some.counts, clients.counts[:, [1, 7]])
    assert clients.among(np.ones(CLIENTS)) is clients
