"""Tell which clients a job lost, from what its launcher said of a process.

    mpirun -n 41 python -m fedmpi.train ... 2>&1 | tee job.log
    python -m fedmpi.run.lost_ranks runs/adult-PSG-fedminmax-s0 job.log

The launchers name a process. The run has written down, in ranks.json, which rank and which clients
that process had. Open MPI names the process that died; MPICH names the first process of a host,
whichever died there. On one host `fedmpi.run.supervise`, and with it launch/local.sh, sees by
itself which process ends first.
"""

import argparse
import contextlib
import json
import re
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedmpi.mpi.launcher import resumed
from fedmpi.mpi.placement import ranges
from fedmpi.run.checkpoint import NEWEST, PREVIOUS

RANKS = "ranks.json"
OPEN_MPI_NAMES = re.compile(r"\bPID\s+(\d+)\s+on\s+node\s+(\S+)")
HOST_GONE = re.compile(
    r"\bConnection to (\S+) closed by remote host|\bRemote daemon:\s+\S+ on node (\S+)"
)
"""Pattern of what ssh and Open MPI say of a host that went away."""
MPICH_NAMES = re.compile(r"\bPID\s+\d+\s+RUNNING AT\s+(\S+)")


def where(processes: list[tuple[str, int]], hosted: Sequence[Iterable[int]], command: str) -> dict:
    """Return what ranks.json has: each rank's host, PID and clients; and the command."""
    ranks = [
        {"rank": rank, "host": host, "pid": pid, "clients": [int(k) for k in clients]}
        for rank, ((host, pid), clients) in enumerate(zip(processes, hosted, strict=True))
    ]
    return {"command": command, "ranks": ranks}


def who(folder: Path, said: str = "", pid: int | None = None) -> str | None:
    """Return who died: the process `pid` of this host, or as the launcher `said`; None: unknown."""
    ranks = read_ranks(folder)
    if gone := HOST_GONE.search(said):  # first: ranks of this host then end, too
        return _host(gone[1] or gone[2], ranks)
    if pid is None and (named := OPEN_MPI_NAMES.search(said)):
        found = [r for r in ranks if r["pid"] == int(named[1]) and _same(r["host"], named[2])]
    elif pid is None and (named := MPICH_NAMES.search(said)):
        found = [r for r in ranks if _same(r["host"], named[1])]
    else:
        found = [r for r in ranks if r["pid"] == pid and r["host"] == socket.gethostname()]
    if not found:
        return None
    hosted = clients_of(found)
    if len(found) > 1:
        numbers = ranges([r["rank"] for r in found])
        return f"one of the ranks {numbers} on {found[0]['host']}, which had {hosted}"
    (r,) = found
    hosted = hosted or ("the server" if r["rank"] == 0 else "no clients")
    return f"rank {r['rank']} (PID {r['pid']} on {r['host']}) with {hosted}"


def _host(name: str, ranks: list[dict]) -> str | None:
    found = [r for r in ranks if _same(r["host"], name)]
    if not found:
        return None
    numbers = ranges([r["rank"] for r in found])
    clients = clients_of(found) or "no clients"
    return f"the host {name}: rank{'s' if len(found) > 1 else ''} {numbers} with {clients}"


def clients_of(ranks: list[dict]) -> str:
    """Return `clients 4-6, 9` for the clients of these ranks; empty if the ranks had none."""
    clients = [k for r in ranks for k in r["clients"]]
    return f"client{'s' if len(clients) > 1 else ''} {ranges(clients)}" if clients else ""


def read_ranks(folder: Path) -> list[dict]:
    """Return the ranks in ranks.json; none if that file is not there."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return json.loads((folder / RANKS).read_text())["ranks"]
    return []


def _same(host: str, other: str) -> bool:
    return host.split(".")[0] == other.split(".")[0]


def checkpoint_age(folder: Path) -> float | None:
    """Return the seconds since the newest checkpoint was written; None if there is none."""
    for name in (NEWEST, PREVIOUS):
        with contextlib.suppress(OSError):
            return max(0.0, time.time() - (folder / name).stat().st_mtime)
    return None


def how_to_go_on(folder: Path, command: str | None = None) -> str:
    """Return what of the run stands, and the command that goes on from there."""
    if command is None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            command = json.loads((folder / RANKS).read_text())["command"]
    if command is None:
        return "It had not begun to train."
    age = checkpoint_age(folder)
    if age is None:
        return f"There was no checkpoint yet. Start again with: {command}"
    return f"The checkpoint of {age:.0f} s ago stands. Go on with: {resumed(command)}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fedmpi.run.lost_ranks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="the run's folder")
    parser.add_argument("log", type=Path, nargs="?", help="what the launcher printed (stdin)")
    a = parser.parse_args(argv)
    try:
        said = a.log.read_text(errors="replace") if a.log else sys.stdin.read()
    except OSError as error:
        print(f"fedmpi: cannot read {a.log}: {error.strerror}.", file=sys.stderr)
        return 2
    if not (a.folder / RANKS).exists():
        print(f"fedmpi: {a.folder} holds no unfinished run ({RANKS} is missing).", file=sys.stderr)
        return 2
    lost = who(a.folder, said)
    print(f"fedmpi: lost {lost}." if lost else "fedmpi: no process of this run is named there.")
    print(f"fedmpi: {how_to_go_on(a.folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
