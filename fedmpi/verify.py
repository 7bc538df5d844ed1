"""Run a finished run again, on whatever layout there is, and compare theta bit for bit.

    python -m fedmpi.verify runs/adult-PSG-fedminmax-s0
    mpirun -n 9 python -m fedmpi.verify runs/adult-PSG-fedminmax-s0 --data-dir /scratch/data

The run must have been trained with --sums exact: its result.json has a receipt, the SHA-256 of
theta and what theta's bits depend on (kind of CPU, versions). The new run goes into a folder that
is removed at the end. Exit code 0 if the hashes are the same, 1 if they are not.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmpi.errors import UserError

if TYPE_CHECKING:
    from fedmpi.mpi.ranks import Ranks
    from fedmpi.run.config import Config

CHANGED = "the data have changed since: nothing can be compared."


def main() -> int:
    from fedmpi.mpi.start import start
    from fedmpi.train import carry_out

    world = start()
    with tempfile.TemporaryDirectory(prefix="fedmpi-verify-") as folder:
        config, receipt = world.on_server(lambda: run_to_repeat(world, folder))
        if config.dataset.endswith("/"):
            refuse_changed_owners(world, config)
        result = carry_out(world, config, quiet=True)
        same = world.on_server(lambda: compared(receipt, (result or {})["receipt"]))
    return 0 if same else 1


def run_to_repeat(world: Ranks, folder: str) -> tuple[Config, dict]:
    """Configuration of the run that the command line names, and its receipt."""
    from fedmpi import methods
    from fedmpi.run.arguments import Parser
    from fedmpi.run.config import IDENTITY, Config
    from fedmpi.run.folder import RunFolder

    p = Parser(
        prog="python -m fedmpi.verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    p.add_argument("--data-dir", metavar="DIR", help="where the data are (as in the run)")
    a = p.parse_args(sys.argv[1:])
    there = RunFolder(a.run)
    saved, result = there.read_json("config.json"), there.read_json("result.json")
    refuse(a.run, saved, result)
    names = {field.name for field in dataclasses.fields(Config)} - {"options"}
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in saved.items()
        if name in names
    }
    needed = {f.name for f in dataclasses.fields(Config) if f.default is dataclasses.MISSING}
    if missing := needed - {"options"} - fields.keys():
        raise UserError(f"{a.run} is of another version of fedmpi: it has no {min(missing)}.")
    options = {
        option.name: saved.get(option.name)
        for option in methods.find(saved["method"]).all_options()
    }
    config = Config(**fields, options=options).replace(
        data_dir=a.data_dir or saved["data_dir"],
        output=str(Path(folder) / "run"),
        resume=False,
        force=False,
        log=None,
        bootstrap=0,
        # Masks change no sum. One client rank has nobody to hide its own from: it holds all rows.
        secure=saved["secure"] and len(world.client_ranks) > 1,
        on_client_failure="end",
        reduce="auto",
    )
    if not config.data and config.identity()["data"] != saved[IDENTITY]["data"]:
        raise UserError(f"{a.run}: {CHANGED}")
    if world.size > 1 and config.clients and config.clients < len(world.client_ranks):
        raise UserError(
            f"the run has {config.clients} clients: use mpirun -n {config.clients + 1}."
        )
    return config, result["receipt"]


def refuse_changed_owners(world: Ranks, config: Config) -> None:
    """Raise an AgreedError if an owner's file is another than in the run; each hashes its own."""
    from fedmpi.data.owners import fingerprint

    now = fingerprint(world, config)

    def compare() -> None:
        if now != config.data:
            raise UserError(f"{config.dataset}: {CHANGED}")

    world.on_server(compare)


def refuse(path: Path, saved: dict, result: dict) -> None:
    """Raise a UserError for a run that cannot be repeated bit for bit."""
    if not result:
        raise UserError(f"{path} holds no finished run: name the folder of one.")
    if "receipt" not in result:
        raise UserError(f"{path} has no receipt: only runs with --sums exact can be verified.")
    if saved.get("dp_epsilon") is not None:
        raise UserError(f"{path} has noise that nobody may know (--dp-epsilon): no run repeats it.")
    if result.get("lost"):
        raise UserError(f"{path} lost ranks on its way: no run repeats it.")


def compared(before: dict, now: dict) -> bool:
    """Say whether two receipts have the same hashes, and if not, what else differs."""
    from fedmpi.run.display import say

    same = before["sha256"] == now["sha256"]
    for name, hashed in before["sha256"].items():
        again = now["sha256"][name]
        say(f"{name:<10}{hashed}  {'the same' if again == hashed else f'now {again}'}")
    differences = [
        f"{name} {value}, now {now['depends_on'].get(name)}"
        for name, value in (dict.fromkeys(now["depends_on"]) | before["depends_on"]).items()
        if now["depends_on"].get(name) != value
    ]
    if same:
        say("verified: the same theta, bit for bit")
    elif differences:
        say(f"not the same theta; what it depends on differs: {'; '.join(differences)}")
    else:
        say("not the same theta, and nothing that it depends on differs")
    return same


if __name__ == "__main__":
    from fedmpi.mpi.start import run

    run(main)
