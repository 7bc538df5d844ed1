"""When a checkpoint is due, how it is written, and which one a resume takes.

A checkpoint is written aside, flushed and renamed, and the one before it is kept: there is always a
whole one, at whatever moment a job is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmpi.errors import UserError
from fedmpi.run.config import IDENTITY

if TYPE_CHECKING:
    from fedmpi.run.folder import RunFolder

NEWEST, PREVIOUS = "checkpoint.pt", "checkpoint-previous.pt"
FORMAT = 3
SHARE = 0.02
"""Share of the rounds' time that checkpoints may cost, unless --checkpoint-every says otherwise."""
LEAST = 10.0
"""Seconds between two checkpoints at least in that case, however little they cost."""
SLOW_DISK = 50e6
"""Bytes written a second, by which the first checkpoint's cost is guessed."""
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_every(text: str) -> tuple[int, float]:
    """Read --checkpoint-every as (rounds, seconds): 500 is (500, 0), 10m (0, 600), auto (0, 0)."""
    if text == "auto":
        return 0, 0.0
    found = re.fullmatch(r"(\d+|\d*\.\d+)([smh]?)", text)
    if found and (found[2] or found[1].isdigit()):
        value = float(found[1])
        rounds, seconds = (0, value * UNITS[found[2]]) if found[2] else (int(found[1]), 0.0)
        if rounds >= 1 or seconds > 0:
            return rounds, seconds
    raise UserError(
        f"--checkpoint-every {text}: must be at least 1 (in rounds), a time as 30s, 10m or 1h, "
        "or auto."
    )


@dataclass
class Schedule:
    """Schedule of checkpoints: every so many rounds or seconds, or as often as is cheap."""

    every: str
    cost: float = 0.0
    """Seconds that the last checkpoint took to write; before the first, a guess."""
    spent: float = field(default=0.0, init=False)
    began: float = field(default=0.0, init=False)
    last: float = field(default=0.0, init=False)

    def start(self) -> None:
        """Start the clock: the rounds begin now."""
        self.rounds, self.seconds = parse_every(self.every)
        self.began = self.last = time.perf_counter()

    def due(self, t: int) -> bool:
        """Return whether to write a checkpoint after round `t`."""
        if self.rounds:
            return t % self.rounds == 0
        now = time.perf_counter()
        if self.seconds:
            return now - self.last >= self.seconds
        affordable = self.spent + self.cost <= SHARE * (now - self.began)
        return affordable and now - self.last >= LEAST

    def wrote(self, seconds: float) -> None:
        """Note that a checkpoint was written, and how long it took."""
        self.cost = seconds
        self.spent += seconds
        self.last = time.perf_counter()


def save(folder: RunFolder, state: dict) -> None:
    """Put `state` in the place of the newest checkpoint, which becomes the previous one."""
    import torch

    folder.write(
        NEWEST,
        lambda file: torch.save(state | {"format": FORMAT}, file),
        before_it_appears=lambda: _keep_previous(folder.path),
    )


def _keep_previous(folder: Path) -> None:
    newest, link = folder / NEWEST, folder / f".{PREVIOUS}.{os.getpid()}"
    if not newest.exists():
        return
    with contextlib.suppress(OSError):
        if os.path.samefile(newest, folder / PREVIOUS):
            return  # a kill came between the two renames; the one below would leave the link
    try:
        os.link(newest, link)  # so that the newest one has its name at every moment
        os.replace(link, folder / PREVIOUS)
    except OSError:  # a file system without links
        os.replace(newest, folder / PREVIOUS)


def load(folder: Path, identity: dict, partition: str) -> tuple[dict, str | None]:
    """Return the state to go on from, and what the user has to know of the choice.

    The state is that of the newest checkpoint or, if that is damaged, of the previous one. A
    checkpoint of another configuration or of other data is refused.
    """
    newest, previous = _read(folder / NEWEST), _read(folder / PREVIOUS)
    if isinstance(newest, dict):
        differs = difference(newest, identity, partition)
        if differs is None:
            return newest, None
        offer = ""
        if isinstance(previous, dict) and difference(previous, identity, partition) is None:
            offer = f" {PREVIOUS} (round {previous['round']}) fits: remove {NEWEST} to use it."
        raise UserError(f"{folder / NEWEST} is of {differs}.{offer}")
    if not isinstance(previous, dict):
        raise UserError(f"{newest}, and {previous}: --force instead of --resume starts over.")
    differs = difference(previous, identity, partition)
    if differs is not None:
        raise UserError(f"{newest}, and {folder / PREVIOUS} is of {differs}.")
    # The damaged one must not become the previous one when the next is written.
    os.replace(folder / PREVIOUS, folder / NEWEST)
    return previous, f"{newest}: going on from {PREVIOUS}, round {previous['round']}"


def _read(path: Path) -> dict | str:
    """Return the checkpoint, or what is wrong with it."""
    import torch

    if not path.exists():
        return f"there is no {path}"
    try:
        with zipfile.ZipFile(path) as archive:
            # torch does not look at the sums that it writes.
            if (bad := archive.testzip()) is not None:
                return f"{path} is damaged (at {bad})"
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["format"] != FORMAT:
            return f"{path} was written by another version of fedmpi"
        if not well_formed(state):
            return f"{path} is not a checkpoint of a run"
    except Exception as error:  # whatever a damaged file makes zipfile and torch raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"{path} cannot be read ({reason.rstrip('.')})"
    return state


def lost_in(folder: Path) -> list[dict]:
    """Return the dead client ranks that are in the checkpoint which `load` would take.

    Without such a checkpoint there are none: what is wrong with it is for `load` to say.
    """
    for name in (NEWEST, PREVIOUS):
        if isinstance(state := _read(folder / name), dict):
            return _losses(state)
    return []


def well_formed(state: dict) -> bool:
    """Return whether everything is in `state`, and of the right kind."""
    import torch

    number = (int, float)
    kinds: dict[str, Any] = {"round": int, "seconds": number, IDENTITY: str, "partition": str}
    kinds |= {"theta": torch.Tensor, "theta_mean": torch.Tensor}
    kinds |= dict.fromkeys(("method", "history", "client_weights", "measured"), dict)
    return (
        all(isinstance(state[name], kind) for name, kind in kinds.items())
        and all(
            isinstance(number, int)
            for rank in _losses(state)
            for number in (rank["last_round"], *rank["clients"])
        )
        and all(
            isinstance(value, torch.Tensor)
            for name in ("method", "shared", "of_clients")
            for value in state.get(name, {}).values()  # the last two are newer than the first
        )
        and all(isinstance(value, number) for value in state["measured"].values())
        and all(
            isinstance(state[journal][name], int)
            for journal in ("history", "client_weights")
            for name in ("size", "crc")
        )
    )


def _losses(state: dict) -> list[dict]:
    """Return the dead client ranks that the run had gone on without."""
    return json.loads(state.get("lost", "[]"))  # there was none before there could be any


def difference(state: dict, identity: dict, partition: str) -> str | None:
    """Return in what the checkpoint is not of this run; None if it is of this run."""
    saved, ours = json.loads(state[IDENTITY]), json.loads(json.dumps(identity))
    # More rounds are the same run, unless its steps or its mean depend on where it ends.
    ends = ours.get("schedule") == "cosine" or ours.get("average") == "tail"
    names = [k for k in {**ours, **saved} if ours.get(k) != saved.get(k)]
    names = [k for k in names if ends or k != "rounds"]
    if names == ["data"]:  # otherwise it follows from another difference
        return f"other data: {saved.get('data')}, now {ours['data']}"
    if names:
        what = ", ".join(f"{k} was {saved.get(k)}, now {ours.get(k)}" for k in names if k != "data")
        return f"another configuration: {what}"
    if state["partition"] != partition:
        return "another partition of the data: were the data changed?"
    return None
