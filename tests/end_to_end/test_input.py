"""Whatever is given: a result, or one clear line on every rank, and nothing overwritten."""

import json
import re
import sys

import pytest
from input_cases import CASES, GOOD, folder_of
from runs import REPOSITORY, Run, launch

RANKS = 3


@pytest.fixture(scope="module")
def tried(tmp_path_factory) -> tuple[dict, object]:
    """The whole table, on three ranks of one real mpirun."""
    folder = tmp_path_factory.mktemp("input")
    command = ["mpirun", "-n", str(RANKS), sys.executable]
    command += [str(REPOSITORY / "tests/helpers/input_cases.py"), str(folder)]
    done = launch(command)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    return json.loads((folder / "outcomes.json").read_text()), folder


@pytest.mark.launch
@pytest.mark.once
@pytest.mark.parametrize("name", [name for name in CASES if name not in GOOD])
def test_bad_input_is_one_clear_line_on_every_rank(tried, name):
    outcome = tried[0][name]
    kinds, lines = zip(*outcome["by_rank"], strict=True)
    if "skipped" in kinds:
        pytest.skip(lines[0])
    assert kinds == ("refused",) * RANKS, outcome
    assert len(set(lines)) == 1
    (line,) = set(lines)
    assert re.search(CASES[name].says, line), line
    assert "\n" not in line and len(line) < 1000 and line.endswith((".", "?")), line
    assert outcome["unchanged"]


@pytest.mark.launch
@pytest.mark.once
@pytest.mark.parametrize("name", GOOD)
def test_odd_input_that_is_good_works(tried, name):
    outcomes, folder = tried
    assert outcomes[name]["by_rank"] == [["done", "0"]] * RANKS, outcomes[name]
    (result,) = (folder / folder_of(name)).rglob("result.json")
    run = Run(result.parent)
    assert run.result["worst_risk"] > 0
    left = {p.name for p in run.folder.iterdir()}
    assert ("bootstrap.npz" in left) != run.config["secure"]
    assert left - {"bootstrap.npz"} == {
        *("config.json", "history.csv", "model.pt", "partition.npz", "result.json")
    }


@pytest.mark.launch
@pytest.mark.once
def test_dialects_are_the_same_data(tried):
    def result(name):
        return Run(tried[1] / folder_of(name) / "out").result["groups"]

    for name in ("CRLF", "a byte order mark", "both"):
        assert result(name) == result("as it should be")


@pytest.mark.launch
@pytest.mark.once
@pytest.mark.parametrize(
    "name, note",
    [
        (
            "text among numbers",
            "'u' is taken for text: 1 training values are not numbers, such as 'many'",
        ),
        (
            "blanks, NA and nan among numbers",
            "values missing or no numbers, filled with the training mean",
        ),
        ("an empty column", "columns without a value in the training rows left out: v"),
        ("a row cut short", "1 rows have fewer cells than the header's 4 (the first ends in line"),
        ("a group in test only", "1 test rows of groups without training rows left out: zz"),
        ("one group", "there is one group only"),
        ("the training file as the test file", "the test rows are the training rows"),
        ("masks of two ranks", "hides their sums from the server, but not from each other"),
        ("masks of two ranks", "by keys of this run alone, which trusts the launcher: "),
        ("keys of two ranks", "sums are masked by keys in keys: "),
    ],
)
def test_what_was_done_about_it_is_noted(tried, name, note):
    notes = Run(tried[1] / folder_of(name) / "out").config["notes"]
    assert any(note in text for text in notes), notes
