"""The same run without the adversary: what the model would be if nobody looked after groups."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fedmpi import methods
from fedmpi.errors import UserError
from fedmpi.run.checkpoint import NEWEST, PREVIOUS
from fedmpi.run.config import IDENTITY, Config
from fedmpi.run.folder import RunFolder
from fedmpi.run.record import Record, read_record
from fedmpi.run.solver import FAST

OF_THE_GAME = (
    *("lr_mu", "epsilon", "adversary", "until"),
    *("optimizer", "average", "lr", "rounds"),  # in place of Newton's step
)
"""Options that a run's baseline may have other values of."""


def folder_of(run: Path) -> Path:
    """Folder of a run's baseline, beside the run."""
    resolved = run.resolve()
    return resolved.with_name(f"{resolved.name}-baseline")


def find_baseline(record: Record) -> Record | None:
    """Return the baseline of a run, if it was trained before."""
    folder = folder_of(record.folder)
    if not (folder / "result.json").is_file():
        return None
    found = read_record(folder)
    mine, others = (_identity(some) for some in (record, found))
    return found if mine == others and found.config.get("lr_mu") == 0 else None


def _identity(record: Record) -> dict:
    """What a run and its baseline share of what decides their results."""
    settings = record.config.get(IDENTITY) or {}
    return {name: value for name, value in settings.items() if name not in OF_THE_GAME}


def without_weights(record: Record) -> Config:
    """Configuration of the run with an adversary that takes no steps; UserError if it has none."""
    config = read_config(record)
    if config.options.get("lr_mu") is None and config.options.get("optimizer") != "newton":
        raise UserError(
            f"--baseline: {config.method} has no weights to leave out; it is for methods with "
            "--lr-mu, as fedminmax."
        )
    options = config.options | {"lr_mu": 0.0}
    if "epsilon" in options:
        options["epsilon"] = 0.0  # a floor would lift the weights of small groups
    changes: dict[str, Any] = {"rounds": record.result["rounds"]}
    if options.get("optimizer") == "newton":  # which finds the weights itself: other steps then
        names = ("optimizer", "adversary", "average")
        options |= {name: FAST[name] for name in names}
        changes = {"lr": FAST["lr"], "rounds": FAST["rounds"]}
    folder = folder_of(record.folder)
    unfinished = any((folder / name).exists() for name in (NEWEST, PREVIOUS))
    return config.replace(
        options=options, until=None, resume=unfinished, force=False, output=str(folder), **changes
    )


def read_config(record: Record) -> Config:
    """Configuration that a run was trained with, from its config.json."""
    saved = record.config
    method = methods.find(saved["method"])
    fields = [field for field in dataclasses.fields(Config) if field.name != "options"]
    lists = ("group", "drop", "states", "metrics")
    values: dict[str, Any] = {
        field.name: tuple(value) if field.name in lists and isinstance(value, list) else value
        for field in fields
        for value in [saved.get(field.name)]
    }
    options = {option.name: saved.get(option.name) for option in method.all_options()}
    return Config(**values, options=options)


def train_baseline(record: Record) -> bool:
    """Train the baseline on the ranks of this launch, if need be; return whether this rank tells.

    Call on every rank. The data are looked for where the run found them.
    """
    from fedmpi.mpi.start import start

    world = start()

    def look() -> tuple[Config, bool]:
        config = without_weights(record)
        folder = RunFolder(config.output)
        finished = bool(folder.finished(config.identity()))
        if not finished and (folder.path / "result.json").exists():
            raise UserError(
                f"--baseline: {folder.path} holds another run. Move it away, and try again."
            )
        return config, finished

    config, finished = world.on_server(look)
    members = 2 if methods.find(config.method).single_client else 1 + (config.clients or world.size)
    ranks = world.first(members) if not finished else None
    if ranks:
        from fedmpi.federation.job import Job

        progress = None
        if world.is_server:
            from fedmpi.run.display import Progress, say

            say(f"training {config.output}: the same model without weights")
            progress = Progress(config.progress, config.rounds)
        Job(ranks, config, progress).run()
    world.meet()
    return world.is_server
