"""--participation, --cohort and --availability on the command line: what they are, and are not."""

import json

import numpy as np
import pytest

from fedmpi.errors import UserError
from fedmpi.run.arguments import resolve
from fedmpi.run.participation import probabilities


def settled(given: str):
    """Options on three client ranks, the fewest of which none learns another's part."""
    words = f"--dataset synthetic --clients 8 {given}"
    return resolve(words.split(), 3, one_process=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--cohort 0", "--cohort 0: must be at least 1"),
        ("--cohort 9", "--cohort 9: there are 8 clients; give at most that many"),
        ("--participation 0", "must be above 0 and at most 1"),
        ("--participation 1.01", "must be above 0 and at most 1"),
        ("--participation nan", "a finite number"),
        ("--participation .5 --cohort 4", "give one of them"),
        ("--method centralized --cohort 1", "--method centralized has one client"),
        ("--method needy:Sampled --cohort 2", "Sampled draws the clients of a round itself"),
        ("--cohort 2 --batch-rows 50", "--cohort and --batch-rows"),
        ("--cohort 2 --model logistic --loss cross-entropy --optimizer newton", "newton"),
        ("--cohort 2 --model logistic --loss cross-entropy --until gap=1e-3", "--until"),
        ("--cohort 2 --secure", "--cohort and --secure"),
        ("--participation .5 --dp-epsilon 3", "--participation and --dp-epsilon"),
        ("--availability-correction no", "is for --availability FILE"),
        ("--availability nowhere.csv", "nowhere.csv: No such file"),
    ],
)
def test_what_is_refused(given, message):
    with pytest.raises(UserError, match=message):
        settled(given)


UNDEFINED = """
from fedmpi.methods.method import Method

class Mine(Method):
    pass
"""


def test_a_method_that_does_not_say_it_is_defined_is_refused(tmp_path, monkeypatch):
    (tmp_path / "undefined.py").write_text(UNDEFINED)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="Mine is not defined where only some clients take part"):
        settled("--method undefined:Mine --cohort 2")


@pytest.mark.parametrize("given", ["--participation 1", "--cohort 8", "--participation 1 --secure"])
def test_all_clients_are_none_of_these_options(given):
    config = settled(given)
    assert config.options["participation"] is None and config.options["cohort"] is None


def test_a_cohort_is_part_of_what_a_run_is_known_by():
    assert settled("--cohort 2").identity() != settled("").identity()
    assert settled("--cohort 2").saved()["cohort"] == 2


def test_fast_takes_no_step_that_needs_all_clients():
    whole = "--model logistic --loss cross-entropy"
    assert settled(whole).options["optimizer"] == "newton"
    assert settled(f"{whole} --cohort 2").options["optimizer"] == "nesterov"
    assert settled("--model cnn").options["batch_rows"] == 250
    assert settled("--model cnn --cohort 2").options["batch_rows"] is None


@pytest.fixture
def written(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "often.csv").write_text(text)
        return f"--availability {tmp_path / 'often.csv'}"

    return write


EIGHT = "".join(f"{k},.{k + 1}\n" for k in range(8))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its first line must be client,probability"),
        ("client,p\n0,1\n", "its first line must be client,probability"),
        ("client,probability\n", "has no clients"),
        ("client,probability\n0,1\n0,1\n", "client 0 is there twice"),
        ("client,probability\n0,0\n", "client 0 is '0'; it must be above 0 and at most 1"),
        ("client,probability\n0,1.5\n", "must be above 0 and at most 1"),
        ("client,probability\n0,often\n", "client 0 is 'often'"),
        ("client,probability\n0\n", "client 0 is ''"),
        (f"client,probability\n{EIGHT[:-5]}", "has no line for client 7"),
        (f"client,probability\n{EIGHT}8,1\n", "has client '8'"),
    ],
)
def test_files_that_are_refused(written, text, message):
    with pytest.raises(UserError, match=message):
        settled(written(text))


def test_a_file_is_known_by_what_is_in_it(written, tmp_path):
    one = settled(written(f"client,probability\n{EIGHT}"))
    assert one.available == {str(k): (k + 1) / 10 for k in range(8)}
    assert one.options["availability_correction"] == "yes"
    (tmp_path / "often.csv").rename(tmp_path / "moved.csv")
    moved = settled(f"--availability {tmp_path / 'moved.csv'}")
    assert moved.identity() == one.identity()
    other = settled(written(f"client,probability\n{EIGHT.replace('.1', '.15')}"))
    assert other.identity() != one.identity()
    assert json.loads(json.dumps(one.identity()))["available"] == one.available


def test_lines_may_be_in_any_order():
    np.testing.assert_array_equal(probabilities({"b": 0.2, "a": 0.1}, ("a", "b")), [0.1, 0.2])
