"""Many runs in one launch: what is finished is skipped, what was cut off goes on, memory stays."""

import gc
import json
import math

import numpy as np
import pytest
import torch
from mpi4py import MPI
from runs import Run, cut_off_after

from fedmpi.errors import UserError
from fedmpi.federation.grid import GridProgress, Plan, duration, longest_first, look, run_grid
from fedmpi.mpi.ranks import Ranks
from fedmpi.run.arguments import resolve

OPTIONS = (
    "--solver paper --dataset synthetic --rows 80 --limit-test 100 "
    "--model mlp --clients 4 --dtype float64 --lr 0.1"
)


@pytest.fixture
def plan(tmp_path):
    def make(name: str, *options: object) -> Plan:
        data = ["--data-dir", tmp_path / "data", "--output", tmp_path / name]
        arguments = [*OPTIONS.split(), *options, *data]
        config = resolve([str(a) for a in arguments], 1, one_process=True)
        planned = Plan(config, name)
        look(planned)
        return planned

    return make


def world() -> Ranks:
    return Ranks(MPI.COMM_SELF, math.inf)


def test_a_grid_is_run_once(plan, tmp_path):
    def make() -> list[Plan]:
        return [plan(f"s{seed}", "--rounds", 3, "--seed", seed) for seed in (0, 1)]

    calls = []
    run_grid(world(), make(), "none", after=lambda: calls.append(1))
    assert len(calls) == 2
    before = [Run(tmp_path / f"s{s}").config for s in (0, 1)]
    plans = make()
    assert all(p.finished for p in plans)
    run_grid(world(), plans, "none", after=lambda: calls.append(1))
    assert len(calls) == 2 and before == [Run(tmp_path / f"s{s}").config for s in (0, 1)]


def test_a_run_that_fails_is_noted_and_the_others_go_on(plan, tmp_path):
    plans = [
        plan("first", "--rounds", 3),
        plan("bad", "--rounds", 30, "--lr", 1e200),
        plan("impossible", "--rounds", 3, "--setting", "PSG"),
        plan("last", "--rounds", 3, "--method", "afl"),
    ]
    run_grid(world(), plans, "none")
    assert [p.finished for p in plans] == [True, False, False, True]
    assert "not finite" in plans[1].failure and "same as SSG" in plans[2].failure
    noted = json.loads((tmp_path / "bad/failed.json").read_text())
    assert noted["why"] == plans[1].failure and noted["science"]["lr"] == 1e200
    again = plan("bad", "--rounds", 30, "--lr", 1e200)
    assert not again.finished and again.failure == plans[1].failure


def test_a_failure_is_forgotten_when_the_run_succeeds(plan, tmp_path):
    run_grid(world(), [plan("run", "--rounds", 3, "--setting", "PSG")], "none")
    assert (tmp_path / "run/failed.json").exists()
    run_grid(world(), [plan("run", "--rounds", 3, "--setting", "SSG")], "none")
    assert not (tmp_path / "run/failed.json").exists()
    assert (tmp_path / "run/result.json").exists()


def test_a_run_that_was_cut_off_goes_on_to_the_same_theta(plan, tmp_path):
    def make(name: str) -> Plan:
        return plan(name, "--rounds", 6, "--checkpoint-every", 2, "--method", "afl")

    run_grid(world(), [make("whole")], "none")

    with cut_off_after(5):
        run_grid(world(), [make("cut")], "none")
    cut_off = make("cut")
    assert cut_off.config.resume and not cut_off.finished
    rounds = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GridProgress, "update", lambda self, t, *told: rounds.append(t))
        run_grid(world(), [cut_off], "none")
    assert rounds == [5, 6]
    runs = [Run(tmp_path / name) for name in ("whole", "cut")]
    assert np.array_equal(runs[0].theta("averaged"), runs[1].theta("averaged"))


def test_a_finished_run_of_another_configuration_is_refused_before_anything_runs(plan, tmp_path):
    run_grid(world(), [plan("run", "--rounds", 3)], "none")
    with pytest.raises(UserError, match=r"a finished run .*rounds 3, not 4\).*--force"):
        plan("run", "--rounds", 4)
    (tmp_path / "run/result.json").rename(tmp_path / "run/checkpoint.pt")
    with pytest.raises(UserError, match="an unfinished run of another"):
        plan("run", "--rounds", 4)
    forced = plan("run", "--rounds", 4, "--force")
    run_grid(world(), [forced], "none")
    assert forced.finished and forced.record().result["rounds"] == 4


def test_a_failed_run_gives_way_to_one_with_other_options(plan, tmp_path):
    bad = ["--checkpoint-every", 1, "--rounds", 30]
    run_grid(world(), [plan("run", *bad, "--lr", 1e200)], "none")
    assert (tmp_path / "run/checkpoint.pt").exists() and (tmp_path / "run/failed.json").exists()
    better = plan("run", "--rounds", 3)
    run_grid(world(), [better], "none")
    assert better.finished and {p.name for p in (tmp_path / "run").iterdir()} == {
        *("bootstrap.npz", "config.json", "history.csv", "model.pt"),
        *("partition.npz", "result.json"),
    }


def test_no_tensor_of_a_run_outlives_it(plan):
    def held() -> int:
        gc.collect()
        tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    plans = [
        plan(f"{method}-{seed}", "--rounds", 3, "--seed", seed, "--method", method)
        for seed in (0, 1)
        for method in ("fedminmax", "fedavg", "localfedminmax")
    ]
    plans.append(plan("bad", "--rounds", 30, "--lr", 1e200))
    before, sizes = held(), []
    run_grid(world(), plans, "none", after=lambda: sizes.append(held()))
    assert len(sizes) == len(plans) and max(sizes) <= before


def test_what_takes_long_comes_first(plan):
    """By rows that are gone through: of the rounds, the epochs and the batch."""
    rounds = ["--rounds", 10, "--eval-every", 10]
    plans = [
        plan("batches", *rounds, "--batch-rows", 8),  # 10 x .1 passes
        plan("local", "--rounds", 2, "--method", "fedavg", "--local-epochs", 3),  # 2 x 3.3
        plan("whole", *rounds),
        plan("more rows", *rounds, "--rows", 160),
    ]
    assert longest_first(plans) == [3, 2, 1, 0]
    assert plans[0].passes == pytest.approx(1.0)


def test_the_time_left_is_from_what_was_measured(plan, capsys):
    plans = [plan(f"s{seed}", "--rounds", 10, "--seed", seed) for seed in range(4)]
    plans += [plan("local", "--rounds", 2, "--method", "fedavg", "--local-epochs", 3)]
    progress = GridProgress("lines", plans)
    assert progress.seconds_left() is None
    progress.seconds_a_pass = {"fedminmax": [2.0, 4.0]}
    plans[0].finished = True
    plans[1].failure = "diverged"
    # Two runs of ten passes at three seconds each, and 2 x 3.3 passes of a method not yet measured.
    assert progress.seconds_left() == pytest.approx(2 * 10 * 3 + 6.6 * 3)
    progress.seconds_a_pass["fedavg"] = [1.0]
    assert progress.seconds_left() == pytest.approx(2 * 10 * 3 + 6.6)
    progress.current, progress.share_done = plans[2], 0.5
    assert progress.seconds_left() == pytest.approx(1.5 * 10 * 3 + 6.6)
    progress.begin(plans[2])
    assert "[2/5] s2: begins; about 67 s left" in capsys.readouterr().out


def test_durations():
    told = [duration(s) for s in (3.4, 99, 100, 3600, 8000)]
    assert told == ["3 s", "99 s", "2 min", "60 min", "2 h 13 min"]
