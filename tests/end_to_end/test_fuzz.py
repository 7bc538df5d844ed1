"""Whatever bytes or words come in: a result or a UserError, never another exception, never a hang.

FEDMPI_FUZZ=20000 pytest -o faulthandler_timeout=0 tests/end_to_end/test_fuzz.py

tries so many inputs of each kind; without it a few.
"""

import contextlib
import io
import os
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from input_cases import TABLE

from fedmpi import methods
from fedmpi.data import FILES as DATASETS
from fedmpi.data import find
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError
from fedmpi.methods import FILES
from fedmpi.run.arguments import parser, resolve
from fedmpi.run.config import Config

TRIES = int(os.environ.get("FEDMPI_FUZZ", "0"))


def tries(normal: int):
    """As many inputs as were asked for, or `normal`; slow machines are no reason to fail."""
    return settings(
        max_examples=TRIES or normal,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


@contextlib.contextmanager
def result_or_one_line():
    """Let a UserError pass if it is what a user can read."""
    try:
        yield
    except UserError as error:
        assert str(error) and "\n" not in str(error) and len(str(error)) < 2000, str(error)


# Cells that have meant trouble somewhere: to pandas, to numpy, to csv, to people.
ODD = (
    *("", " ", "?", "NA", "nan", "None", "inf", "-inf", "1e400", "1e308", "-1e308", "1e-320"),
    *("0", "1", "-0", "007", "1_000", "0x1F", "1,5", "½", "٣", "True", "9" * 30, str(2**63)),
    *("a", "é", "群", "\u202e", "\ufeff", '"', "'", "a\nb", "a\rb", "\\", "#", "=1+1", "1/2/2020"),
)
cells = st.sampled_from(ODD) | st.text(max_size=6) | st.integers(-9, 9).map(str)
tables = st.lists(st.lists(cells, min_size=1, max_size=5), max_size=12)


@st.composite
def csv_files(draw) -> bytes:
    """Bytes; or something like a table, with a chance of a header that fits."""
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return draw(st.binary(max_size=200))
    rows = draw(tables)
    if kind > 1:
        width = 3
        rows = [["u", "g", "y"], *([*row, *["1"] * width][:width] for row in rows)]
        rows = rows[:1] + rows[1:] * draw(st.integers(1, 20))
    quoted = draw(st.booleans())
    lines = [
        ",".join('"' + cell.replace('"', '""') + '"' if quoted else cell for cell in row)
        for row in rows
    ]
    text = draw(st.sampled_from(("\n", "\r\n", "\r"))).join(lines)
    encoded = text.encode("utf-8", errors="surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.integers(0, len(encoded)))
        encoded = encoded[:cut] + draw(st.binary(max_size=3)) + encoded[cut:]
    return draw(st.sampled_from((b"", b"\xef\xbb\xbf"))) + encoded


@tries(60)
@given(content=csv_files(), group=st.sampled_from([("g",), ("g", "y"), ("u",)]), test=st.booleans())
def test_any_bytes_for_a_csv_file(tmp_path_factory, content, group, test):
    folder = tmp_path_factory.getbasetemp() / "fuzz-csv"
    folder.mkdir(exist_ok=True)
    (folder / "p.csv").write_bytes(content)
    (folder / "t.csv").write_text("u,g,y\n1,0,1\n2,1,0\n")
    options = DataOptions(
        target="y", group=group, test=str(folder / "t.csv") if test else None, seed=0
    )
    with result_or_one_line():
        found = prepare(find(f"csv:{folder / 'p.csv'}"), folder / "data", options)
        assert found.rows("train") > 0 and found.rows("test") > 0
        assert prepare(find(f"csv:{folder / 'p.csv'}"), folder / "data", options) == found
    shutil.rmtree(folder / "data", ignore_errors=True)


FLAGS = sorted(parser()._option_string_actions)
words = (
    st.sampled_from([*FLAGS, *FILES, *DATASETS, *methods.all_options(), *ODD])
    | st.sampled_from(["csv:p.csv", "ESG", "PSG", "SSG", "float64", "cpu", "none", "MA", "ma,RI"])
    | st.sampled_from(["mlp", "cross-entropy", "brier", "sample", "multiplicative", ":", "a:b"])
    | st.integers().map(str)
    | st.floats().map(str)
    | st.text(max_size=8)
)
pairs = st.tuples(st.sampled_from([f for f in FLAGS if f not in ("-h", "--help")]), words)
lines = st.lists(words, max_size=6) | st.lists(pairs, max_size=6).map(
    lambda found: [word for pair in found for word in pair]
)


@tries(200)
@given(words=lines, ranks=st.integers(1, 50), first=st.sampled_from([[], ["--dataset", "adult"]]))
def test_any_words_for_a_command_line(words, ranks, first, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.getbasetemp())
    with result_or_one_line(), contextlib.redirect_stdout(io.StringIO()):
        try:
            config = resolve([*first, *words], ranks, one_process=ranks == 1)
        except SystemExit as end:
            assert end.code == 0  # --help
            return
        assert isinstance(config, Config) and config.clients >= 1
        config.identity()


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A run that was cut off after its checkpoint: a folder, and how to go on in it."""
    from mpi4py import MPI

    from fedmpi.federation.job import Job
    from fedmpi.federation.rounds import Training
    from fedmpi.mpi.ranks import Ranks

    folder = tmp_path_factory.mktemp("fuzz-checkpoint")
    (folder / "p.csv").write_text(TABLE)
    options = ["--dataset", f"csv:{folder / 'p.csv'}", "--target", "y", "--group", "g"]
    options += ["--clients", "2", "--rounds", "3", "--model", "logistic", "--progress", "none"]
    options += ["--method", "afl", "--checkpoint-every", "1", "--data-dir", str(folder / "data")]
    options += ["--output", str(folder / "run")]

    def run(*more: str) -> None:
        config = resolve([*options, *more], 1, one_process=True)
        with contextlib.redirect_stdout(io.StringIO()):
            Job(Ranks(MPI.COMM_SELF), config).run()

    save_if_due = Training.save_if_due

    def save_and_die(self, t):
        save_if_due(self, t)
        if t == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "save_if_due", save_and_die)
        with pytest.raises(KeyboardInterrupt):
            run()
    shutil.copytree(folder / "run", folder / "kept")
    return folder, run


def go_on_with(unfinished, damage) -> None:
    """--resume after `damage` to each file of the checkpoint."""
    folder, run = unfinished
    shutil.rmtree(folder / "run")
    shutil.copytree(folder / "kept", folder / "run")
    files = list((folder / "run").glob("checkpoint*"))
    assert files
    for file in files:
        damage(file)
    with result_or_one_line():
        run("--resume")
        assert (folder / "run/result.json").exists()


@tries(20)
@given(data=st.data())
def test_any_bytes_for_a_checkpoint(unfinished, data):
    """Some bytes changed, cut off or put in; or something else altogether."""

    def damage(file):
        content = bytearray(file.read_bytes())
        if data.draw(st.integers(0, 5)) == 0:
            content = bytearray(data.draw(st.binary(max_size=100)))
        elif data.draw(st.booleans()):
            del content[data.draw(st.integers(0, len(content))) :]
        else:
            for _ in range(data.draw(st.integers(1, 4))):
                content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
                    st.integers(0, 255)
                )
        file.write_bytes(content)

    go_on_with(unfinished, damage)


OTHERS = (
    st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just([])
    | st.just({})
    | st.just([{"round": "x"}])
    | st.just(torch.zeros(3))
    | st.just(torch.full((2, 2), float("nan")))
    | st.just({"lambda_": torch.zeros(7)})
)


@tries(20)
@given(data=st.data(), value=OTHERS, leave_out=st.booleans())
def test_any_contents_for_a_checkpoint(unfinished, data, value, leave_out):
    """A file that torch reads, of which a part is not what it should be."""

    def damage(file):
        state = torch.load(file, weights_only=True)
        name = data.draw(st.sampled_from(sorted(state)))
        if leave_out:
            del state[name]
        else:
            state[name] = value
        torch.save(state, file)

    go_on_with(unfinished, damage)
