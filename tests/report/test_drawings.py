"""The figures for papers."""

import io
import sys

import matplotlib
import pytest
from matplotlib.colors import to_hex

from fedmpi.report import drawings
from fedmpi.report.__main__ import main
from fedmpi.report.collect import collect
from fedmpi.run.record import find_records

OF_DATASET = {"risk", "accuracy", "group-risk", "weights", "trend", "h"}
OF_RUN = {"history-risk", "history-weight", "time", "partition", "h"}
MAGIC = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def test_a_run_gives_the_figures_of_its_dataset_and_its_own(run):
    assert main([str(run), "--format", "svg"]) == 0
    names = {f"synthetic-{name}" for name in OF_DATASET} | {f"run-{name}" for name in OF_RUN}
    assert {path.name for path in (run / "figures").iterdir()} == {f"{n}.svg" for n in names}


@pytest.mark.parametrize("form", ["png", "pdf"])
def test_a_folder_of_runs_gives_the_comparisons(run, tmp_path, form):
    assert main([str(tmp_path), "--format", form]) == 0
    files = list((tmp_path / "figures").iterdir())
    assert {path.name for path in files} == {f"synthetic-{name}.{form}" for name in OF_DATASET}
    assert all(path.read_bytes().startswith(MAGIC[form]) for path in files)


def test_the_same_runs_give_the_same_bytes(run):
    (section,) = collect(find_records([run]), [run])["sections"]
    for form, magic in MAGIC.items():
        first, second = io.BytesIO(), io.BytesIO()
        for file in (first, second):
            with matplotlib.rc_context(drawings.STYLE):
                drawings.save(drawings._bars(section, "risk"), form, file)
        assert first.getvalue() == second.getvalue()
        assert first.getvalue().startswith(magic)


def test_the_bars_are_the_means(runs):
    (section,) = collect(find_records([runs]), [runs])["sections"]
    figure = drawings._bars(section, "risk")
    for ax, setting in zip(figure.axes, section["settings"], strict=True):
        drawn = sorted((to_hex(p.get_facecolor()), p.get_width()) for p in ax.patches)
        cells = [c for c in section["cells"] if c["setting"] in (setting, "")]
        expected = sorted(
            (colour, cell["stats"][f"{which}_risk"][0])
            for which, colour, _ in drawings.BARS
            for cell in cells
        )
        assert len(drawn) == 9
        assert [colour for colour, _ in drawn] == [colour for colour, _ in expected]
        assert [value for _, value in drawn] == pytest.approx([value for _, value in expected])


def test_the_longest_bar_is_seen_whole_in_whichever_panel_it_is(runs):
    (section,) = collect(find_records([runs]), [runs])["sections"]
    for longest in section["cells"]:
        longest["stats"]["worst_risk"] = (7.0, 0.5)
        longest["intervals"] = None  # the deviation is drawn
        figure = drawings._bars(section, "risk")
        assert all(ax.get_xlim()[0] == 0 and ax.get_xlim()[1] > 7.5 for ax in figure.axes)
        longest["stats"]["worst_risk"] = (0.1, 0.0)


def test_clients_are_named_or_counted_in_whole_numbers(run, owned):
    for folder, expected in ((owned, ["First Bank", "Second Bank"]), (run, ["0", "1", "2", "3"])):
        data = collect(find_records([folder]), [folder])
        figure = drawings._partition(data["partitions"][0])
        figure.canvas.draw()
        assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == expected


def test_one_run_has_the_intervals_of_its_test_rows(run):
    (section,) = collect(find_records([run]), [run])["sections"]
    figure = drawings._groups(section, "risk", "test risk")
    (_, _, (bars,)) = figure.axes[0].containers[0]
    drawn = [sorted(segment[:, 0]) for segment in bars.get_segments()]
    assert drawn == [pytest.approx(g["risk_interval"]) for g in section["runs"][0]["groups"]]
    low, _ = figure.axes[0].get_xlim()
    assert 0 < low < min(g["risk_interval"][0] for g in section["runs"][0]["groups"])


def test_names_that_are_tex_are_drawn_as_they_are(nasty, tmp_path):
    assert main([str(tmp_path), "--format", "svg"]) == 0
    text = (tmp_path / "figures" / "people-group-risk.svg").read_text(encoding="utf-8")
    assert "$x_1$" in text and "Zürich" in text


def test_without_matplotlib_one_line_says_what_to_install(nasty, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([str(nasty), "--format", "png"]) == 2
    assert "needs matplotlib: pip install" in capsys.readouterr().err
    assert not (nasty / "figures").exists()
