"""python -m fedmpi.keys, as it is typed."""

import subprocess
import sys

import pytest
from runs import launcher, limit

from fedmpi import keys
from fedmpi.privacy.keyfiles import KeyFolder, fingerprint


def test_a_pair_is_made_and_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert keys.main(["birch", "--dir", "their/keys"]) == 0
    made = capsys.readouterr().out
    assert keys.main(["oak", "ash-2", "--dir", "their/keys"]) == 0
    assert "In earnest each owner makes its own" in capsys.readouterr().out
    (tmp_path / "their/keys/oak.key").unlink()
    assert keys.main(["--show", "their/keys"]) == 0
    shown = capsys.readouterr().out.splitlines()
    folder = KeyFolder(tmp_path / "their/keys")
    of = {name: fingerprint(folder.public(name)) for name in ("ash-2", "birch", "oak")}
    assert shown == [
        f"ash-2  {of['ash-2']}  with its .key",
        f"birch  {of['birch']}  with its .key",
        f"oak    {of['oak']}",
    ]
    assert of["birch"] in made and "birch.key stays" in made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "give the NAME"),
        (["new", "birch"], "birch.key is there already"),
        (["new", "new"], "twice"),
        (["new", "../birch"], "'../birch' cannot be the name"),
        (["--show", "none"], "there is no folder none"),
        (["--show", "empty"], "empty has no public key"),
        (["--show", "keys", "new"], "makes none"),
        (["new", "--dir", "keys/birch.key"], "keys/birch.key"),
    ],
)
def test_mistakes_are_one_line_and_make_nothing(tmp_path, monkeypatch, capsys, given, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert keys.main(["birch"]) == 0
    capsys.readouterr()
    assert keys.main(given) == 2
    out, error = capsys.readouterr()
    assert not out and error.startswith("fedmpi: ") and said in error and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["birch.key", "birch.pub"]


def test_the_command_does_without_torch_numpy_and_mpi(tmp_path):
    program = (
        "import sys; from fedmpi.keys import main; code = main(['birch', '--dir', sys.argv[1]]);"
        "print(*{name.split('.')[0] for name in sys.modules}); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env=launcher(),
        capture_output=True,
        text=True,
        timeout=limit(),
    )
    assert done.returncode == 0, done.stderr
    assert not {"torch", "numpy", "mpi4py"} & set(done.stdout.split())
