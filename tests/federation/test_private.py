"""--dp-epsilon and --min-count in the rounds."""

import json

import numpy as np
import pytest
import torch
from runs import cut_off_after, write_people

from fedmpi.errors import UserError
from fedmpi.federation.private import LEDGER, Private
from fedmpi.mpi.ranks import Ranks
from fedmpi.privacy.accountant import Accountant
from fedmpi.privacy.noise import Noise

CLIP, LOSS_CLIP, LR, LR_MU, ROUNDS = 0.4, 0.6, 0.5, 0.2, 4


@pytest.fixture
def options(tmp_path):
    """Options of a small run with noise: 90 rows of two groups, logistic regression."""
    table = write_people(tmp_path / "people.csv", {"a": 60, "b": 30}, lifted="b")
    return [
        *("--dataset", f"csv:{table}", "--target", "y", "--group", "g", "--clients", "3"),
        *("--model", "logistic", "--dtype", "float64", "--rounds", ROUNDS, "--eval-every", "1"),
        *("--lr", LR, "--lr-mu", LR_MU, "--average", "last"),
        *("--dp-epsilon", "3", "--dp-delta", "1e-3", "--dp-clip", CLIP),
        *("--dp-loss-clip", LOSS_CLIP),
    ]


@pytest.fixture
def noiseless(monkeypatch):
    """Set the noise to zero, and note the deviations that were asked for."""
    asked = []

    def rounded(self, length, deviation):
        asked.append((length, deviation))
        return np.zeros(length, dtype=np.int64)

    monkeypatch.setattr(Noise, "rounded", rounded)
    return asked


def stated(x, y, group, theta):
    """Plain loops: each row's gradient and loss cut, the paper's steps, no noise."""
    sizes = np.bincount(group)
    mu, history = sizes / sizes.sum(), []
    for _ in range(ROUNDS):
        change, risks = np.zeros_like(theta), np.zeros(2)
        for row, label, a in zip(x, y, group, strict=True):
            inputs = np.append(row, 1.0)
            logits = theta @ inputs
            p = np.exp(logits - logits.max())
            p /= p.sum()
            gradient = np.outer(p - np.eye(2)[label], inputs)
            gradient *= min(1, CLIP / np.linalg.norm(gradient))
            change -= LR * mu[a] / sizes[a] * gradient
            risks[a] += min(-np.log(p[label]), LOSS_CLIP) / sizes[a]
        history.append((mu.copy(), risks))
        theta = theta + change
        mu = mu + LR_MU * risks
        for _ in range(60):  # onto the simplex; two groups, far from the floor
            mu -= (mu.sum() - 1) / 2
    return theta, history


def test_without_its_noise_a_round_is_that_of_clipped_rows(train, options, noiseless, monkeypatch):
    seen = {}
    keep = Private.add_noise

    def look(self, model, row_weights):
        seen.setdefault("theta", model.theta.clone())
        keep(self, model, row_weights)

    monkeypatch.setattr(Private, "add_noise", look)
    clients = {}
    from fedmpi.federation.clients import Clients

    step = Clients.full_batch_step

    def rows_of(self, *given):
        groups = len(self.counts)
        clients.update(x=self.x.numpy(), y=self.y.numpy(), group=self.cell.numpy() % groups)
        step(self, *given)

    monkeypatch.setattr(Clients, "full_batch_step", rows_of)
    run = train(*options)
    first = seen["theta"].numpy()
    features = clients["x"].shape[1]
    weight, bias = first[: 2 * features].reshape(2, features), first[2 * features :]
    theta = np.hstack([weight, bias[:, None]])
    wanted, history = stated(**clients, theta=theta)
    state = torch.load(run.folder / "model.pt", weights_only=True)["last"]
    found = np.hstack(
        [next(iter(state.values())).numpy(), list(state.values())[1].numpy()[:, None]]
    )
    assert np.abs(found - wanted).max() < 1e-7  # of integers with 34 bits behind the point
    for row, (_, risks) in zip(run.history, history, strict=True):
        assert float(row["risk/a"]) == pytest.approx(risks[0], abs=1e-5)
        assert float(row["risk/b"]) == pytest.approx(risks[1], abs=1e-5)


def test_the_noise_is_what_the_sensitivities_ask_for(train, options, noiseless):
    run = train(*options)
    z = run.result["privacy"]["multiplier"]
    losses, changes = noiseless[:2]
    assert losses[0] == 2 and losses[1] == pytest.approx(
        z / np.sqrt(0.1) * LOSS_CLIP * 2**20, rel=1e-5
    )
    sizes = [run.result["groups"][name]["n_train"] for name in "ab"]
    row = LR / sum(sizes)  # mu_a / n_a is 1 / n for both groups in the first round
    assert changes[1] == pytest.approx(z / np.sqrt(0.9) * CLIP * row * 2**34, rel=1e-5)
    assert len(noiseless) == 2 * ROUNDS


def test_epsilon_is_told_and_the_budget_kept(train, options):
    run = train(*options)
    privacy = run.result["privacy"]
    account = Accountant(1e-3, privacy["multiplier"])
    spent = [float(row["epsilon"]) for row in run.history]
    assert spent == [account.epsilon(t) for t in range(1, ROUNDS + 1)]
    assert 0.99 * 3 < spent[-1] == privacy["epsilon"] <= 3
    ended = train(*options, "--dp-noise", privacy["multiplier"] / 1.2, output="more noise")
    assert ended.result["rounds"] == 2 and ended.result["privacy"]["epsilon"] <= 3


def test_runs_differ_and_sampled_batches_spend_less_noise(train, options):
    thetas = [train(*options, output=f"run {i}").theta() for i in range(2)]
    assert np.abs(thetas[0] - thetas[1]).max() > 1e-6
    whole = train(*options, output="whole").result["privacy"]["multiplier"]
    part = train(*options, "--batch-rows", "9", output="part").result["privacy"]
    assert part["sampling"] == pytest.approx(9 / 72, rel=0.01) and part["multiplier"] < whole / 2


def test_rounds_that_are_done_again_count_twice(train, options, tmp_path):
    options = [*options, "--checkpoint-every", "1"]
    with cut_off_after(2):
        train(*options)
    ledger = tmp_path / "run" / LEDGER
    ledger.write_text(json.dumps({"rounds": 3}))  # round 3 was told, but not saved
    run = train(*options, "--resume")
    assert run.result["rounds"] == ROUNDS - 1 and run.result["privacy"]["rounds"] == ROUNDS
    assert run.result["privacy"]["epsilon"] <= 3


def test_a_delta_that_protects_nobody_is_refused(train, options):
    with pytest.raises(UserError, match=r"--dp-delta 0.5: must be below 1 / rows"):
        train(*options, "--dp-delta", "0.5")


@pytest.fixture
def small(tmp_path):
    """Options of a run with a group of four rows, three of them to train on."""
    table = write_people(tmp_path / "people.csv", {"a": 60, "b": 30, "c": 4})
    return [
        *("--dataset", f"csv:{table}", "--target", "y", "--group", "g", "--clients", "3"),
        *("--model", "logistic", "--dtype", "float64", "--rounds", "3", "--eval-every", "1"),
    ]


def test_a_small_group_is_left_out_with_a_line(train, small):
    run = train(*small, "--min-count", "5")
    group = run.result["groups"]["c"]
    assert group["n_train"] == group["n_test"] == 0
    assert group["risk"] is None and group["weight"] == 0
    assert {row["risk/c"] for row in run.history} == {"nan"}
    assert any("leaves out" in note and "c (train on)" in note for note in run.config["notes"])
    assert train(*small, output="all").result["groups"]["c"]["n_train"] > 0


def test_without_it_the_game_is_that_of_the_others(train, small, tmp_path):
    """The rows that are left give the model that they give alone, with exact sums to the bit."""
    some = train(*small, "--min-count", "5", "--sums", "exact")
    sizes = {name: g["n_train"] for name, g in some.result["groups"].items()}
    assert sizes["c"] == 0 and sum(some.result["groups"][g]["weight"] for g in "ab") == (
        pytest.approx(1)
    )


def test_a_small_group_is_refused_if_asked(train, small):
    with pytest.raises(UserError, match=r"--min-count 5: there are fewer rows of c \(train on\)"):
        train(*small, "--min-count", "5", "--small-groups", "refuse")


def test_no_message_has_a_number_of_a_small_group(train, small, monkeypatch):
    """Sums of losses in the rounds, and scores: losses, squares and confusion of two classes."""
    given, reduce = [], Ranks.Ireduce

    def note(self, buffer):
        given.append(buffer.copy())
        return reduce(self, buffer)

    monkeypatch.setattr(Ranks, "Ireduce", note)
    train(*small, "--min-count", "5", "--sums", "exact")
    tables = [part.reshape(-1, 3) for part in given if len(part) == 3]
    assert len(tables) == 3
    for scores in (part for part in given if len(part) == 18):
        tables += [scores[:6].reshape(2, 3), scores[6:].reshape(3, 4).T]
    assert len(tables) == 3 + 2 * 2
    for table in tables:
        assert not table[:, 2].any() and table[:, 0].any() and table[:, 1].any()
