"""Ranks that die in runs with masked sums: what the others have of every sum, and the model.

A sum over all ranks and one over all but the dead, at the same theta, would tell what the dead had.
All ranks note what they add to each sum, and what their memory holds of it afterwards
(dying_in_secret.py). Here the integers are added up again.
"""

import hashlib
import pickle
import sys
from collections import defaultdict
from pathlib import Path

import dying_in_secret
import numpy as np
import pytest
from dying_in_secret import CLIENTS, DEATHS, ROUNDS
from jobs import people
from runs import REPOSITORY, Run, launch
from ulfm import ULFM, no_segments_left, split_by_owner, ulfm
from without import Federation, project, rescaled

from fedmpi.run.arguments import resolve

pytestmark = [ulfm, pytest.mark.launch]
RANKS, GROUPS = 9, 4
RUNS = ("rounds", "private", "private-resumed", "owners")
SCORES = ("SCORES_LAST", "SCORES_MEAN")
Note = dict


@pytest.fixture(scope="module")
def died(tmp_path_factory) -> tuple[Path, str]:
    """Runs that lose ranks in every way of DEATHS, in one launch; and what was printed."""
    out = tmp_path_factory.mktemp("secret")
    table = people(out / "people.csv")
    split_by_owner(table, out / "people")
    command = ["mpirun", *ULFM, "-n", str(RANKS), sys.executable]
    command += [str(REPOSITORY / "tests/helpers/dying_in_secret.py"), str(out), str(table)]
    with no_segments_left():
        done = launch(command)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return out, done.stderr


def noted(out: Path, run: str, kind: str) -> list[Note]:
    """What all ranks of a run noted, also those that died."""
    found = []
    for path in sorted(out.glob(f"{run}-[0-9].notes")):
        with open(path, "rb") as file:
            while file.peek(1):
                found.append(pickle.load(file) | {"rank": int(path.stem[-1])})
    assert found
    return [note for note in found if note["kind"] == kind]


def sums(out: Path, run: str) -> dict[tuple[str, str], dict[int, dict[int, np.ndarray]]]:
    """Of each message at each theta, and each attempt, what the ranks add, by rank."""
    added: dict = defaultdict(lambda: defaultdict(dict))
    for note in noted(out, run, "plain"):
        what = "SCORES" if note["message"] in SCORES else note["message"]
        added[what, note["theta"]][note["attempt"]][note["rank"]] = note["numbers"]
    return added


def existing(out: Path, run: str) -> dict[tuple[str, str], list[int]]:
    """Of each message at each theta, the attempts whose sum is in some rank's memory.

    A sum of zeros, which ranks send that have nothing more to say, tells nothing. Nor is an attempt
    in which the dead added nothing another sum than the next one.
    """
    held = defaultdict(set)
    for note in noted(out, run, "held"):
        held[note["message"]].add(note["numbers"].tobytes())
    held["SCORES"] = held[SCORES[0]] | held[SCORES[1]]
    found = {}
    for (message, theta), attempts in sums(out, run).items():
        totals = {np.sum(list(attempts[a].values()), axis=0).tobytes(): a for a in sorted(attempts)}
        found[message, theta] = [
            attempt for total, attempt in totals.items() if any(total) and total in held[message]
        ]
    return found


@pytest.mark.parametrize("run", RUNS)
def test_of_two_sums_at_a_theta_only_one_exists(died, run):
    attempts = existing(died[0], run)
    assert len(attempts) > 5 and all(len(some) == 1 for some in attempts.values()), attempts


@pytest.mark.parametrize("run", RUNS)
def test_masked_numbers_of_an_attempt_sum_to_the_plain_ones(died, run):
    """Of those in which all ranks took part: what exists is no accident."""
    masked: dict = defaultdict(lambda: np.zeros(1, np.uint64))
    for note in noted(died[0], run, "masked"):
        what = "SCORES" if note["message"] in SCORES else note["message"]
        key = what, note["theta"], note["attempt"]
        masked[key] = masked[key] + note["numbers"]
    added = sums(died[0], run)
    for (message, theta), (attempt,) in existing(died[0], run).items():
        total = np.sum(list(added[message, theta][attempt].values()), axis=0)
        assert np.array_equal(masked[message, theta, attempt], total)


def thetas(out: Path, run: str) -> list[str]:
    """The theta that each round begins with."""
    changes = [note for note in noted(out, run, "plain") if note["message"] == "CHANGES"]
    return [theta for _, theta in sorted({(note["t"], note["theta"]) for note in changes})]


def test_the_sum_of_a_round_is_that_which_some_rank_had(died):
    """The dead are in it if the sum was there, in anybody's memory, when they died."""
    out, _ = died
    attempts, added = existing(out, "rounds"), sums(out, "rounds")
    for t, theta in enumerate(thetas(out, "rounds"), start=1):
        dead, when = DEATHS["rounds"].get(t, (None, ""))
        for message, counted in (("LOSSES", ("losses",)), ("CHANGES", ("losses", "changes"))):
            parts = added[message, theta]
            (attempt,) = attempts[message, theta]
            assert (dead in parts[attempt]) == bool(when and when not in counted)
            assert attempt == (max(parts) if when in counted else min(parts))
    assert len(attempts) >= 2 * ROUNDS


@pytest.mark.parametrize("run", RUNS)
def test_no_mask_is_used_twice(died, run):
    """Neither in a round that is done again; no number of 64 bits is in two masks of a rank."""
    plain, masked = noted(died[0], run, "plain"), noted(died[0], run, "masked")
    again = 0
    for rank in range(1, RANKS):
        mine = [
            (b["numbers"] - a["numbers"], (a["message"], a["t"]))
            for a, b in zip(plain, masked, strict=True)
            if a["rank"] == rank
        ]
        masks = np.concatenate([mask for mask, _ in mine] or [np.zeros(0)])
        assert len(np.unique(masks)) == len(masks)
        again += len(mine) - len({message for _, message in mine})
    assert again or run not in ("rounds", "private")


def test_theta_has_the_bits_of_the_sums_that_exist(died):
    """From the first theta, step by step: multiples of a power of two, added to float64."""
    out, run = died[0], Run(died[0] / "rounds")
    sizes = run_partition(run).sum(axis=0)
    units = 4 * int((sizes > 0).sum())
    scale = 2.0 ** (62 - 7 - int(np.ceil(np.log2(units))))
    (theta,) = {
        note["vector"].tobytes()
        for note in noted(out, "rounds", "plain")
        if note["message"] == "CHANGES" and note["t"] == 1
    }
    vector = np.frombuffer(theta)
    added, attempts = sums(out, "rounds"), existing(out, "rounds")
    for theta in thetas(out, "rounds"):
        assert hashlib.sha256(vector.tobytes()).hexdigest() == theta
        (attempt,) = attempts["CHANGES", theta]
        total = np.sum(list(added["CHANGES", theta][attempt].values()), axis=0)
        vector = vector + total[:-1].view(np.int64) / scale
    # In the file a matrix may lie across.
    assert np.array_equal(np.sort(vector), np.sort(run.theta("last")))


def run_partition(run: Run) -> np.ndarray:
    with np.load(run.folder / "partition.npz") as partition:
        return partition["counts"]


class Heard(Federation):
    """A federation whose server has some clients' losses of one round more than their changes."""

    heard: dict[int, int]

    def fedminmax(self, t, theta, left, rows, losses):
        late = [k for k, last in self.heard.items() if last == t]
        more = np.flatnonzero(np.isin(self.client, late))
        told, group = self.losses(theta, more).detach().numpy(), self.group[rows]
        sizes = np.bincount(group, minlength=GROUPS)
        rho = dict(enumerate(sizes / len(rows)))
        before = rho if self.weights is None else rescaled(self.weights, list(rho), rho)
        mu = np.array([before[a] for a in rho])
        of_all, group_of_all = np.append(losses, told), np.append(group, self.group[more])
        risks = np.bincount(group_of_all, of_all) / np.bincount(group_of_all)
        self.weights = dict(enumerate(project(mu + self.config.lr_mu * risks, self.config.epsilon)))
        return self.step(t, theta, self.slopes(theta, rows, (mu / sizes)[group]))


def test_the_model_is_that_of_the_clients_whose_parts_are_in_the_sums(died):
    out, run = died[0], Run(died[0] / "rounds")
    lost = {event["rank"]: event for event in run.result["lost"]}
    for t, (dead, when) in DEATHS["rounds"].items():
        assert lost[dead]["last_round"] == (t if when in ("one", "server") else t - 1)
    clients = [k for event in lost.values() for k in event["clients"]]
    assert 0 < len(clients) == len(set(clients)) < CLIENTS
    arguments = dying_in_secret.arguments("rounds", str(out / "people.csv"), str(out))
    stated = Heard(
        resolve(arguments, RANKS - 1, False),
        {k: event["last_round"] for event in lost.values() for k in event["clients"]},
    )
    stated.heard = {
        k: t
        for t, (dead, when) in DEATHS["rounds"].items()
        for k in lost[dead]["clients"]
        if when == "changes"
    }
    assert np.abs(stated.train()[0] - run.theta("last")).max() < 1e-9
    stated.heard = {}  # the test could not fail if these losses had made no difference
    stated.__post_init__()
    assert np.abs(stated.train()[0] - run.theta("last")).max() > 1e-7


def test_the_noise_of_a_sum_is_the_same_however_many_ranks_add_it(died):
    """Shares are of the ranks that are left and have clients: after a death, and a resume."""
    variance, shares = defaultdict(float), defaultdict(int)
    for run in ("private", "private-resumed"):
        for note in noted(died[0], run, "noise"):
            if note["length"] == GROUPS:
                when = run, note["t"], note["attempt"]
                variance[when] += note["deviation"] ** 2
                shares[when] += 1
    assert {t for _, t, _ in variance} == set(range(1, ROUNDS + 1))
    # Of four ranks one dies. The clients of the run that is resumed are on two of three ranks.
    assert list(dict.fromkeys(shares.values())) == [4, 3, 2]
    assert len({round(v / variance["private", 1, 0], 12) for v in variance.values()}) == 1


def test_a_checkpoint_knows_of_a_death_before_the_next_round(died):
    """So that no run that is resumed forms a sum with the dead at a theta of one without."""
    saved = [(note["t"], note["lost"]) for note in noted(died[0], "rounds", "saved")]
    dead = [rank for rank, _ in DEATHS["rounds"].values()]
    assert saved == [(t, dead[: i + 1]) for i, t in enumerate(DEATHS["rounds"])]


def test_two_ranks_that_are_left_are_warned(died):
    (line,) = [line for line in died[1].splitlines() if "two client ranks" in line]
    assert "not from each other" in line


def test_a_group_of_which_too_few_rows_are_left_ends_the_run(died):
    """--min-count is of the rows that are left: 12 of each group to test with, before the death."""
    said = [line for line in died[1].splitlines() if "--min-count" in line]
    assert [line.partition(":")[0] for line in sorted(said)] == ["rank 0", "rank 1"]
    assert "fewer rows of a (test with), b (test with)" in said[0]
    assert not (died[0] / "few/result.json").exists()
