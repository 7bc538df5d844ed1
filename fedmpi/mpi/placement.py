"""Where the ranks of a job are: host, process, cores, device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

SHOWN = 8
"""Hosts that are printed; config.json has them all."""


class Place(NamedTuple):
    """Host, process, cores and device of one rank."""

    host: str
    pid: int
    cores: tuple[int, ...]
    """Cores that the rank may run on; empty where the system does not tell."""
    device: str


def here(host: str, device: object) -> Place:
    """Return the place of this rank."""
    tells = hasattr(os, "sched_getaffinity")
    cores = tuple(sorted(os.sched_getaffinity(0))) if tells else ()
    return Place(host, os.getpid(), cores, str(device))


@dataclass
class Placement:
    """The places of all ranks, by rank."""

    places: list[Place]

    def saved(self) -> dict:
        """Return what config.json has of the places, in lists by rank."""
        return {
            "hosts": [place.host for place in self.places],
            "cores": [ranges(list(place.cores)) for place in self.places],
            "devices": [place.device for place in self.places],
        }

    def lines(self) -> list[str]:
        """Return a line for each host, for the user; of many hosts, the first ones."""
        hosts: dict[str, list[int]] = {}
        for rank, place in enumerate(self.places):
            hosts.setdefault(place.host, []).append(rank)
        lines = [self._line(host, ranks) for host, ranks in hosts.items()]
        if len(lines) > SHOWN:
            lines[SHOWN:] = [f"and {len(lines) - SHOWN} more hosts: see layout in config.json"]
        return lines

    def _line(self, host: str, ranks: list[int]) -> str:
        places = [self.places[rank] for rank in ranks]
        line = f"{host}: rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
        every = {core for place in places for core in place.cores}
        if every:
            line += f" on core{'s' if len(every) > 1 else ''} {ranges(sorted(every))}"
            bound = len(every) == sum(len(place.cores) for place in places)
            line += ", each on its own" if bound and len(ranks) > 1 else ""
        devices = sorted({place.device for place in places} - {"cpu"})
        return f"{line}; {', '.join(devices)}" if devices else line


def ranges(numbers: list[int]) -> str:
    """Return `4-6, 9` for 4, 5, 6, 9."""
    parts = []
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        ends = [number for _, number in run]
        parts.append(f"{ends[0]}-{ends[-1]}" if len(ends) > 1 else f"{ends[0]}")
    return ", ".join(parts)
