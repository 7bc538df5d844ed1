"""--tuned: what was chosen is taken, an explicit option wins, another's file is refused."""

import json

import pytest

from fedmpi.errors import UserError
from fedmpi.run.arguments import resolve

BASE = ["--dataset", "adult", "--method", "qfedavg"]


@pytest.fixture
def tuned(tmp_path):
    path = tmp_path / "tuned.json"
    options = {"lr": 0.05, "local_epochs": 3, "q": 2.0}
    path.write_text(json.dumps({"dataset": "adult", "method": "qfedavg", "options": options}))
    return path


def read(*arguments: object):
    return resolve([str(a) for a in arguments], 1, one_process=True)


def test_the_file_fills_in_what_the_command_line_leaves_open(tuned):
    config = read(*BASE, "--tuned", tuned, "--q", "0.5")
    assert (config.lr, config.local_epochs, config.q) == (0.05, 3, 0.5)
    by_hand = read(*BASE, "--lr", "0.05", "--local-epochs", "3", "--q", "0.5")
    assert config.identity() == by_hand.identity()  # where a number came from is no part of it


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--dataset", "synthetic", "--method", "qfedavg"], "--dataset adult, not synthetic"),
        (["--dataset", "adult", "--method", "fedavg"], "--method qfedavg, not fedavg"),
    ],
)
def test_a_file_of_another_dataset_or_method_is_refused(tuned, arguments, hint):
    with pytest.raises(UserError, match=hint):
        read(*arguments, "--tuned", tuned)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"dataset": "adult"}', '{"dataset":"adult","method":"qfedavg","options":{"x":1}}'],
)
def test_what_is_no_choice_is_refused(tmp_path, text):
    path = tmp_path / "tuned.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"tuned\.json"):
        read(*BASE, "--tuned", path)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read(*BASE, "--tuned", tmp_path / "absent.json")
