"""How a process begins, as the libraries see it that are loaded after."""

import re
import subprocess
import sys

import pytest
from runs import launcher, limit


@pytest.mark.once
@pytest.mark.parametrize(("given", "expected"), [(None, "PASSIVE"), ("active", "ACTIVE")])
def test_threads_of_openmp_sleep_while_they_wait_unless_told_otherwise(given, expected):
    """OpenMP itself says what it has read, when torch loads it."""
    program = "from fedmpi.mpi.start import start; start(); import torch"
    env = {name: x for name, x in launcher().items() if name != "OMP_WAIT_POLICY"}
    env |= {"OMP_DISPLAY_ENV": "true"} | ({"OMP_WAIT_POLICY": given} if given else {})
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=limit()
    )
    assert done.returncode == 0, done.stderr
    found = set(re.findall(r"OMP_WAIT_POLICY *= *'(\w+)'", done.stderr))
    assert found == {expected}
