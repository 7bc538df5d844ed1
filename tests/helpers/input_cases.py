"""Cases of bad input, and of odd input that is good, tried on every rank of one launch.

mpirun -n 3 python tests/helpers/input_cases.py FOLDER

runs each case through the entry that users have, in a folder of its own, and writes each rank's
outcome to FOLDER/outcomes.json. tests/end_to_end/test_input.py starts this script and judges.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI
from runs import cut_off_after

import fedmpi
from fedmpi import train
from fedmpi.data import find
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.federation.job import Job
from fedmpi.mpi.ranks import AgreedError, Ranks
from fedmpi.privacy.keyfiles import make as make_key
from fedmpi.run.arguments import resolve

ROWS = [f"{i},{i * 7 % 5},{'abcd'[i % 4]},{'yes' if i * 3 % 7 < 3 else 'no'}" for i in range(120)]
TABLE = "\n".join(["u,v,g,y", *ROWS]) + "\n"
DATA = ("--dataset", "csv:p.csv", "--target", "y", "--group", "g")
COMMON = ("--clients", "4", "--rounds", "2", "--progress", "none", "--output", "out")


@dataclass
class Case:
    """Options, a file p.csv or whatever `make` writes, and what the line of refusal must say."""

    options: str = ""
    says: str | None = None
    """Regular expression of the refusal; None for good input, which must simply work."""
    table: str | bytes | None = TABLE
    make: Callable[[], object] | None = None
    data: tuple[str, ...] = DATA
    unless: tuple[str, bool] = ("", False)
    """Reason to skip the case, and whether the reason holds on this machine."""
    on_rank_2: Callable[[], Callable[[], object]] | None = None
    """What is different on rank 2; returns what undoes it."""


def with_row(row: str) -> str:
    return f"{TABLE}{row}\n"


def in_column(column: int, value: Callable[[int, str], str]) -> str:
    """TABLE with `value(row, cell)` in each cell of a column."""
    rows = [row.split(",") for row in ROWS]
    for i, row in enumerate(rows):
        row[column] = value(i, row[column])
    return "\n".join(["u,v,g,y", *map(",".join, rows)]) + "\n"


def put(name: str, content: str | bytes = "") -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def prepared() -> Path:
    options = DataOptions(target="y", group=("g",))
    return prepare(find("csv:p.csv"), Path("data"), options).folder


def flip_a_byte(name: str) -> None:
    path = prepared() / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def edit_manifest(edit: Callable[[dict], object]) -> None:
    path = prepared() / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


def another_run() -> None:
    put("out/config.json", json.dumps({"science": {"lr": 0.5}}))
    put("out/result.json", "{}")
    put("out/model.pt", "precious")


def module(text: str) -> Callable[[], None]:
    return lambda: put("mine.py", text)


def keys(*change: Callable[[], object]) -> Callable[[], None]:
    """Make the keys of both client ranks, and then a mistake."""

    def make_keys() -> None:
        for name in ("rank-1", "rank-2"):
            make_key(Path("keys"), name)
        for mistake in change:
            mistake()

    return make_keys


def keys_elsewhere() -> None:
    """Give rank 2, which works in a folder of its own, another key than others know."""
    keys()()
    shutil.copytree("keys", "other/keys")
    for kind in ("key", "pub"):
        Path(f"other/keys/rank-2.{kind}").unlink()
    make_key(Path("other/keys"), "rank-2")
    Path("other/data").symlink_to("../data")


def in_other() -> Callable[[], None]:
    os.chdir("other")
    return lambda: os.chdir("..")


def another_version() -> Callable[[], None]:
    version, fedmpi.__version__ = fedmpi.__version__, "0.0"
    return lambda: setattr(fedmpi, "__version__", version)


def lost_since_the_checkpoint() -> None:
    """Leave an unfinished run that lost rank 2 after its last checkpoint."""
    options = [*DATA, *COMMON, *SECURED.split(), "--sums", "exact", "--checkpoint-every", "1"]
    with cut_off_after(1):
        Job(Ranks(MPI.COMM_SELF), resolve(options, 1, one_process=True)).run()
    ranks = json.loads(Path("out/ranks.json").read_text())
    lost = {"rank": 2, "host": "h", "pid": 7, "clients": [1], "groups": [], "last_round": 1}
    put("out/ranks.json", json.dumps(ranks | {"lost": [lost]}))


SECURED = "--min-count 5 --solver paper --model logistic"
LONG = "x" * 10_000_000
BATCH_NORM = """from torch import nn
def model(shape, classes):
    return nn.Sequential(nn.BatchNorm1d(shape[0]), nn.Linear(shape[0], classes))
"""
COHORT = """from fedmpi.methods.fedavg import FedAvg
class Some(FedAvg):
    def cohort(self, t):
        return [0]
"""
SYNTHETIC = ("--dataset", "synthetic")

OPTIONS = {
    "no dataset": Case(data=(), says="--dataset"),
    "an empty dataset": Case("--dataset=", "unknown dataset"),
    "a misspelt dataset": Case("--dataset adlut", "Did you mean 'adult'"),
    "csv without a file": Case("--dataset csv:", "needs a file"),
    "a misspelt log": Case("--log tensorbord", "Did you mean 'tensorboard'"),
    "a log that is none": Case("--log json:JSONDecoder", "not a subclass of fedmpi.run.logs.Log"),
    "an unknown option": Case("--roundz 3", "--roundz"),
    "a word too many": Case("ESG", "unrecognized arguments: ESG"),
    "an option without its value": Case("--rounds", "expected one argument"),
    "rounds that are no number": Case("--rounds many", "'many'"),
    "rounds that are not whole": Case("--rounds 2.5", "2.5"),
    "no rounds": Case("--rounds 0", "at least 1"),
    "endless rounds": Case("--rounds 99999999999999999999", "at most 2147483647"),
    "a step of zero": Case("--lr 0", "above 0"),
    "a negative step": Case("--lr -1", "above 0"),
    "a step that is no number": Case("--lr nan", "above 0"),
    "an infinite step": Case("--lr inf", "a finite number above 0"),
    "a negative step of the adversary": Case("--lr-mu -1", "at least 0"),
    "an infinite step of the adversary": Case("--lr-mu inf", "at least 0"),
    "a negative floor": Case("--epsilon -0.1", "--epsilon -0.1"),
    "a floor that is no number": Case("--epsilon nan", "--epsilon nan"),
    "a floor that leaves no room": Case("--epsilon 0.3", "4 groups .* at most 0.25"),
    "no clients": Case("--clients 0", "at least 1"),
    "fewer clients than ranks": Case("--clients 1", "mpirun -n 2"),
    "more clients than rows": Case("--clients 100", "--clients 24"),
    "a billion clients": Case("--clients 1000000000", "--clients 24"),
    "a negative q": Case("--method qfedavg --q -1", "at least 0"),
    "a tilt that is no number": Case("--method term --tilt nan", "at least 0"),
    "a skew of zero": Case("--skew 0", "above 0"),
    "a negative seed": Case("--seed -1", "at least 0"),
    "a seed beyond all bounds": Case("--seed 99999999999999999999", "at most"),
    "empty batches": Case("--local-epochs 1 --batch-size 0", "at least 1"),
    "no epochs": Case("--local-epochs 0", "at least 1"),
    "passes of no rows": Case("--micro-batch 0", "at least 1"),
    "no history": Case("--eval-every 0", "at least 1"),
    "no checkpoints, by zero": Case("--checkpoint-every 0", "at least 1"),
    "a negative bootstrap": Case("--bootstrap -1", "from 2 to"),
    "a secret bootstrap": Case("--bootstrap 9 --secure", "leave one of them out"),
    "no patience": Case("--stall-timeout 0", "above 0"),
    "no way to go on": Case("--on-client-failure go", "Allowed: continue, end"),
    "fewer rows than groups": Case("--limit-train 3", "fewer than the 4 groups"),
    "fewer rows than clients": Case("--limit-train 8", "a larger --limit-train"),
    "fewer test rows than groups": Case("--limit-test 3", "fewer than the 4 groups"),
    "a misspelt setting": Case("--setting PSSG", "'SSG'"),
    "shares of a Dirichlet of zero": Case("--setting dirichlet:0", "a number above 0"),
    "shares without a number": Case("--setting quantity", "give quantity:ALPHA"),
    "more drawn clients than rows": Case("--setting dirichlet:1 --clients 100", "--clients 96"),
    "clients by a column that is not there": Case("--setting by:w --clients 2", "no column 'w'"),
    "more clients than values": Case("--setting by:g --clients 5", "--clients 4 or fewer"),
    "PSG on two groups": Case("--setting PSG", "--setting SSG", data=SYNTHETIC),
    "SSG with too few clients": Case("--setting SSG --clients 3", "--clients 4 or more"),
    "a draw too small": Case("--rows 1", "more --rows", data=SYNTHETIC),
    "a misspelt method": Case("--method fedminimax", "'fedminmax'"),
    "a method that is no class": Case("--method os:path", "not a subclass"),
    "a method in no module": Case("--method :X", "package.module:Class"),
    "a method in a broken module": Case(
        "--method mine:X", "SyntaxError.*mine.py, line 1", make=module("class X(:\n")
    ),
    "a misspelt model": Case("--model mpl", "'mlp'"),
    "a model for images": Case("--model cnn", "use --model mlp"),
    "a model that cannot be called so": Case("--model os:getcwd", "TypeError"),
    "a model that is not averaged": Case(
        "--model mine:model", "nn.GroupNorm", make=module(BATCH_NORM)
    ),
    "a misspelt loss": Case("--loss brierr", "'brier'"),
    "a device that is not made": Case("--device tpu", "Allowed: auto, cpu, cuda"),
    "a GPU that is not there": Case(
        "--device cuda", "--device cpu", unless=("there is a GPU", torch.cuda.is_available())
    ),
    "sums on a GPU that is not there": Case(
        "--cuda-aware", "leave it out", unless=("there is a GPU", torch.cuda.is_available())
    ),
    "sums on the GPU of a CPU": Case("--cuda-aware --device cpu", "--device cpu does not"),
    "sums on GPUs and in hosts": Case(
        "--cuda-aware --reduce hierarchical", "--reduce hierarchical does not"
    ),
    "a balance of nothing": Case("--balance row", "Did you mean 'rows'"),
    "half precision": Case("--dtype float16", "Allowed: float32, float64"),
    "passes in an unknown type": Case("--autocast float16", "Allowed: bfloat16"),
    "passes in less than double precision": Case(
        "--autocast bfloat16 --dtype float64", "not for --dtype float64"
    ),
    "short passes with limits of gradients": Case(
        "--autocast bfloat16 --dp-epsilon 1", "not for --dp-epsilon"
    ),
    "short passes of a perceptron": Case(
        "--autocast bfloat16 --model logistic", "not for --model logistic"
    ),
    "a misspelt kind of sum": Case("--reduce hierarchic", "Did you mean 'hierarchical'"),
    "an option of another method": Case("--q 2", "does nothing with --method fedminmax"),
    "epochs of a one-step method": Case("--method afl --local-epochs 2", "does nothing"),
    "an option of another dataset": Case("--states MA", "does nothing with --dataset csv"),
    "a state that is not": Case("--states XX", "Did you mean", data=("--dataset", "acs-race")),
    "to resume and to start over": Case("--resume --force", "give one of them"),
    "nothing to resume": Case("--resume", "no checkpoint"),
    "no target": Case(data=(*DATA[:2], *DATA[4:]), says="needs --target COL"),
    "no group": Case(data=DATA[:4], says="needs --group COL"),
    "an empty group": Case("--group ,", "empty name"),
    "a group twice": Case("--group g,g", "twice"),
    "a share of more than all": Case("--test 1.5", "between 0 and 1"),
    "a share that is no number": Case("--test nan", "between 0 and 1"),
}
TABLES = {
    "a file that is not there": Case("--dataset csv:q.csv", "q.csv: No such file.*seen from /"),
    "a link to nowhere": Case(
        "--dataset csv:q.csv", "No such file", make=lambda: Path("q.csv").symlink_to("nowhere")
    ),
    "a link to itself": Case(
        "--dataset csv:q.csv", "cannot read q.csv", make=lambda: Path("q.csv").symlink_to("q.csv")
    ),
    "a folder for a file": Case("--test .", "Is a directory"),
    "a path below a file": Case("--dataset csv:p.csv/q.csv", "Not a directory"),
    "a name that is too long": Case(f"--dataset csv:{'q' * 300}", "File name too long"),
    "a home of nobody": Case("--dataset csv:~nobody-here/q.csv", "No such file"),
    "a pipe": Case("--dataset csv:pipe", "pipe or a device", make=lambda: os.mkfifo("pipe")),
    "an endless device": Case("--dataset csv:/dev/zero", "pipe or a device"),
    "a file that does not let itself be read": Case(
        "--dataset csv:/proc/self/mem",
        "cannot read",
        unless=("there is no /proc/self/mem", not Path("/proc/self/mem").exists()),
    ),
    "an empty file": Case(table="", says="is empty"),
    "a header alone": Case(table="u,v,g,y\n", says="header but no rows"),
    "one row": Case(table="u,v,g,y\n1,2,a,yes\n", says="one value only"),
    "two rows": Case(table="u,v,g,y\n1,2,a,yes\n3,4,a,no\n", says="no test rows are left"),
    "one class": Case(table=TABLE.replace("yes", "no"), says="one value only .*It is 'no'"),
    "one class to train on": Case(
        "--test t.csv",
        "one value only in the training rows; .*It is 'no'",
        table=TABLE.replace("yes", "no"),
        make=lambda: put("t.csv", "u,v,g,y\n1,1,a,yes\n"),
    ),
    "a class in test only": Case(
        "--test t.csv", "'perhaps'", make=lambda: put("t.csv", "u,v,g,y\n1,1,a,perhaps\n")
    ),
    "a target of fractions": Case(
        "--target u", "must be classes", table=in_column(0, lambda i, _: f"{i}.5")
    ),
    "a target of numbers with thirty digits": Case(
        table=in_column(3, lambda i, _: "9" * 30 if i % 2 else "1"),
        says="2.53.*One of them is 9{30}",
    ),
    "a target with a value for every row": Case(
        "--target u",
        "1200 different values",
        table=TABLE + "".join(f"{i},1,a,no\n" for i in range(120, 1200)),
    ),
    "infinite features": Case(table=with_row("inf,1,a,no"), says="'u' has 1 infinite values"),
    "features beyond all bounds": Case(table=with_row("1e308,1,a,no"), says="too large"),
    "infinite features in test": Case(
        "--test t.csv", "'u' has test values", make=lambda: put("t.csv", "u,v,g,y\n-inf,1,a,no\n")
    ),
    "a text for every row": Case(
        table=TABLE + "".join(f"id{i},1,a,no\n" for i in range(300)), says="--drop u"
    ),
    "two columns of a name": Case(table=TABLE.replace("u,v", "u,u", 1), says="more than one col"),
    "a missing column": Case("--target z", "p.csv has no column 'z'.*g, u, v, y"),
    "a column to drop that is missing": Case("--drop z", "p.csv has no column 'z'"),
    "a missing column of thousands": Case(
        "--target z", "500 in all", ",".join(f"c{i}" for i in range(500)) + "\n1" + ",1" * 499
    ),
    "nothing to learn from": Case("--drop u,v,g", "no column is left"),
    "a target without a value": Case(table=in_column(3, lambda *_: ""), says="no row with a value"),
    "ids in three columns": Case(
        table="\n".join(
            ["name,u,v,g,y,e mail,k", *(f"n{i},{r},m{i},k{i}" for i, r in enumerate(ROWS))]
        ),
        options="--test 0.1",
        says="3 columns cannot be inputs: 'name' is text .*; 'e mail' .* --drop 'name,e mail,k'",
    ),
    "two columns that are missing": Case("--target z --drop w", "no column 'z', 'w'"),
    "a name with a comma": Case(
        "--drop u", "in double quotes", table=TABLE.replace("u,v", '"u, w",v', 1)
    ),
    "Yes, yes and YES": Case(
        table=in_column(3, lambda i, y: y.upper() if i % 5 else y),
        says="the target 'y' has 4 different labels, but 2 meanings.*As 'NO', 'no'",
    ),
    "yes and 1": Case(
        table=in_column(3, lambda i, y: str(int(y == "yes")) if i % 5 else y),
        says="the target 'y' has 4 different labels, but 2 meanings.*two words for the same",
    ),
    "f and female": Case(
        table=in_column(2, lambda i, g: {"a": "f", "b": "female", "c": "m"}.get(g, "male")),
        says="--group 'g' has 4 different labels, but 2 meanings.*As 'f', 'female'",
    ),
    "a target of amounts": Case("--target u", "120 different values in 120 rows.*--bins 4"),
    "bins of a text": Case("--bins 3", "the target 'y' is no numbers"),
    "one bin": Case("--target u --bins 1", "2 to 100 classes"),
    "bins and limits": Case("--target u:50 --bins 3", "give one"),
    "limits for a text": Case("--group g:3,4", "'g' has 4 values that are no numbers"),
    "groups that are all small": Case("--min-group-rows 99", "leaves fewer than two groups"),
    "an Excel workbook": Case(table=b"PK\x03\x04 xl/workbook.xml", says="Excel.*save its sheet"),
    "a zip archive": Case(table=b"PK\x03\x04 p.csv", says="zip archive: unpack"),
    "gzip that is cut short": Case(
        table=gzip.compress(TABLE.encode())[:-9], says="gzip, but damaged or cut short"
    ),
    "a row with a cell too many": Case(table=with_row("1,2,a,no,7"), says="line 122, saw 5"),
    "an open quote": Case(table=with_row('1,2,"a,no'), says="not a table"),
    "ten million characters in a feature": Case(
        table=with_row(f"{LONG},1,a,no"), says="cell of 10,000,000 characters .row 121.*--drop u"
    ),
    "ten million characters in a group": Case(table=with_row(f"1,1,{LONG},no"), says="10,000,000"),
    "ten million characters in a name": Case(table=TABLE.replace("u", LONG, 1), says="10,000,000"),
    "bytes that are no text": Case(table=bytes(range(256)), says="is not text"),
}
FOLDERS = {
    "output that is empty": Case("--output=", "name a folder"),
    "output that is a file": Case("--output p.csv", "cannot make the folder p.csv"),
    "output below a file": Case("--output p.csv/out", "Not a directory"),
    "output where nobody can write": Case("--output /proc/out", "cannot make the folder"),
    "output in a folder that is read-only": Case(
        "--output /sys/kernel",
        "cannot write",
        unless=("there is no /sys/kernel", not Path("/sys/kernel").is_dir()),
    ),
    "output with a name too long": Case(f"--output {'o' * 300}", "File name too long"),
    "output with another run": Case(says="finished run of another.*--force", make=another_run),
    "output with an unfinished run": Case(
        says="--resume to go on", make=lambda: put("out/checkpoint.pt", "precious")
    ),
    "output with somebody's files": Case(
        says="config.json that is of no run", make=lambda: put("out/config.json", '{"mine": 1}')
    ),
    "data below a file": Case("--data-dir p.csv", "Choose a --data-dir"),
    "data where nobody can write": Case("--data-dir /proc/data", "Choose a --data-dir"),
    "data that are empty": Case("--data-dir=", "name a folder"),
    "prepared is a file": Case(says="Choose a --data-dir", make=lambda: put("data/prepared")),
    "a prepared folder without a manifest": Case(
        says="Delete that folder", make=lambda: (prepared() / "manifest.json").unlink()
    ),
    "a manifest that is no JSON": Case(
        says="Delete that folder", make=lambda: (prepared() / "manifest.json").write_text("{")
    ),
    "a manifest that is a list": Case(
        says="Delete that folder", make=lambda: (prepared() / "manifest.json").write_text("[]")
    ),
    "a manifest without groups": Case(
        says="Delete that folder", make=lambda: edit_manifest(lambda m: m.pop("groups"))
    ),
    "a wrong hash": Case(
        says="manifest.json says 0000",
        make=lambda: edit_manifest(lambda m: m["arrays"]["train_y"].update(sha256="0" * 64)),
    ),
    "a byte of the inputs that flipped": Case(
        says="train_x.npy has SHA-256", make=lambda: flip_a_byte("train_x.npy")
    ),
    "a byte of the groups that flipped": Case(
        says="test_group.npy has SHA-256", make=lambda: flip_a_byte("test_group.npy")
    ),
    "an array cut short": Case(
        says="train_x.npy cannot be read", make=lambda: os.truncate(prepared() / "train_x.npy", 200)
    ),
    "an empty array": Case(
        says="train_y.npy cannot be read", make=lambda: os.truncate(prepared() / "train_y.npy", 0)
    ),
    "an array of objects": Case(
        says="train_y.npy cannot be read",
        make=lambda: np.save(prepared() / "train_y.npy", np.array([{}]), allow_pickle=True),
    ),
    "an array of another shape": Case(
        says="manifest.json says", make=lambda: np.save(prepared() / "train_y.npy", np.zeros(3))
    ),
    "a raw file that is not what it should be": Case(
        data=("--dataset", "adult"),
        says="SHA-256|adult.data",
        make=lambda: [put(f"data/raw/adult/adult.{x}", "not people\n") for x in ("data", "test")],
        options="--rounds 1",
    ),
    "an empty checkpoint": Case(
        "--resume", "checkpoint.pt cannot be read", make=lambda: put("out/checkpoint.pt")
    ),
    "a checkpoint that is text": Case(
        "--resume", "checkpoint.pt cannot be read", make=lambda: put("out/checkpoint.pt", "hello")
    ),
    "a checkpoint of something else": Case(
        "--resume",
        "checkpoint.pt cannot be read",
        make=lambda: (put("out/x"), torch.save({"a": torch.ones(3)}, "out/checkpoint.pt")),
    ),
    "a folder for a checkpoint": Case(
        "--resume", "checkpoint.pt", make=lambda: Path("out/checkpoint.pt").mkdir(parents=True)
    ),
}
GOOD = {
    "as it should be": Case(),
    "CRLF": Case(table=TABLE.replace("\n", "\r\n")),
    "a byte order mark": Case(table=b"\xef\xbb\xbf" + TABLE.encode()),
    "both": Case(table=b"\xef\xbb\xbf" + TABLE.replace("\n", "\r\n").encode()),
    "UTF-16": Case(table=TABLE.encode("utf-16")),
    "Latin-1": Case(table=TABLE.replace("a", "Zoë").encode("latin1")),
    "semicolons": Case(table=TABLE.replace(",", ";")),
    "gzip": Case(table=gzip.compress(TABLE.encode())),
    "a name with a comma in quotes": Case('--drop="u,w"', table=TABLE.replace("u,v", '"u,w",v', 1)),
    "bands of ages": Case("--group g,u:30,60 --merge-small 12"),
    "bins of amounts": Case("--target u --bins 3"),
    "groups called NA": Case(
        "--missing None", table=in_column(2, lambda i, g: "NA" if g == "a" else g)
    ),
    "names in Greek and Chinese": Case(
        "--target=στόχος --group=群", table=TABLE.replace("u,v,g,y", "ü,ß v,群,στόχος", 1)
    ),
    "groups in Greek and Chinese": Case(table=TABLE.replace("a", "α β").replace("b", "群")),
    "a file with a name in Greek": Case(
        "--dataset csv:δεδομένα.csv", make=lambda: put("δεδομένα.csv", TABLE)
    ),
    "output in a folder with spaces": Case("--output=a folder/of mine"),
    "a quoted cell of several lines": Case(table=TABLE + '1,1,"a\nb",yes\n' * 9),
    "text among numbers": Case(table=with_row("many,1,a,no")),
    "blanks, NA and nan among numbers": Case(table=with_row(",NA,a,no\nnan,?,b,yes")),
    "an empty column": Case(table=in_column(1, lambda *_: "")),
    "a row cut short": Case(table=with_row("1,2")),
    "ten million characters in what is dropped": Case("--drop u", table=with_row(f"{LONG},1,a,no")),
    "a group in test only": Case(
        "--test t.csv", make=lambda: put("t.csv", "u,v,g,y\n1,1,a,no\n1,1,zz,no\n")
    ),
    "one group": Case(table=in_column(2, lambda *_: "a")),
    "huge but finite numbers": Case(table=with_row("1e100,1,a,no")),
    "the training file as the test file": Case("--test p.csv"),
    "a setting in small letters": Case("--setting ssg"),
    "a step that is nearly nothing": Case("--lr 1e-300"),
    "a skew that is nearly nothing": Case("--setting SSG --skew 1e-300"),
    "a folder that is there, and empty": Case(make=lambda: Path("out").mkdir()),
    "a lock that a crashed run left": Case(make=lambda: put("out/.lock", "process 1 on nowhere")),
}
PRIVACY = {
    **{
        f"masks for {method}": Case(f"--secure --method {method}", "each client's own losses")
        for method in ("afl", "term", "localfedminmax")
    },
    "masks for qfedavg": Case("--secure --method qfedavg", "qfedavg sums more than these"),
    "masks for centralized": Case("--secure --method centralized", "has one client, so nothing"),
    "masks for Newton": Case(
        "--secure --optimizer newton --model logistic", "--optimizer newton sums more than these"
    ),
    "masks for cohorts": Case(
        "--secure --method mine:Some", "sums over cohorts", make=module(COHORT)
    ),
    "masks for the state of clients": Case(
        "--secure --method needy:Remembering", "keeps state of single clients"
    ),
    "masks on floats": Case("--secure --sums float", "leave --sums float out"),
    "a misspelt sum": Case("--sums exat", "Did you mean 'exact'"),
    "exact sums on a GPU": Case("--sums exact --device cuda", "--device cpu"),
    "keys without masks": Case("--keys keys", "add it, or leave --keys out"),
    "no folder of keys": Case("--secure --keys keys", "rank 1 .rank-1.: there is no folder keys"),
    "a file for a folder of keys": Case("--secure --keys p.csv", "there is no folder p.csv"),
    "no private key": Case(
        "--secure --keys keys",
        r"rank 2 .rank-2.: there is no keys/rank-2.key. Make it with",
        make=keys(lambda: Path("keys/rank-2.key").unlink()),
    ),
    "no public key": Case(
        "--secure --keys keys",
        r"rank 1 .rank-1.: there is no keys/rank-2.pub. Ask rank-2",
        make=keys(lambda: Path("keys/rank-2.pub").unlink()),
    ),
    "a key that all can read": Case(
        "--secure --keys keys",
        "keys/rank-2.key is a private key that others can read.*chmod 600",
        make=keys(lambda: Path("keys/rank-2.key").chmod(0o644)),
    ),
    "another owner's key": Case(
        "--secure --keys keys",
        "keys/rank-2.pub does not belong to keys/rank-2.key",
        make=keys(lambda: shutil.copy("keys/rank-1.key", "keys/rank-2.key")),
    ),
    "a key that is none": Case(
        "--secure --keys keys",
        "keys/rank-1.pub is not a public key",
        make=keys(lambda: Path("keys/rank-1.pub").write_text("hello")),
    ),
    "a key that the others do not know": Case(
        "--secure --keys keys",
        "rank-1. and rank 2 .rank-2. do not have the same keys",
        make=keys_elsewhere,
        on_rank_2=in_other,
    ),
    "another version on a rank": Case(
        "--sums exact", "rank 2: fedmpi is 0.0, but .* on rank 0", on_rank_2=another_version
    ),
    "another version on a rank with masks": Case(
        "--secure", "rank 2: fedmpi is 0.0, but .* on rank 0", on_rank_2=another_version
    ),
    "to forget a dead rank": Case(
        f"--secure --resume {SECURED}",
        "has lost rank 2 since its checkpoint.*another --seed",
        make=lost_since_the_checkpoint,
    ),
    "a budget of zero": Case("--dp-epsilon 0", "--dp-epsilon 0.0: must be a finite number above 0"),
    "a negative budget": Case("--dp-epsilon -1", "above 0"),
    "a budget that is no number": Case("--dp-epsilon nan", "above 0"),
    "a clip of zero": Case("--dp-epsilon 1 --dp-clip 0", "--dp-clip 0.0: must be"),
    "a loss clip of zero": Case("--dp-epsilon 1 --dp-loss-clip 0", "--dp-loss-clip 0.0: must be"),
    "a delta of zero": Case("--dp-epsilon 1 --dp-delta 0", "--dp-delta 0.0: must be"),
    "a delta of one": Case("--dp-epsilon 1 --dp-delta 1", "must be below 1"),
    "a delta that tells a row": Case("--dp-epsilon 1 --dp-delta 0.02", "below 1 / rows, here 0.01"),
    "a delta too small": Case("--dp-epsilon 1 --dp-delta 1e-20", "1e-12"),
    "noise without a budget": Case("--dp-noise 1", "does nothing without --dp-epsilon"),
    "no noise": Case("--dp-epsilon 1 --dp-noise 0", "--dp-noise 0.0: must be"),
    "too little noise for a round": Case("--dp-epsilon 1 --dp-noise 0.1", "allows no round more"),
    "noise on floats": Case("--dp-epsilon 1 --sums float", "leave --sums float out"),
    "noise on local epochs": Case("--dp-epsilon 1 --method fedavg", "one step a round"),
    "noise, and rows held out": Case("--dp-epsilon 1 --validate 0.2", "--validate is not private"),
    "groups of no rows": Case("--min-count 0", "at least 1"),
    "small groups of no size": Case("--small-groups refuse", "below --min-count M: give both"),
    "a misspelt way with small groups": Case("--min-count 5 --small-groups leave", "'leave-out'"),
    "a group that is refused": Case(
        "--min-count 5 --small-groups refuse",
        "fewer rows of e .test with.",
        table=TABLE + "1,2,e,yes\n3,1,e,no\n" * 6,
    ),
    "groups that are all too small": Case(
        "--min-count 25", "--min-count 25: no group has so many rows to train on"
    ),
    "groups that are too small to test with": Case(
        "--min-count 7", "--min-count 7: no group has so many rows to test with"
    ),
}
GOOD |= {
    "masks of two ranks": Case("--secure"),
    "keys of two ranks": Case("--secure --keys keys", make=keys()),
}
CASES = OPTIONS | TABLES | FOLDERS | PRIVACY | GOOD


def folder_of(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def contents() -> dict[str, str]:
    """Hashes of the files in this folder, without the prepared data."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "-"
        for path in sorted(Path().rglob("*"))
        if path.parts[0] not in ("data", "__pycache__")
    }


def attempt(case: Case) -> tuple[str, str]:
    """Run the command of `case`; return how the command ends on this rank."""
    sys.argv = ["fedmpi.train", *case.data, *COMMON, *split(case.options)]
    try:
        return "done", str(train.main())
    except AgreedError as error:
        return "refused", str(error)
    except SystemExit as error:
        return "exit", str(error.code)
    except BaseException:
        return "traceback", traceback.format_exc()


def split(options: str) -> list[str]:
    """Split into words; a single option with = may have spaces."""
    return [options] if "=" in options and " --" not in options else options.split()


def main() -> None:
    # Polite waits: a rank that spins would take the core from the rank that writes the files.
    world, folder = Ranks(MPI.COMM_WORLD), Path(sys.argv[1]).resolve()
    sys.path.insert(0, "")  # as `python -m` does, for the user's modules in the current folder
    outcomes = {}
    for name, case in CASES.items():
        mine = folder / folder_of(name)
        if world.rank == 0:
            mine.mkdir()
            os.chdir(mine)
            if case.table is not None:
                put("p.csv", case.table)
            if case.make:
                case.make()
        world.meet()
        os.chdir(mine)
        sys.modules.pop("mine", None)
        before = contents() if world.rank == 0 else {}
        world.meet()
        began = time.perf_counter()
        why_not, so_here = case.unless
        undo = case.on_rank_2() if case.on_rank_2 and world.rank == 2 else None
        outcome = ("skipped", why_not) if so_here else attempt(case)
        if undo:
            undo()
        if outcome[0] == "traceback":
            print(f"case {name!r}, rank {world.rank}: {outcome[1]}", file=sys.stderr, flush=True)
            world.comm.Abort(3)  # the other ranks may wait for this rank for ever
        by_rank = world.gather(outcome)
        if world.rank == 0:
            unchanged = contents() == before
            seconds = time.perf_counter() - began
            outcomes[name] = {"by_rank": by_rank, "unchanged": unchanged, "seconds": seconds}
    if world.rank == 0:
        (folder / "outcomes.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main()
