"""The versions that ranks compare before they sum."""

import importlib.metadata
import subprocess
import sys

import pytest
from runs import launcher, limit

import fedmpi
from fedmpi.errors import UserError
from fedmpi.privacy.versions import compare, versions_here


def test_versions_are_those_that_are_installed():
    import numpy
    import torch

    found = versions_here(secure=True)
    assert found["fedmpi"] == fedmpi.__version__ and found["numpy"] == numpy.__version__
    assert found["torch"] == torch.__version__.split("+")[0]
    assert found["cryptography"] == importlib.metadata.version("cryptography")
    assert found["byte order"] == sys.byteorder
    assert "cryptography" not in versions_here()


def test_the_ranks_with_another_version_are_named_with_both():
    same = versions_here(secure=True)
    compare([0, 1, 4], [same] * 3)
    found = [same, same, same | {"numpy": "1.0"}, same | {"numpy": "1.0"}]
    with pytest.raises(UserError) as caught:
        compare([0, 1, 4, 7], found)
    assert f"ranks 4, 7: numpy is 1.0, but {same['numpy']} on rank 0" in str(caught.value)
    with pytest.raises(UserError, match="rank 1: byte order is odd, but"):
        compare([0, 1], [same, same | {"byte order": "odd"}])
    many = [same, *[same | {"torch": "1.0"}] * 12]
    with pytest.raises(UserError, match=r"ranks 1, 2, 3, 4, 5, 6, 7, 8 and 4 more: torch is 1\.0"):
        compare(list(range(13)), many)


def test_ranks_without_cryptography_are_told_how_to_get_it():
    with_it, without = versions_here(secure=True), versions_here() | {"cryptography": "none"}
    for found in ([with_it, without], [without, without]):
        with pytest.raises(UserError, match=r"rank.* 1: --secure needs cryptography: .*\[secure\]"):
            compare([0, 1], found)


def test_versions_are_compared_without_cryptography_and_torch():
    program = (
        "import sys; from fedmpi.privacy.versions import check_same_versions, versions_here;"
        "versions_here(True); print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=launcher(),
        capture_output=True,
        text=True,
        timeout=limit(),
    )
    assert done.returncode == 0, done.stderr
    assert not {"cryptography", "torch"} & set(done.stdout.split())
