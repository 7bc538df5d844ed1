"""Which checkpoint a resume takes, which it refuses, and when one is due."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from jobs import options
from runs import CutOff
from test_journal import files_of_at_most

from fedmpi.errors import UserError
from fedmpi.federation.server import Server
from fedmpi.run import checkpoint
from fedmpi.run.checkpoint import Schedule, parse_every


def rounds(folder) -> dict[str, int]:
    return {p.name: torch.load(p, weights_only=True)["round"] for p in folder.glob("*.pt")}


def test_the_newest_and_the_one_before_are_kept_and_go_at_the_end(train, cut, tmp_path):
    assert rounds(tmp_path / "run") == {"checkpoint.pt": 4, "checkpoint-previous.pt": 3}
    train(*cut, "--resume")
    assert not list((tmp_path / "run").glob("checkpoint*"))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-200])


def flip_a_bit(path):
    """In theta itself, where torch would not notice."""
    data = bytearray(path.read_bytes())
    theta = torch.load(path, weights_only=True)["theta"]
    place = bytes(data).index(theta.numpy().tobytes())
    data[place + 3] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "truncated": (truncate, "cannot be read"),
    "empty": (lambda path: path.write_bytes(b""), "cannot be read"),
    "a bit flipped": (flip_a_bit, "is damaged"),
    "gone": (lambda path: path.unlink(), "there is no"),
}


def test_a_kill_between_the_two_names_leaves_nothing_behind(train, cut, tmp_path):
    """Then both names are of one file, and to rename a third onto them does nothing."""
    newest, previous = (tmp_path / "run" / name for name in ("checkpoint.pt", checkpoint.PREVIOUS))
    previous.unlink()
    previous.hardlink_to(newest)
    train(*cut, "--resume")
    assert not [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_the_previous_one(train, cut, damage, tmp_path, capfd):
    whole = train(*cut, output="whole").theta()
    harm, said = DAMAGE[damage]
    harm(tmp_path / "run/checkpoint.pt")
    resumed = train(*cut, "--resume")
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("fedmpi:")]
    assert said in line and line.endswith("going on from checkpoint-previous.pt, round 3.")
    assert (resumed.theta() == whole).all()


def test_the_damaged_one_never_takes_the_place_of_the_good_one(train, cut, tmp_path):
    run = tmp_path / "run"
    truncate(run / "checkpoint.pt")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(CutOff):
        patch.setattr(Server, "start_clock", lambda self: (_ for _ in ()).throw(CutOff))
        train(*cut, "--resume")
    assert rounds(run) == {"checkpoint.pt": 3}


def test_two_damaged_checkpoints_are_refused(train, cut, tmp_path):
    for name in ("checkpoint.pt", "checkpoint-previous.pt"):
        truncate(tmp_path / "run" / name)
    with pytest.raises(UserError, match=r"checkpoint\.pt .*checkpoint-previous\.pt .*--force"):
        train(*cut, "--resume")


def test_a_checkpoint_that_would_run_code_is_not_run(train, cut, tmp_path):
    class Evil:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'evil')!r}, 'w')",))

    for name in ("checkpoint.pt", "checkpoint-previous.pt"):
        torch.save({"format": Evil()}, tmp_path / "run" / name)
    with pytest.raises(UserError, match="cannot be read"):
        train(*cut, "--resume")
    assert not (tmp_path / "evil").exists()


def test_other_data_and_other_configurations_are_refused_with_what_differs(train, cut, tmp_path):
    with pytest.raises(UserError, match=r"another configuration: lr was 0\.01, now 0\.5\."):
        train(*cut, "--resume", "--lr", "0.5")
    with pytest.raises(UserError, match=r"--rounds 3: .* round 4 already"):
        train(*cut, "--resume", "--rounds", "3")
    people = tmp_path / "people.csv"
    people.write_text(people.read_text().replace(",a,1", ",a,0", 1))
    with pytest.raises(UserError, match=r"of other data: csv-people-.*, now csv-people-"):
        train(*cut, "--resume")
    assert rounds(tmp_path / "run")["checkpoint.pt"] == 4


def test_a_stranger_in_the_place_of_the_newest_is_named_and_the_previous_offered(
    train, cut, tmp_path
):
    other = options(
        tmp_path, "other", 6, "--checkpoint-every", "1", "--clients", "5", "--seed", "9"
    )
    save = Server.save_checkpoint
    with pytest.MonkeyPatch.context() as patch, pytest.raises(CutOff):

        def once(self, t, tables):
            save(self, t, tables)
            raise CutOff

        patch.setattr(Server, "save_checkpoint", once)
        train(*other, output="other")
    shutil.copy(tmp_path / "other/checkpoint.pt", tmp_path / "run/checkpoint.pt")
    with pytest.raises(UserError, match=r"seed was 9, now 0.*previous\.pt \(round 3\) fits"):
        train(*cut, "--resume")


def test_a_history_that_was_lost_is_said_and_the_model_is_not(train, cut, tmp_path, capfd):
    whole = train(*cut, output="whole")
    (tmp_path / "run/history.csv").unlink()
    resumed = train(*cut, "--resume")
    assert "history.csv is not what the checkpoint of round 4 saw" in capfd.readouterr().err
    assert (resumed.theta() == whole.theta()).all()
    assert [row["round"] for row in resumed.history] == ["5", "6"]


@pytest.mark.parametrize("name", ["checkpoint.pt", "history.csv", "model.pt"])
def test_a_full_disk_is_one_line_and_the_files_before_it_stand(train, cut, tmp_path, name):
    from fedmpi.run.folder import RunFolder
    from fedmpi.run.journal import Journal

    whole = train(*cut, output="whole").theta()
    write, keep = RunFolder.write, Journal.keep

    def write_to_full_disk(self, written, *more, **options):
        with files_of_at_most(900 if written == name else 10**9):
            write(self, written, *more, **options)

    def keep_on_full_disk(self):
        with files_of_at_most(10 if self.path.name == name else 10**9):
            keep(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "write", write_to_full_disk)
        patch.setattr(Journal, "keep", keep_on_full_disk)
        with pytest.raises(UserError) as caught:
            train(*cut, "--resume")
    path = re.escape(str(tmp_path / "run" / name))
    assert re.fullmatch(
        rf"cannot write {path}: File too large\. What was there before stands\.", str(caught.value)
    )
    files = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"checkpoint.pt", "checkpoint-previous.pt", "history.csv"} <= files
    assert not any(name.startswith(".") for name in files)
    assert (train(*cut, "--resume").theta() == whole).all()


def test_what_a_killed_job_was_writing_is_cleared_away(train, cut, tmp_path):
    aside = tmp_path / "run/.checkpoint.pt.12345"
    aside.write_bytes(b"half")
    train(*cut, "--resume")
    assert not aside.exists()


def test_every():
    assert [parse_every(text) for text in ("500", "10m", "1.5h", "30s", "auto")] == [
        (500, 0),
        (0, 600),
        (0, 5400),
        (0, 30),
        (0, 0),
    ]
    for text in ("0", "0m", "-1", "1.5", "m", "10 m", "nan", "10d", ""):
        with pytest.raises(UserError, match=r"--checkpoint-every .*10m"):
            parse_every(text)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: now[0])
    return now


def test_a_schedule_of_rounds_and_one_of_time(clock):
    by_rounds, by_time = Schedule("3"), Schedule("2m")
    by_rounds.start()
    by_time.start()
    due = []
    for t in range(1, 10):
        clock[0] += 50
        if by_time.due(t):
            by_time.wrote(1)
            due.append(t)
        assert by_rounds.due(t) == (t in (3, 6, 9))
    assert due == [3, 6, 9]


@pytest.mark.parametrize("cost", [0.001, 0.5, 7.0])
def test_by_default_checkpoints_cost_less_than_a_fiftieth_of_the_time(clock, cost):
    schedule, written = Schedule("auto"), 0
    schedule.start()
    for t in range(1, 20000):
        clock[0] += 0.5
        if schedule.due(t):
            clock[0] += cost
            schedule.wrote(cost)
            written += 1
    elapsed = clock[0] - 100
    assert written * cost <= 0.02 * elapsed + cost  # the first, whose cost is not known yet
    assert written >= 0.9 * min(elapsed / 10, 0.02 * elapsed / cost) - 1


def test_the_measured_cost_is_kept_and_used_by_a_resume(train, cut, tmp_path):
    from runs import Run

    measured = Run(tmp_path / "run").config["measured"]["checkpoint_seconds"]
    assert measured > 0
    seen = []
    start = Server.start_clock
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Server, "start_clock", lambda self: (seen.append(self.schedule.cost), start(self))
        )
        resumed = train(*cut, "--resume")
    assert seen == [measured] and resumed.config["measured"]["checkpoint_seconds"] == measured


def test_a_checkpoint_has_what_was_chosen_at_the_start(cut, tmp_path):
    state = torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert state["measured"]["micro_batch"] == config["micro_batch"] > 0
    assert state["measured"]["hierarchical"] == (config["layout"]["reduce"] == "hierarchical")


def with_losses(folder, losses: object) -> None:
    """Let the newest checkpoint say that these ranks were lost."""
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    torch.save(state | {"lost": json.dumps(losses)}, folder / "checkpoint.pt")


def test_who_was_lost_stays_lost(train, cut, tmp_path):
    lost = [{"rank": 2, "clients": [1, 3], "last_round": 4, "groups": []}]
    with_losses(tmp_path / "run", lost)
    result = train(*cut, "--resume").result
    assert result["lost"] == lost
    with np.load(tmp_path / "run/partition.npz") as partition:
        left = partition["counts"][:, [0, 2, 4]].sum(axis=1)
    assert [group["n_train"] for group in result["groups"].values()] == left.tolist()


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([{"rank": 1, "clients": ["x"], "last_round": 4}], "is not a checkpoint of a run"),
        ([{"rank": 1, "last_round": 4}], "cannot be read"),
        ([{"rank": 1, "clients": [0, 1, 2, 3, 4], "last_round": 4}], "had lost all its clients"),
    ],
)
def test_losses_that_cannot_be_are_refused(train, cut, tmp_path, losses, said):
    with_losses(tmp_path / "run", losses)
    (tmp_path / "run/checkpoint-previous.pt").unlink()
    with pytest.raises(UserError, match=said):
        train(*cut, "--resume")
