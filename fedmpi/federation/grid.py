"""Many runs in one launch: finished runs are skipped, runs that were cut off go on.

Starting the ranks is paid once. Each run has the ranks that it can use, and the others sleep; with
`at_once` the ranks are split into teams, and a team that is free takes the next run.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmpi import data as datasets
from fedmpi.data.options import options_from
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError
from fedmpi.mpi import signals
from fedmpi.mpi.launcher import at_terminal, command_line, without_force
from fedmpi.mpi.ranks import AgreedError, Ranks, Stopped
from fedmpi.mpi.turns import Turns
from fedmpi.run.config import IDENTITY, Config
from fedmpi.run.display import Progress, say
from fedmpi.run.folder import RunFolder
from fedmpi.run.record import Record, read_record

FAILED = "failed.json"
LINE_EVERY = 60.0


@dataclass
class Plan:
    """A run of the grid, and whether the run has finished or failed."""

    config: Config
    title: str
    finished: bool = False
    failure: str | None = None
    rows: int | None = None
    """Number of training rows of the dataset, once they have been looked up."""

    @property
    def folder(self) -> Path:
        return Path(self.config.output)

    @property
    def passes(self) -> float:
        """Estimated cost of the run in passes over the rows, for its turn and for the time left."""
        c = self.config
        if c.local_epochs:
            return c.rounds * (c.local_epochs + 0.3)
        batch = c.options.get("batch_rows")
        return c.rounds * (min(1.0, batch / self.rows) if batch and self.rows else 1.0)

    def record(self) -> Record | None:
        """Record that the run left in its folder; None until the run is finished."""
        return read_record(self.folder) if self.finished else None


def look(plan: Plan) -> None:
    """Read from the disk whether `plan` is finished, has failed, or is to be resumed.

    Raise a UserError if the plan's folder holds a run of another configuration, unless that run
    has failed: a failed run is replaced.
    """
    c, plan.failure = plan.config, None
    if c.force:
        return
    failed = _read(plan.folder / FAILED)
    plan.finished = RunFolder(plan.folder).finished(c.identity()) is not None
    checkpoint, result = (plan.folder / name for name in ("checkpoint.pt", "result.json"))
    if not plan.finished and (checkpoint.exists() or result.exists()):
        ours = json.loads(json.dumps(c.identity()))
        there = _read(plan.folder / "config.json").get(IDENTITY, {})
        what = ", ".join(
            f"{name} {there.get(name)}, not {ours.get(name)}"
            for name in {**ours, **there}
            if there.get(name) != ours.get(name)
        )
        if what and not failed:
            state = "a finished" if result.exists() else "an unfinished"
            raise UserError(
                f"{plan.folder} holds {state} run of another configuration ({what}): give another "
                "--output, or --force to replace it."
            )
        plan.config = c.replace(force=bool(what), resume=not what)
    if not plan.finished:
        plan.failure = failed.get("why")


def _read(path: Path) -> dict:
    """Read a JSON file; return an empty dict if the file is missing or not whole."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return {}


def run_grid(
    world: Ranks,
    plans: list[Plan],
    kind: str = "auto",
    at_once: int = 1,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Run the unfinished ones of `plans`, which every rank has; update the server's `plans`.

    `after` is called on the server when a run of the server's own team is over. A run that fails
    in a way that all its ranks agree on (the run diverged, or the data do not allow it) is noted in
    the run's folder, and tried again by the next launch. A signal stops the runs that are under way
    at a checkpoint, and the grid with them; a signal to one rank alone stops the run of that rank's
    team, and the other teams end theirs and begin no more.
    """
    waiting = [plan for plan in plans if not plan.finished]
    for plan in waiting:
        plan.failure = None
    teams = min(at_once, world.size, max(1, len(waiting)))
    number = world.rank * teams // world.size
    team = world if teams == 1 else world.team(number)
    team.stall_timeout = math.inf
    turns = Turns(world, team, number, teams, len(waiting))
    order = list(range(len(waiting)))
    if teams > 1:
        order = world.on_server(lambda: longest_first(waiting))
    stopped = False
    if waiting:
        # torch with it, now that the command line is known to be good
        importlib.import_module(
            "fedmpi.federation.announce" if team.is_server else "fedmpi.federation.job"
        )

        gc.freeze()  # what is imported stays: no need to go through it after every run
        signals.wait_for_the_round()  # also on the ranks that a run leaves out
        progress = GridProgress(kind if world.is_server else "none", plans, teams)
        members = Members(team)
        for turn in turns:
            plan = waiting[order[turn]]
            if team.is_server:
                progress.begin(plan)
            stopped = run_one(members, plan, progress)
            if stopped:
                turns.stop()
                break
            if world.is_server:
                progress.end(plan)
                after()
        if world.is_server:
            progress.close()
    world.stall_timeout = math.inf
    world.meet()  # the other teams
    turns.free()
    if world.is_server:
        for plan in waiting:
            plan.config = plan.config.replace(force=False)  # the old run has been replaced
            look(plan)
    asked = world.gather(stopped)
    line = world.on_server(lambda: how_to_go_on(plans, world.size) if any(asked or ()) else None)
    if line:
        raise Stopped(line)


def how_to_go_on(plans: list[Plan], ranks: int) -> str:
    """Last line of a grid that was asked to stop: the command that goes on."""
    by = signal.name if (signal := signals.asked()) else "a signal to another rank"
    finished = sum(plan.finished for plan in plans)
    return (
        f"stopped by {by} with {finished} of {len(plans)} runs finished; those under way are "
        f"saved. Go on with: {without_force(command_line(ranks))}"
    )


def longest_first(plans: list[Plan]) -> list[int]:
    """Return the numbers of the runs, those that take long first: so all teams end about together.

    This prepares the data of all runs once, before every team would prepare them for itself.
    """
    work = []
    for plan in plans:
        c = plan.config
        found = datasets.find(c.dataset)
        prepared = prepare(found, Path(c.data_dir), options_from(c), key=c.data_key)
        plan.rows = sum(prepared.counts["train"].values())
        work.append(plan.passes * plan.rows)
    return sorted(range(len(plans)), key=lambda i: -work[i])


def run_one(members: Members, plan: Plan, progress: GridProgress) -> bool:
    """Do one run on the ranks of the team that it can use, while the others wait.

    Return whether the run was asked to stop.
    """
    from fedmpi.federation.job import Job

    why, stopped = None, False
    c = plan.config = plan.config.replace(progress="none")  # the grid's progress shows the run
    ranks = members.first(c)
    if ranks:
        try:
            Job(ranks, c, progress).run()
        except Stopped:
            stopped = True
        except AgreedError as error:
            why = str(error)
    # Theta, rows and history of this run go before those of the next one come.
    gc.collect()
    members.team.stall_timeout = math.inf
    plan.failure, stopped = members.team.bcast((why, stopped))
    plan.finished = plan.failure is None and not stopped
    if members.team.is_server:
        note_failure(plan)
    return stopped


def note_failure(plan: Plan) -> None:
    """Write why a run failed into the run's folder; remove the note of a run that did not."""
    if plan.failure is None:
        (plan.folder / FAILED).unlink(missing_ok=True)
        return
    plan.folder.mkdir(parents=True, exist_ok=True)
    keep = {"why": plan.failure, "title": plan.title, IDENTITY: plan.config.identity()}
    RunFolder(plan.folder).write_json(FAILED, keep)


class Members:
    """The ranks of a team by number: a run with K clients can use K + 1 of them."""

    def __init__(self, team: Ranks) -> None:
        self.team = team
        self._made: dict[int, Ranks | None] = {}

    def first(self, config: Config) -> Ranks | None:
        """First ranks of the team, as many as this run can use; None on the other ranks.

        Runs that use equally many ranks get the same object.
        """
        # With --setting by:COLUMN the clients are counted when the data are read.
        clients = self.team.size if config.clients is None else config.clients
        number = min(self.team.size, clients + 1)
        if number not in self._made:  # a communicator is made once: MPI has only so many
            self._made[number] = self.team.first(number)
        return self._made[number]


class GridProgress(Progress):
    """One bar, or a line now and then, over all runs, with the time left.

    The time of a method's runs is estimated from passes over the rows until a run of this method
    has been measured, in this launch or in an earlier one.
    """

    def __init__(self, kind: str, plans: list[Plan], teams: int = 1) -> None:
        if kind == "auto":
            kind = "bar" if at_terminal() else "lines"
        self.kind, self.plans, self.teams = kind, plans, teams
        self.began = self.line_at = self.run_began = time.perf_counter()
        self.seconds_a_pass: dict[str, list[float]] = {}
        for plan in (
            plans if kind != "none" else ()
        ):  # the others may not even see the server's disk
            record = plan.record()
            if record:
                self._learn(plan, record.result["seconds"])
        self.current: Plan | None = None
        self.share_done = 0.0
        self.bar = None
        if kind == "bar":
            from tqdm import tqdm

            self.bar = tqdm(
                total=len(plans),
                unit="run",
                ncols=100,
                file=sys.stderr,
                bar_format="{desc} |{bar:20}| {elapsed}{postfix}",
            )

    def begin(self, plan: Plan) -> None:
        """Show that `plan` is about to run."""
        self.current, self.share_done, self.run_began = plan, 0.0, time.perf_counter()
        self.line_at = self.run_began
        self._show(plan, f"begins{' again, at its checkpoint' if plan.config.resume else ''}")

    def update(
        self, t: int, groups: tuple[str, ...], risks: np.ndarray | None, spent: str = ""
    ) -> None:
        """Show that round `t` of the current run is done."""
        assert self.current
        self.share_done = t / self.current.config.rounds
        now = time.perf_counter()
        if now - self.line_at > (0.5 if self.bar is not None else LINE_EVERY):
            self.line_at = now
            worst = f", {self._worst(groups, risks)}" if risks is not None else ""
            self._show(self.current, f"round {t}/{self.current.config.rounds}{worst}")

    def end(self, plan: Plan) -> None:
        """Show that `plan` is over, finished or failed."""
        self.current, seconds = None, time.perf_counter() - self.run_began
        record = plan.record()
        if record:
            self._learn(plan, record.result["seconds"])
            worst = f"worst {record.result['worst_risk']:.4f} ({record.result['worst_group']})"
            self._show(plan, f"{worst}, {duration(seconds)}", done=True)
        else:
            self._show(plan, f"FAILED: {plan.failure}", done=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()

    def seconds_left(self) -> float | None:
        """Estimate of the seconds until the grid is done; None as long as nothing was measured."""
        everything = [pace for paces in self.seconds_a_pass.values() for pace in paces]
        if self.current and self.share_done > 0:
            here = time.perf_counter() - self.run_began
            everything.append(here / (self.share_done * self.current.passes))
        if not everything:
            return None
        left = 0.0
        for plan in self.plans:
            if plan.finished or plan.failure:
                continue
            paces = self.seconds_a_pass.get(plan.config.method) or everything
            share = 1 - self.share_done if plan is self.current else 1.0
            left += share * plan.passes * float(np.mean(paces))
        return left / self.teams

    def _learn(self, plan: Plan, seconds: float) -> None:
        self.seconds_a_pass.setdefault(plan.config.method, []).append(seconds / plan.passes)

    def _look_at_others(self) -> None:
        """Take other teams' runs that left a result for finished; `look` checks all at the end."""
        for plan in self.plans:
            if not (plan.finished or plan is self.current or plan.config.force):
                plan.finished = (plan.folder / "result.json").exists()

    def _show(self, plan: Plan, what: str, done: bool = False) -> None:
        if self.teams > 1:
            self._look_at_others()
        over = sum(p.finished or p.failure is not None for p in self.plans)
        seconds = self.seconds_left()
        left = f"about {duration(seconds)} left" if seconds is not None else "time left unknown"
        line = f"[{over}/{len(self.plans)}] {plan.title}: {what}"
        if self.bar is not None:
            if done:
                self.bar.write(line)
            self.bar.n = over
            self.bar.set_description_str(f"[{over}/{len(self.plans)}] {plan.title}", refresh=False)
            self.bar.set_postfix_str(left)
        elif self.kind == "lines":
            say(f"{line}; {left}")


def duration(seconds: float) -> str:
    """Format seconds for people: 40 s, 12 min, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
