"""fedmpi.scaling: what it would measure, the model that it fits, and one small measurement."""

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runs import launcher, limit

from fedmpi.bench.launch import end, launch
from fedmpi.errors import UserError
from fedmpi.scaling.__main__ import launcher as chosen_launcher
from fedmpi.scaling.__main__ import read_command_line, to_show
from fedmpi.scaling.drawing import draw
from fedmpi.scaling.fit import Cluster, Layout, fit, predict
from fedmpi.scaling.page import page
from fedmpi.scaling.results import Row, medians, read, write
from fedmpi.scaling.studies import Point, make_groups, points

GAMMA, ALPHA, BETA = 2e-6, 3e-4, 5e-9
NEW = {"gamma 1,000": GAMMA, "alpha": ALPHA, "beta": BETA}


def plan(*arguments: str) -> list[Point]:
    return points(read_command_line(list(arguments), {}))


def test_strong_keeps_the_rows_and_weak_the_rows_of_a_rank():
    strong = plan("--studies", "strong", "--ranks", "1", "2", "8")
    assert [(p.x, p.ranks) for p in strong] == [("1", 1), ("2", 3), ("8", 9)]
    assert len({p.options for p in strong}) == 1
    weak = plan("--studies", "weak", "--ranks", "1", "2", "8", "--rows-per-rank", "100")
    assert [p.options[-1] for p in weak] == ["100", "200", "800"]


def test_the_other_studies_vary_one_thing_on_few_ranks():
    clients = plan("--studies", "clients", "--virtual", "40", "4000")
    assert [p.options[p.options.index("--clients") + 1] for p in clients] == ["40", "4000"]
    assert {p.ranks for p in clients} == {3} and "SSG" in clients[0].options
    models = plan("--studies", "models", "--models", "mlp", "resnet18", "--", "--data-dir", "D")
    assert [(p.x, p.ranks) for p in models] == [
        (model, ranks) for model in ("mlp", "resnet18") for ranks in (1, 3)
    ]
    assert models[0].options[-2:] == ("--data-dir", "D")
    sums = plan("--studies", "reduce", "--ranks", "1", "40")
    assert [(p.x, p.ranks) for p in sums] == [("40 flat", 41), ("40 hierarchical", 41)]


def test_an_allocation_decides_the_launcher_and_the_most_ranks():
    assert chosen_launcher(None, True, "MPICH")[:2] == ["srun", "--mpi=pmi2"]
    assert chosen_launcher(None, True, "Open MPI")[:2] == ["srun", "--mpi=pmix"]
    assert chosen_launcher("mpirun -f hosts", False, "MPICH") == ["mpirun", "-f", "hosts"]
    a = read_command_line(["--studies", "strong"], {})
    a.most = 9
    assert max(point.ranks for point in points(a)) == 9


def row(client_ranks: int, rows: int, seconds: float, study: str = "strong", **changes) -> Row:
    ranks = client_ranks + 1 if client_ranks > 1 else 1
    made = Row(
        *(study, str(client_ranks), ranks, client_ranks, f"--rows {rows}", "MPICH", "flat", 1, 2),
        *(rows, 4, 1000, 4004, 1, 10, seconds, 0.6 * seconds, 0.3 * seconds, 0.1 * seconds),
        *(seconds, 1.0),
    )
    return replace(made, **changes)


def test_the_ideal_is_the_work_of_a_core():
    """On two cores: half the time on two ranks, and no less on eight."""
    strong = medians([row(1, 1000, 4.0), row(2, 1000, 2.5), row(8, 1000, 4.0)], "strong")
    assert [p.ideal for p in strong] == [4, 2, 2]
    assert [p.efficiency for p in strong] == [1, 0.8, 0.5]
    weak = [row(1, 100, 1.0, "weak"), row(2, 200, 1.25, "weak"), row(8, 800, 8.0, "weak")]
    assert [p.efficiency for p in medians(weak, "weak")] == [1, 0.8, 0.5]


def test_points_are_in_order_whenever_they_were_measured():
    """And a study shows what was asked for now, though the file has other points of it."""
    rows = [row(8, 1000, 4.0), row(1, 1000, 4.0), row(1, 9, 1.0), row(2, 8, 1.0, "weak")]
    assert [p.row.client_ranks for p in medians(rows[:2], "strong")] == [1, 8]
    a = read_command_line(["--studies", "strong", "--ranks", "1", "8", "--", "--rows", "7"], {})
    a.mpi = "MPICH"
    wanted = [replace(r, options=" ".join(points(a)[0].options)) for r in rows[:2]]
    assert to_show(a, [*wanted, *rows]) == [*wanted, rows[-1]]


def test_repeats_become_their_median_and_their_range():
    (point,) = medians([row(1, 9, s, repeat=i) for i, s in enumerate((3.0, 1.0, 2.0))], "strong")
    assert (point.row.seconds, point.lowest, point.highest) == (2, 1, 3)
    assert point.share("exchange") == pytest.approx(0.3)


LAYOUTS = [
    Layout(rows, max(1, ranks - 1), ranks, hosts, 2 * hosts, size, 1000)
    for rows, size in ((1000, 4000), (8000, 400_000), (50_000, 40_000_000))
    for ranks, hosts in ((1, 1), (3, 1), (9, 1), (41, 1), (8, 4))
]


def seconds(layout: Layout, **network: float) -> float:
    constants = NEW | {"alpha'": 0.0, "beta'": 0.0} | network
    return sum(constants[name] * times for name, times in layout.terms().items())


def test_the_fit_finds_the_constants_that_made_the_times():
    layouts = [layout for layout in LAYOUTS if layout.hosts == 1]
    found = fit(layouts, [seconds(layout) for layout in layouts])
    assert found and found.constants == pytest.approx(NEW, rel=1e-6)
    assert max(map(abs, found.errors)) < 1e-9
    network = {"alpha'": 7e-5, "beta'": 1e-9}
    found = fit(LAYOUTS, [seconds(layout, **network) for layout in LAYOUTS])
    assert found and found.constants == pytest.approx(NEW | network, rel=1e-6)


def test_no_constant_is_negative():
    """An exchange that costs less than nothing, by noise, is one that costs nothing."""
    layouts = [layout for layout in LAYOUTS if layout.hosts == 1]
    noisy = [GAMMA * lay.terms()["gamma 1,000"] * (0.9 if lay.ranks > 1 else 1) for lay in layouts]
    found = fit(layouts, noisy)
    assert found and min(found.constants.values()) >= 0
    assert found.constants["gamma 1,000"] == pytest.approx(0.93 * GAMMA, rel=0.05)
    assert fit(layouts[:1], noisy[:1]) is None


def test_a_prediction_is_the_model_with_the_assumed_network():
    layouts = [layout for layout in LAYOUTS if layout.hosts == 1]
    found = fit(layouts, [seconds(layout) for layout in layouts])
    assert found
    (base,) = medians([row(1, 10_000, 1.0)], "strong")
    cluster = Cluster(node_cores=8, latency=1e-5, bandwidth=1e9)
    made = predict(found, base, cluster, 6, rows_per_rank=100)
    assert [p.nodes for p in made] == [1, 2, 4, 6]
    within = 3 * ALPHA + BETA * 2 * 4004 * 7 / 8
    between = 3 * 1e-5 + 1e-9 * 2 * 4004 * 5 / 6
    assert made[0].strong == pytest.approx(GAMMA * 10_000 / 8 + within)
    assert made[-1].strong == pytest.approx(GAMMA * 10_000 / 48 + within + between)
    assert made[-1].weak == pytest.approx(GAMMA * 100 + within + between)


def test_the_page_says_what_is_predicted_and_what_is_assumed(tmp_path):
    rows = [row(r, n, seconds(Layout(n, r, r + (r > 1), 1, 2, 4004, 1000)))
            for r in (1, 2, 8) for n in (1000, 9000)]  # fmt: skip
    text = page("a head", rows, Cluster(2, 5e-6, 1e9), 64, 100)
    assert "## strong" in text and "## Predicted, not measured: 64 nodes" in text
    assert "assumed, not measured: 5 µs and 8 Gbit/s" in text
    assert "Too few points" in page("a head", rows[:1], Cluster(2, 5e-6, 1e9), 64, 100)
    pytest.importorskip("matplotlib")
    assert draw(tmp_path, rows, "a head")
    assert "<svg" in (tmp_path / "scaling.svg").read_text()
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_comes_back_as_it_went(tmp_path):
    rows = [row(1, 9, 0.1), row(2, 9, 0.2, options='--dataset csv:"a b",c')]
    write(tmp_path / "scaling.csv", rows)
    assert read(tmp_path / "scaling.csv") == rows
    (tmp_path / "scaling.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="not a table of fedmpi"):
        read(tmp_path / "scaling.csv")


def test_made_groups_are_as_many_as_asked_for(tmp_path):
    make_groups(tmp_path / "g.csv", 7, 40)
    with open(tmp_path / "g.csv", newline="") as file:
        assert {line["g"] for line in csv.DictReader(file)} == {f"g{i}" for i in range(7)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ranks", "0"], "--ranks: at least 1"),
        (["--ranks", "64"], "Add --clients 64"),
        (["--ranks", "many"], "invalid int value"),
        (["--studies", "strnog"], "invalid choice"),
        (["--groups", "9999"], "more than the 8192"),
        (["--seconds", "0"], "above 0"),
        (["--output", __file__], "is a file"),
    ],
)
def test_bad_options_are_named(arguments, words):
    with pytest.raises(UserError, match=words):
        read_command_line(arguments)


def test_a_launch_that_takes_too_long_is_ended_by_term():
    """So that a launcher can end its ranks."""
    program = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    program += "; print('ready', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        end(process)
        assert process.returncode == 7
    with pytest.raises(UserError, match=r"not done in 0.1 s"):
        launch(Path(sys.executable), [], ["-c", "import time; time.sleep(600)"], timeout=0.1)
    with pytest.raises(UserError, match="no-such-mpirun: No such file"):
        launch(Path(sys.executable), ["no-such-mpirun"], [], timeout=3)


@pytest.mark.launch
@pytest.mark.once
def test_points_are_measured_once_and_one_that_fails_is_a_line(tmp_path):
    """Groups on 3 ranks, and then, beside a study of data that do not exist, not again."""
    groups = ["--groups", "3", "--group-rows", "90", "--repeats", "2", "--seconds", "0.01"]
    command = [sys.executable, "-m", "fedmpi.scaling", *groups, "--output", str(tmp_path)]
    data = ["--data-dir", str(tmp_path / "data")]

    def run(*more: str) -> subprocess.CompletedProcess:
        words = [*command, *more, *data]
        return subprocess.run(
            words, env=launcher(), capture_output=True, text=True, timeout=limit()
        )

    done = run("--studies", "groups", "--")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read(tmp_path / "scaling.csv")
    assert [(r.ranks, r.groups, r.rows, r.repeat) for r in rows] == [(3, 3, 72, 1), (3, 3, 72, 2)]
    for r in rows:
        assert 0 < r.compute < r.seconds and r.cpu > 0
        assert r.compute + r.wait + r.exchange == pytest.approx(r.seconds)
    assert "## groups" in (tmp_path / "scaling.md").read_text()
    done = run("--studies", "groups", "strong", "--ranks", "2", "--", "--dataset", "none")
    assert done.returncode == 1 and "groups 3: is in" in done.stdout
    assert len(done.stderr.splitlines()) == 1 and "strong 2: " in done.stderr
    assert "unknown dataset 'none'" in done.stderr and read(tmp_path / "scaling.csv") == rows
