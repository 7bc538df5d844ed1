"""What rank 0 prints."""

import numpy as np

from fedmpi.run.display import Progress, facts, result_table


def group(risk: float | None, weight: float | None = None) -> dict:
    return {"n_train": 1200, "n_test": 30, "risk": risk, "accuracy": 0.5, "weight": weight}


def test_the_table_has_a_line_a_group_and_dashes_for_what_is_not_there():
    result = {"groups": {"north": group(0.25, 0.999), "south": group(None)}}
    for name in ("worst", "best", "average"):
        result |= {f"{name}_risk": 0.25, f"{name}_accuracy": 0.5}
    lines = result_table(result).splitlines()
    assert lines[1].split() == ["north", "1,200", "30", "0.2500", "0.5000", "0.9990"]
    assert lines[2].split() == ["south", "1,200", "30", "-", "0.5000", "-"]
    assert [line.split()[0] for line in lines[4:]] == ["worst", "best", "average"]
    assert len({len(line) for line in lines[:4]}) == 1


def test_facts_are_aligned():
    assert facts({"lr": 0.1, "rounds": 3}) == "  lr      0.1\n  rounds  3"


def test_lines_name_the_worst_group_and_the_time_left(capsys):
    progress = Progress("lines", rounds=3)
    for t in (1, 2, 3):
        progress.update(t, ("a", "b"), np.array([0.1, 0.7]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2  # the first and the last: between them too little time passed
    assert "round 1/3" in lines[0] and "worst 0.7000 (b)" in lines[0] and "left" in lines[0]
    assert "round 3/3" in lines[1] and "left" not in lines[1]


def test_a_bar_shows_the_worst_group(capsys):
    progress = Progress("bar", rounds=2)
    progress.line_at -= 10
    progress.update(1, ("a", "b"), np.array([0.9, 0.7]))
    progress.update(2, ("a", "b"), np.array([0.9, 0.7]))
    assert "2/2" in (shown := capsys.readouterr().err) and "worst 0.9000 (a)" in shown


def test_none_prints_nothing(capsys):
    Progress("none", rounds=1).update(1, ("a",), np.array([0.5]))
    assert capsys.readouterr() == ("", "")
