"""--sums exact: one SHA-256 of theta for all layouts; --secure: the same one. And fedmpi.verify."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from exact_layouts import EXACT, KINDS, KINDS_OF, LAYOUTS, PLAIN, QUICK, SECURE, people
from jobs import options
from runs import REPOSITORY, Run, cut_off_after, launch

from fedmpi import verify
from fedmpi.mpi.ranks import AgreedError
from fedmpi.scoring.replicates import read_replicates

SUMS = ("--sums", "exact")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("exact")


@pytest.fixture
def runs(request, folder) -> Path:
    """Kinds on all layouts, in one launch of a real mpirun; for slow tests a second one."""
    script = str(REPOSITORY / "tests/helpers/exact_layouts.py")
    most = max(size for size, _ in LAYOUTS.values())
    for which in KINDS_OF if request.node.get_closest_marker("slow") else ("quick",):
        if not (folder / which).exists():
            command = ["mpirun", "-n", str(most), sys.executable, script, str(folder), which]
            done = launch(command)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
            (folder / which).touch()
    return folder


def cases(kinds: Iterable[str]) -> list:
    """Parameters of a test: kinds that are not quick are slow."""
    return [pytest.param(k, marks=[] if k in QUICK else [pytest.mark.slow]) for k in kinds]


def told(run: Run) -> dict:
    """What must have the same bits: JSON has all digits of a float."""
    result = run.result
    return {
        "theta": result["receipt"]["sha256"],
        "groups": result["groups"],
        "validation": result.get("validation"),
        "metrics": result.get("metrics"),
        "history": [
            {k: v for k, v in row.items() if k.startswith(("round", "risk/", "weight/", "valid"))}
            for row in run.history
        ],
    }


@pytest.mark.launch
@pytest.mark.parametrize("layout", [name for name in EXACT if name != "1-flat"])
@pytest.mark.parametrize("kind", cases(KINDS))
def test_every_layout_gives_the_same_bits(runs, kind, layout):
    one, other = told(Run(runs / f"{kind}-1-flat")), told(Run(runs / f"{kind}-{layout}"))
    assert other["theta"] == one["theta"]
    assert other["groups"] == one["groups"] and other["validation"] == one["validation"]
    assert other["metrics"] == one["metrics"] and other["history"] == one["history"]
    assert (one["metrics"] is None) == (kind != "validate")


@pytest.mark.launch
@pytest.mark.parametrize("kind", cases(KINDS))
def test_every_layout_gives_the_same_replicates(runs, kind):
    """Of the rows of one file and of owners' rows, bit for bit; their mean is near the risk."""
    one, *others = (read_replicates(runs / f"{kind}-{layout}") for layout in EXACT)
    assert one and len(one.risk) == 41 and len(others) == len(EXACT) - 1
    for other in filter(None, others):
        assert other.test_rows == one.test_rows
        for name in ("losses", "right", "rows"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
    groups = Run(runs / f"{kind}-1-flat").result["groups"].values()
    assert one.risk[0].tolist() == [group["risk"] for group in groups]
    assert one.rows[0].tolist() == [group["n_test"] for group in groups]
    assert np.nanmean(one.risk[1:], axis=0) == pytest.approx(one.risk[0], rel=0.5)
    assert not any((runs / f"{kind}-{layout}/bootstrap.npz").exists() for layout in SECURE)


@pytest.mark.launch
@pytest.mark.parametrize("layout", SECURE)
@pytest.mark.parametrize("kind", cases(kind for kind in KINDS if kind not in PLAIN))
def test_masks_change_no_bit(runs, kind, layout):
    one, other = told(Run(runs / f"{kind}-1-flat")), told(Run(runs / f"{kind}-{layout}"))
    assert other["theta"] == one["theta"]
    risks = [{g: row["risk"] for g, row in each["groups"].items()} for each in (one, other)]
    assert risks[0] == risks[1] and all(isinstance(risk, float) for risk in risks[0].values())


@pytest.mark.launch
@pytest.mark.parametrize("kinds", [QUICK, pytest.param(KINDS, marks=pytest.mark.slow)])
def test_the_kinds_differ(runs, kinds):
    """The comparisons above could not fail if all runs gave the same theta."""
    thetas = {told(Run(runs / f"{kind}-1-flat"))["theta"]["last"] for kind in kinds}
    assert len(thetas) == len(kinds)
    assert Run(runs / "all-6-flat").theta().dtype == np.float32


@pytest.mark.launch
@pytest.mark.parametrize("kind", cases(KINDS))
def test_the_receipt_is_the_hash_of_the_numbers_in_the_file(runs, kind):
    run = Run(runs / f"{kind}-3-flat")
    saved = torch.load(run.folder / "model.pt", weights_only=True)
    for name, hashed in run.result["receipt"]["sha256"].items():
        content = b"".join(p.numpy().astype("<f4").tobytes() for p in saved[name].values())
        assert hashlib.sha256(content).hexdigest() == hashed


@pytest.mark.parametrize("more", ["", "--batch-rows 30 --optimizer nesterov", "--optimizer adam"])
def test_a_resumed_run_has_the_same_bits(train, tmp_path, more):
    arguments = options(tmp_path, "run", 6, *SUMS, "--checkpoint-every", "1", *more.split())
    whole = train(*arguments, output="whole")
    with cut_off_after(4):
        train(*arguments)
    assert not (tmp_path / "run/result.json").exists()
    assert told(train(*arguments, "--resume")) == told(whole)


@pytest.mark.parametrize("more", ["--lr-mu 0.1", "--method fedavg --local-epochs 2"])
def test_floats_and_integers_agree(train, tmp_path, more):
    arguments = options(tmp_path, "run", 20, "--dtype", "float64", *more.split())
    floats, integers = train(*arguments), train(*arguments, *SUMS, output="exact")
    scale = np.abs(floats.theta()).max()
    assert 0 < np.abs(floats.theta() - integers.theta()).max() < 1e-6 * scale
    for group, row in floats.result["groups"].items():
        assert integers.result["groups"][group]["risk"] == pytest.approx(row["risk"], rel=1e-6)
    assert "receipt" not in floats.result


@pytest.mark.parametrize("step", ["1e4", "1e300"])
def test_a_step_that_is_too_long_ends_with_a_line(train, tmp_path, step):
    with pytest.raises(AgreedError) as told:
        train(*options(tmp_path, "run", 30, "--lr", step, *SUMS))
    line = str(told.value)
    assert "beyond 128" in line or "is not finite" in line
    assert "beyond 128" in line or step != "1e4"
    assert "try --lr" in line and "\n" not in line
    assert not (tmp_path / "run/result.json").exists()


@pytest.fixture
def done(train, tmp_path) -> Path:
    """A finished run that can be verified."""
    return train(*options(tmp_path, "run", 3, *SUMS)).folder


def verified(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["fedmpi.verify", *map(str, arguments)])
    return verify.main()


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_run_is_verified(monkeypatch, capsys, done):
    before = {path.name: path.read_bytes() for path in done.iterdir()}
    assert verified(monkeypatch, done) == 0
    assert "verified: the same theta" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in done.iterdir()} == before


def test_a_run_from_before_an_option_is_verified(monkeypatch, done):
    """As those are that had no --autocast."""
    config = json.loads((done / "config.json").read_text())
    del config["autocast"]
    (done / "config.json").write_text(json.dumps(config))
    assert verified(monkeypatch, done) == 0


@pytest.mark.launch
@pytest.mark.once
def test_a_run_is_verified_on_another_layout(mpirun, done):
    again = mpirun(3, "-m", "fedmpi.verify", done)
    assert again.returncode == 0 and "verified" in again.stdout, again.stderr


def test_a_changed_receipt_is_found(monkeypatch, capsys, done):
    receipt = Run(done).result["receipt"]
    receipt["sha256"]["last"] = "0" * 64
    edit(done / "result.json", receipt=receipt)
    assert verified(monkeypatch, done) == 1
    assert "nothing that it depends on differs" in capsys.readouterr().out
    receipt["depends_on"]["torch"] = "0.4"
    edit(done / "result.json", receipt=receipt)
    assert verified(monkeypatch, done) == 1
    assert "differs: torch 0.4, now" in capsys.readouterr().out


def test_another_configuration_is_found(monkeypatch, done):
    edit(done / "config.json", lr=0.123)
    assert verified(monkeypatch, done) == 1


def test_what_cannot_be_verified_is_refused(monkeypatch, train, tmp_path, done):
    floats = train(*options(tmp_path, "floats", 3), output="floats").folder
    lost, private = (shutil.copytree(done, tmp_path / name) for name in ("lost", "private"))
    edit(lost / "result.json", lost=[{"rank": 2}])
    edit(private / "config.json", dp_epsilon=1.0)
    for folder, says in (
        (tmp_path / "nothing", "no finished run"),
        (floats, "no receipt"),
        (lost, "lost ranks"),
        (private, "--dp-epsilon"),
    ):
        with pytest.raises(AgreedError, match=says):
            verified(monkeypatch, folder)


@pytest.mark.launch
@pytest.mark.parametrize("client_ranks", [1, 3])
def test_a_run_with_masks_is_verified_with_masks(monkeypatch, runs, tmp_path, client_ranks):
    """A rank's own numbers are as secret then. One client rank has all rows, and nobody to mask."""
    monkeypatch.setattr(sys, "argv", ["fedmpi.verify", str(runs / "all-secure-4-flat")])
    ranks = SimpleNamespace(size=client_ranks + 1, client_ranks=list(range(client_ranks)))
    config, _ = verify.run_to_repeat(ranks, str(tmp_path))
    assert config.secure == (client_ranks > 1) and config.sums == "exact"


def test_changed_data_are_refused(monkeypatch, tmp_path, done):
    with open(tmp_path / "people.csv", "a") as file:
        file.write("1.0,2.0,a,1\n")
    with pytest.raises(AgreedError, match="have changed"):
        verified(monkeypatch, done)


def test_changed_data_of_owners_are_refused(monkeypatch, train, tmp_path):
    head, *rows = people(200)
    (tmp_path / "owners").mkdir()
    for name, mine in (("k", rows[:80]), ("m", rows[80:])):
        (tmp_path / f"owners/{name}.csv").write_text("\n".join([head, *mine]) + "\n")
    run = train(
        *("--dataset", f"csv:{tmp_path}/owners/", "--target", "y", "--group", "g", "--rounds", 3),
        *("--model", "logistic", *SUMS),
    )
    assert verified(monkeypatch, run.folder) == 0
    with open(tmp_path / "owners/m.csv", "a") as file:
        file.write(rows[0] + "\n")
    with pytest.raises(AgreedError, match="have changed"):
        verified(monkeypatch, run.folder)
