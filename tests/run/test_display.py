"""What rank 0 prints."""

import math

import numpy as np

from fedmpi.run.display import Progress, facts, result_table, validated


def group(risk: float | None, accuracy: float, n_test: int = 40, **more: object) -> dict:
    return {
        "n_train": 1200,
        "n_test": n_test,
        "risk": risk,
        "accuracy": accuracy,
        "weight": None,
    } | more


def table(groups: dict[str, dict], **more: object) -> list[str]:
    result: dict = {"groups": groups, **more}
    for name in ("worst", "best", "average"):
        result |= {f"{name}_risk": 0.25, f"{name}_accuracy": 0.5}
    return result_table(result).splitlines()


def test_the_table_has_a_line_a_group_and_dashes_for_what_is_not_there():
    lines = table({"north": group(0.25, 0.5, weight=0.999), "south": group(None, math.nan)})
    assert lines[1].split() == ["north", "1,200", "40", "0.2500", "0.5000", "0.9990"]
    assert lines[2].split() == ["south", "1,200", "40", "-", "-", "-"]
    assert [line.split()[:2] for line in lines[4:6]] == [["worst:", "north"], ["best:", "north"]]
    assert lines[6].split() == ["average", "0.2500", "0.5000"] and len(lines) == 7
    assert len({len(line) for line in lines[:4]}) == 1


def test_intervals_stand_beside_their_figures():
    ends = {"risk_interval": [0.125, 0.375], "accuracy_interval": [0.25, 0.75]}
    told = {f"worst_{name}": interval for name, interval in ends.items()}
    lines = table({"north": group(0.25, 0.5, **ends), "south": group(0.2, 0.6)}, **told)
    figures = ["0.2500", "0.125-0.375", "0.5000", "0.250-0.750"]
    assert lines[1].split()[3:] == [*figures, "-"]
    assert lines[4].split() == ["worst:", "north", *figures]
    at = [lines[i].index("0.125-0.375") for i in (1, 4)]
    assert at[0] == at[1] and "all groups at once" in lines[-1]


def test_risk_and_accuracy_may_be_of_different_groups_and_both_are_named():
    lines = table({"north": group(0.25, 0.9), "a southern group": group(0.1, 0.5)})
    assert [line.rsplit("  ", 1)[0].strip() for line in lines[4:8]] == [
        "worst risk: north",
        "worst accuracy: a southern group",
        "best risk: a southern group",
        "best accuracy: north",
    ]
    assert lines[4].index("0.2500") < lines[5].index("0.5000")
    assert (
        len({len(line) for line in table({"a": group(0.25, 0.9), "b": group(0.1, 0.5)})[:4]}) == 1
    )


def test_a_worst_group_of_few_test_rows_is_told():
    assert table({"north": group(0.25, 0.5, 29), "south": group(0.2, 0.6, 3)})[-1] == (
        "note: worst risk and accuracy of few test rows: 29, of north"
    )
    lines = table({"north": group(0.25, 0.9, 30), "south": group(0.2, 0.6, 3)})
    assert lines[-1] == "note: worst accuracy of few test rows: 3, of south"


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


def test_the_round_that_validation_chose_is_said():
    result = {"rounds": 21, "validation": {"round": 10, "worst_risk": 0.61625}}
    line = validated(result, 100)
    assert line.startswith("ended after round 21 of 100") and "that of round 10" in line
    assert "ended" not in validated(result | {"rounds": 100}, 100)
