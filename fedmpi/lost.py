"""Which clients a job lost, from what its launcher said of a process.

    mpirun -n 41 python -m fedmpi.train ... 2>&1 | tee job.log
    python -m fedmpi.lost runs/adult-PSG-fedminmax-s0 job.log

The launchers name a PID. The run has written down, in ranks.json, which rank and which clients had
it. `fedmpi.watch`, and with it launch/local.sh, does this by itself.
"""

import argparse
import contextlib
import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from fedmpi.checkpoint import NEWEST, PREVIOUS
from fedmpi.command import resumed

RANKS = "ranks.json"
NAMED = re.compile(r"\bPID\s+(\d+)(?:\s+(?:RUNNING AT|on node)\s+(\S+))?")
"""How MPICH's and Open MPI's mpirun name a process that ended badly, and its host."""


def where(processes: list[tuple[str, int]], hosted: Sequence[Iterable[int]], command: str) -> dict:
    """What ranks.json says: for each rank its host, PID and clients; and what was typed."""
    ranks = [
        {"rank": rank, "host": host, "pid": pid, "clients": [int(k) for k in clients]}
        for rank, ((host, pid), clients) in enumerate(zip(processes, hosted, strict=True))
    ]
    return {"command": command, "ranks": ranks}


def lost_ranks(folder: Path, said: str) -> list[dict]:
    """The ranks of the run whose processes a launcher's output names."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        ranks = json.loads((folder / RANKS).read_text())["ranks"]
        named = [(int(pid), host) for pid, host in NAMED.findall(said)]
        return [r for r in ranks if any(_is(r, pid, host) for pid, host in named)]
    return []


def _is(rank: dict, pid: int, host: str) -> bool:
    same_host = not host or host.split(".")[0] == rank["host"].split(".")[0]
    return rank["pid"] == pid and same_host


def describe(rank: dict) -> str:
    """`rank 2 (PID 77 on node3) with clients 4-6, 9`."""
    clients = rank["clients"]
    who = "the server" if rank["rank"] == 0 else "no clients"
    if clients:
        who = f"client{'s' if len(clients) > 1 else ''} {ranges(clients)}"
    return f"rank {rank['rank']} (PID {rank['pid']} on {rank['host']}) with {who}"


def ranges(numbers: list[int]) -> str:
    """`4-6, 9` for 4, 5, 6, 9."""
    parts = []
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        ends = [number for _, number in run]
        parts.append(f"{ends[0]}-{ends[-1]}" if len(ends) > 1 else f"{ends[0]}")
    return ", ".join(parts)


def checkpoint_age(folder: Path) -> float | None:
    """Seconds since the newest checkpoint was written; None if there is none."""
    for name in (NEWEST, PREVIOUS):
        with contextlib.suppress(OSError):
            return max(0.0, time.time() - (folder / name).stat().st_mtime)
    return None


def how_to_go_on(folder: Path, command: str | None = None) -> str:
    """What stands, and the command that goes on from it."""
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
        prog="python -m fedmpi.lost",
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
    lost = lost_ranks(a.folder, said)
    for rank in lost:
        print(f"fedmpi: lost {describe(rank)}.")
    if not lost:
        print("fedmpi: the launcher named no process of this run.")
    print(f"fedmpi: {how_to_go_on(a.folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
