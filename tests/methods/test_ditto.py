import numpy as np
import pytest
import torch
from runs import cut_off_after
from statements import combine, fedavg, flat, gradient, local, step

from fedmpi.errors import UserError
from fedmpi.federation.clients import batch_order

GROUPS = ("east", "north", "south", "west")
LOCAL = {"local_epochs": 2, "batch_size": 16}


def personal(f, rounds, lr, local_epochs, batch_size, personal_pull, cohort=None):
    """The clients' own models (Li et al. 2021, Algorithm 1) and the global theta, in loops."""
    theta, own = f.theta, [f.theta] * len(f.clients)
    for t in range(1, rounds + 1):
        chosen = cohort(t) if cohort else range(len(f.clients))
        for k in chosen:
            rows = f.clients[k]
            for epoch in range(local_epochs):
                order = batch_order(len(rows), f.seed, k, t, epoch)
                for first in range(0, len(rows), batch_size):
                    batch = [rows[i] for i in order[first : first + batch_size]]

                    def objective(v, batch=batch, theta=theta):
                        away = sum(((a - b) ** 2).sum() for a, b in zip(v, theta, strict=True))
                        return f.risk(v, batch) + personal_pull / 2 * away

                    own[k] = step(own[k], lr, gradient(own[k], objective))
        trained = [local(f, theta, k, t, lr, local_epochs, batch_size, f.risk) for k in chosen]
        sizes = [len(f.clients[k]) for k in chosen]
        theta = combine([n / sum(sizes) for n in sizes], trained)
    return own, theta


def assert_scored(found, f, own, theta) -> None:
    """`personal` of result.json: sums over the clients' own rows, over n_a."""
    for a, name in enumerate(GROUPS):
        told = found.result["personal"]["groups"][name]
        losses = [f.losses(v, rows).sum() for v, rows in of_group(f, own, a)]
        everybody = f.of_group(range(f.n), a)
        assert told["rows"] == len(everybody)
        assert told["risk"] == pytest.approx(float(sum(losses)) / len(everybody), rel=1e-9)
        assert told["global_risk"] == pytest.approx(float(f.risk(theta, everybody)), rel=1e-9)


def of_group(f, own, a):
    rows = [f.of_group(rows, a) for rows in f.clients]
    return [(v, mine) for v, mine in zip(own, rows, strict=True) if mine]


@pytest.mark.parametrize("pull", [0.1, 1.5])
def test_algorithm_1(agree, people, case, pull):
    """The global model is FedAvg's; the personal ones by their losses on their clients' rows."""
    setting, clients, options = case

    def global_model(f, personal_pull, **steps):
        return fedavg(f, **steps)

    found, _ = agree(
        "ditto", setting, clients, global_model, personal_pull=pull, **LOCAL, **options
    )
    f = people.federation(setting, clients, **options)
    own, theta = personal(f, 3, 0.5, **LOCAL, personal_pull=pull)
    assert found.result["personal"]["rows"] == "train"
    assert_scored(found, f, own, theta)


def test_the_personal_models_themselves(people, train, tmp_path):
    """From the checkpoint, which has a row for each client."""
    run = "--method ditto --model logistic --dtype float64 --clients 7 --setting PSG --rounds 5"
    run += " --lr 0.5 --checkpoint-every 1 --local-epochs 2 --batch-size 16 --personal-pull 0.7"
    with cut_off_after(3):
        train(*people.arguments("job"), *run.split())
    state = torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)
    own, _ = personal(people.federation("PSG", 7), 3, 0.5, **LOCAL, personal_pull=0.7)
    for found, stated in zip(state["of_clients"]["v"], own, strict=True):
        np.testing.assert_allclose(found.numpy(), flat(stated), rtol=0, atol=1e-9)


def test_without_a_pull_every_client_trains_alone(people, run):
    f = people.federation("SSG", 7)
    own = []
    for k in range(7):
        v = f.theta
        for t in range(1, 4):
            v = local(f, v, k, t, 0.5, 2, 16, f.risk)
        own.append(v)
    found = run("ditto", "SSG", 7, personal_pull=0, **LOCAL)
    assert_scored(found, f, own, personal(f, 3, 0.5, **LOCAL, personal_pull=0)[1])


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_the_global_model_is_fedavgs_bit_for_bit(run, model):
    found, fedavg = (run(m, "PSG", 7, model=model, **LOCAL) for m in ("ditto", "fedavg"))
    np.testing.assert_array_equal(found.theta(), fedavg.theta())
    assert "personal" not in fedavg.result


def test_beside_them_is_the_model_that_is_reported(people, run):
    found = run("ditto", "PSG", 7, average="all", **LOCAL)
    f = people.federation("PSG", 7)
    mean = np.split(found.theta("averaged"), [f.theta[0].numel()])
    theta = [p.new_tensor(part).reshape(p.shape) for p, part in zip(f.theta, mean, strict=True)]
    assert_scored(found, f, personal(f, 3, 0.5, **LOCAL, personal_pull=1.0)[0], theta)


def test_a_client_that_is_not_in_the_cohort_keeps_its_model(people, run):
    f = people.federation("PSG", 7)
    chosen = np.random.default_rng([0, 1]).choice(7, 3, replace=False).tolist()
    found = run("needy:SampledDitto", "PSG", 7, rounds=1, **LOCAL)
    own, _ = personal(f, 1, 0.5, **LOCAL, personal_pull=1.0, cohort=lambda t: chosen)
    for a, name in enumerate(GROUPS):
        risk = sum(f.losses(v, rows).sum() for v, rows in of_group(f, own, a)) / f.n_a(a)
        assert found.result["personal"]["groups"][name]["risk"] == pytest.approx(float(risk))


def test_owners_apart_are_scored_on_their_own_test_rows(train, tmp_path):
    """What is `yes` to one owner is `no` to the next: only its own model is right for each."""
    rng = np.random.default_rng(0)
    (tmp_path / "owners").mkdir()
    for i, owner in enumerate("pqr"):
        x = rng.normal(size=(60 + 40 * i, 2))
        answer = np.where((x[:, 0] > 0) == (owner == "q"), "yes", "no")
        rows = [f"{u},{v},{'ab'[j % 2]},{y}" for j, ((u, v), y) in
                enumerate(zip(x, answer, strict=True))]  # fmt: skip
        (tmp_path / f"owners/{owner}.csv").write_text("\n".join(["u,v,g,y", *rows]))
    data = ["--dataset", f"csv:{tmp_path / 'owners'}/", "--target", "y", "--group", "g"]
    steps = "--method ditto --model logistic --personal-pull 0 --lr 1 --rounds 20 --local-epochs 3"
    found = train(*data, *steps.split()).result
    assert found["personal"]["rows"] == "test"
    for name, told in found["personal"]["groups"].items():
        whole = found["groups"][name]
        assert told["rows"] == whole["n_test"] and told["global_risk"] == whole["risk"]
        assert told["accuracy"] > 0.85 > 0.75 > told["global_accuracy"]


def test_resumed_bit_for_bit(people, train):
    run = "--method ditto --clients 5 --rounds 5 --local-epochs 2 --batch-size 16"
    given = [*people.arguments("job"), *run.split(), "--checkpoint-every", 1]
    whole = train(*given, output="whole")
    with cut_off_after(3):
        train(*given, output="cut")
    resumed = train(*given, "--resume", output="cut")
    np.testing.assert_array_equal(resumed.theta(), whole.theta())
    assert resumed.result["personal"] == whole.result["personal"]


def test_models_of_single_clients_are_no_sums(run):
    with pytest.raises(UserError, match="has models of single clients"):
        run("ditto", "PSG", 4, sums="exact", **LOCAL)


def test_personal_models_that_diverge_are_no_result(run):
    with pytest.raises(UserError, match="risk with the clients' own models of group"):
        run("ditto", "PSG", 4, lr=0.5, personal_pull=1e6, rounds=60, dtype="float32", **LOCAL)
