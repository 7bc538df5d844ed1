"""Options of exact, secret and private sums, without a run. Those of real ranks: input_cases.py."""

import pytest

from fedmpi.errors import UserError
from fedmpi.run.arguments import resolve

DATA = ("--dataset", "synthetic", "--rounds", "2", "--clients", "4")


def config(*options: str, client_ranks: int = 3):
    return resolve([*DATA, *options], client_ranks, one_process=False)


def test_each_level_brings_those_below():
    assert config().sums is None and config().min_count is None
    secure = config("--secure")
    assert secure.sums == "exact" and secure.min_count == 5
    assert config("--secure", "--min-count", "9").min_count == 9
    private = config("--dp-epsilon", "2")
    assert private.sums == "exact" and not private.secure and private.min_count is None
    assert (private.dp_delta, private.dp_clip, private.dp_loss_clip) == (1e-5, 4.0, 2.0)


@pytest.mark.parametrize("one_process", [True, False])
def test_one_client_rank_is_refused(one_process):
    with pytest.raises(UserError, match=r"with one client rank .* mpirun -n 4"):
        resolve([*DATA, "--secure"], 1, one_process)


def test_a_method_is_judged_by_what_it_does_with_its_options():
    """TERM over clients gives the server each client's loss, over rows it gives sums alone."""
    with pytest.raises(UserError, match="each client's own losses"):
        config("--secure", "--method", "term")
    assert config("--secure", "--method", "term", "--tilt-level", "sample").secure


def test_rounds_that_are_done_again_would_be_told_twice():
    refused = "--on-client-failure", "continue", "--dp-epsilon", "1"
    with pytest.raises(UserError, match="needs --secure"):
        config(*refused)
    assert config(*refused, "--secure").dp_epsilon == 1
