"""The prepared data on every host of a job. Hosts need not share a disk.

The server prepares the dataset. Then one rank of each host looks for the same folder there, and
prepares it from that host's own files or sources if it is missing. All compare what they have.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedmpi.data.store import Prepared, is_stale, read_manifest
from fedmpi.errors import UserError
from fedmpi.mpi.launcher import at_terminal
from fedmpi.mpi.ranks import Ranks

if TYPE_CHECKING:
    from fedmpi.data.options import DataConfig


@dataclass
class Found:
    """Prepared data that one host has, or why it has none."""

    host: str
    name: str = ""
    """Name of the folder: for a csv file, a hash of its contents is a part of the name."""
    digest: str = ""
    error: str = ""


def prepare_on_every_host(ranks: Ranks, config: DataConfig) -> Prepared:
    """Return the prepared dataset, the same on every host; AgreedError if it is not."""
    folder = ranks.on_server(lambda: prepare_here(config).folder)
    found = None
    if ranks.local_rank == 0:
        try:
            # By the server's name: a host may have the prepared data, but not what they are of.
            ready = folder.exists() and not is_stale(folder)
            there = Prepared.open(folder) if ready else prepare_here(config, quiet=True)
            found = Found(ranks.host, there.folder.name, digest(there.folder))
        except UserError as error:
            found = Found(ranks.host, error=str(error))
    hosts = ranks.gather(found)
    ranks.on_server(lambda: compare([host for host in hosts or [] if host]))
    return Prepared.open(folder)


def prepare_here(config: DataConfig, quiet: bool = False) -> Prepared:
    """Return the dataset, prepared on this host if it is not yet."""
    # On the first rank of a host alone, and not before: what reads datasets is not light.
    from fedmpi.data import find
    from fedmpi.data.options import options_from
    from fedmpi.data.prepare import prepare

    bar = config.progress == "bar" or (config.progress == "auto" and at_terminal())
    dataset, options = find(config.dataset), options_from(config)
    return prepare(dataset, Path(config.data_dir), options, bar and not quiet, config.data_key)


def digest(folder: Path) -> str:
    """Return a hash of all that decides a run: names, and the hashes of the arrays."""
    manifest = read_manifest(folder)
    names = {
        key: manifest.get(key) for key in ("groups", "classes", "clients", "by_values", "scale")
    }
    arrays = {name: described["sha256"] for name, described in manifest["arrays"].items()}
    return hashlib.sha256(json.dumps([names, arrays], sort_keys=True).encode()).hexdigest()


def compare(found: list[Found]) -> None:
    """Raise a UserError unless every host has what the first one, the server's, has."""
    server, *others = found
    if without := [other for other in others if other.error]:
        raise UserError(
            f"{_names(without)} cannot prepare the data: {without[0].error} Hosts that share no "
            f"disk each need the data: put there what {server.host} has, or choose a --data-dir "
            "(and a place for your files) that all of them see."
        )
    if different := [other for other in others if other.name != server.name]:
        raise UserError(
            f"{_names(different)} and {server.host} have different files of the same name "
            f"({different[0].name}, not {server.name}): make them the same."
        )
    if different := [other for other in others if other.digest != server.digest]:
        raise UserError(
            f"{_names(different)} and {server.host} have prepared the same data differently "
            f"({server.name}): another version of a library? Copy that folder from {server.host}."
        )


def _names(hosts: list[Found]) -> str:
    names = [host.host for host in hosts]
    return ", ".join(names) if len(names) < 5 else f"{', '.join(names[:4])} and others"
