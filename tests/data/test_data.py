import subprocess
import sys

import pytest

from fedmpi.data.__main__ import main


def run(tmp_path, *arguments):
    command = [sys.executable, "-m", "fedmpi.data", *arguments, "--data-dir", str(tmp_path)]
    return subprocess.run(command, capture_output=True, text=True)


def test_fetch_list_verify(tmp_path, capsys):
    where = ["--data-dir", str(tmp_path)]
    assert main(["verify", *where]) == 0
    assert "nothing in" in capsys.readouterr().out
    assert main(["fetch", "synthetic", "--rows", "300", "--seed", "2", *where]) == 0
    summary = capsys.readouterr().out
    assert "synthetic-rows300-seed2" in summary and "60,000" in summary and "A=1" in summary
    assert main(["list", *where]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "prepared (1)" in lines["synthetic"]
    assert "absent" in lines["adult"] and "your file" in lines["csv:FILE"]
    assert main(["verify", *where]) == 0
    assert capsys.readouterr().out.startswith("ok ")


def test_verify_finds_what_is_wrong(tmp_path, capsys):
    where = ["--data-dir", str(tmp_path)]
    main(["fetch", "synthetic", "--rows", "300", *where])
    (tmp_path / "raw/adult").mkdir(parents=True)
    (tmp_path / "raw/adult/adult.data").write_text("not people\n")
    (tmp_path / "adult.test").write_text("nor these\n")
    capsys.readouterr()
    assert main(["verify", *where]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["WRONG", "WRONG", "ok"]
    assert main(["list", *where]) == 0
    assert "raw files present" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["fetch", "adlt"], "fedmpi: unknown dataset 'adlt'. Did you mean 'adult'?"),
        (["fetch", "csv:"], "fedmpi: csv: needs a file"),
        (
            ["fetch", "csv:none.csv", "--target", "a", "--group", "b"],
            "fedmpi: cannot read none.csv",
        ),
        (["fetch", "synthetic", "--rows", "-5"], "fedmpi: --rows -5"),
    ],
)
def test_errors_are_one_line_without_a_traceback(tmp_path, arguments, message):
    result = run(tmp_path, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(message) and result.stderr.count("\n") == 1


def test_a_data_dir_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    result = run(tmp_path / "file", "fetch", "synthetic")
    assert result.returncode == 2
    assert "Choose a --data-dir" in result.stderr and result.stderr.count("\n") == 1


def test_a_csv_file_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "people.csv"
    path.write_text("v,g,h,t\n" + "".join(f"{v},{v % 2},{v // 2 % 2},{v % 3}\n" for v in range(48)))
    options = ["--target", "t", "--group", "g,h", "--test", "0.25", "--data-dir", str(tmp_path)]
    assert main(["fetch", f"csv:{path}", *options]) == 0
    output = capsys.readouterr().out
    assert "0 / 1" in output and "classes: 3" in output
    assert ["all", "36", "12"] in [line.split() for line in output.splitlines()]
