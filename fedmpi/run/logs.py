"""--log: the rows of history.csv as they come, and the result, to a tracker that the user has.

    --log tensorboard        files in the run's folder, for `tensorboard --logdir`
    --log mlflow             a run of the experiment "fedmpi" in the store of MLFLOW_TRACKING_URI
    --log wandb              a run of the project "fedmpi"; WANDB_MODE=offline keeps it here
    --log package.module:Class

The server alone has one, and imports the tracker's package when it is asked for. A tracker that
fails during the run is left out from then on, with a warning: the run is worth more than its log.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedmpi.errors import UserError, said_by, unknown_name
from fedmpi.plugins import load_class
from fedmpi.run.display import warn

EXPERIMENT = "fedmpi"


class Log:
    """Somewhere to follow a run: a subclass overrides what it needs, and makes no copies."""

    def start(self, config: dict[str, Any]) -> None:
        """Begin, before the first round; `config` has every option, with `resume` and `output`."""

    def log(self, t: int, numbers: dict[str, float]) -> None:
        """Take the numbers of round `t`: a row of history.csv, or `test/...` at the end."""

    def finish(self, result: dict[str, Any] | None) -> None:
        """End, with the contents of result.json; None if the run did not come to its end."""


class TensorBoard(Log):
    """Scalars in the folder `tensorboard` of the run."""

    def start(self, config: dict[str, Any]) -> None:
        # Imported before the first round, which must not wait for it; torch's needs tensorboard.
        from torch.utils.tensorboard import SummaryWriter

        self.config, self.make = config, SummaryWriter
        self.writer: Any = None

    def log(self, t: int, numbers: dict[str, float]) -> None:
        if self.writer is None:
            # Rounds after the checkpoint that a killed run has written are taken back.
            again = t if self.config["resume"] else None
            self.writer = self.make(Path(self.config["output"]) / "tensorboard", purge_step=again)
            self.writer.add_text("config", _listed(self.config))
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, t)

    def finish(self, result: dict[str, Any] | None) -> None:
        if self.writer is not None:
            self.writer.close()


class MLflow(Log):
    """A run in MLflow's store, by MLflow's own settings; a resumed run goes on in the same one."""

    def start(self, config: dict[str, Any]) -> None:
        from mlflow import MlflowClient

        self.client, self.names = MlflowClient(), _Names(r"[^\w. /-]")
        if known := _kept_id("mlflow", config):
            self.run = known
            self.client.update_run(self.run, "RUNNING")
            return
        found = self.client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else self.client.create_experiment(EXPERIMENT)
        run = self.client.create_run(experiment, run_name=Path(config["output"]).name)
        self.run = run.info.run_id
        _keep_id("mlflow", config, self.run)
        for name, value in config.items():
            if value is not None:
                self.client.log_param(self.run, name, str(value)[:500])

    def log(self, t: int, numbers: dict[str, float]) -> None:
        from mlflow.entities import Metric

        at = int(1000 * time.time())
        metrics = [Metric(self.names.of(name), x, at, t) for name, x in numbers.items()]
        for first in range(0, len(metrics), 1000):  # the most that MLflow takes at a time
            self.client.log_batch(self.run, metrics[first : first + 1000])

    def finish(self, result: dict[str, Any] | None) -> None:
        if result:
            self.client.log_dict(self.run, result, "result.json")
        self.client.set_terminated(self.run, "FINISHED" if result else "FAILED")


class Wandb(Log):
    """A run of Weights & Biases, by its own settings (WANDB_MODE, WANDB_PROJECT, ...)."""

    def start(self, config: dict[str, Any]) -> None:
        import wandb

        folder = Path(config["output"])
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", EXPERIMENT),
            name=folder.name,
            id=_kept_id("wandb", config),
            resume="allow",
            config=config,
            dir=str(folder),
        )
        _keep_id("wandb", config, self.run.id)

    def log(self, t: int, numbers: dict[str, float]) -> None:
        self.run.log(numbers, step=t)

    def finish(self, result: dict[str, Any] | None) -> None:
        if result:
            self.run.summary.update({k: x for k, x in result.items() if not isinstance(x, dict)})
        self.run.finish(exit_code=0 if result else 1)


LOGS: dict[str, tuple[type[Log], str, str]] = {
    "tensorboard": (TensorBoard, "tensorboard", "tensorboard"),
    "mlflow": (MLflow, "mlflow", "mlflow"),
    "wandb": (Wandb, "wandb", "wandb"),
}
"""Trackers by name: the class, the package that it imports, and the extra of fedmpi's."""


def find(names: Iterable[str] | None) -> dict[str, type[Log]]:
    """Classes of the trackers that the user names; a UserError for one that cannot be used."""
    found = {}
    for name in names or ():
        if ":" in name:
            found[name] = load_class("--log", name, Log)
            continue
        if name not in LOGS:
            raise unknown_name("--log", name, [*LOGS, "package.module:Class"])
        found[name], package, extra = LOGS[name]
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:  # a folder of that name is no package
            raise UserError(
                f"--log {name} needs the package {package}: "
                f'pip install -c constraints.txt ".[{extra}]".'
            )
    return found


class Logs:
    """The trackers of one run, on the server."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self.open: dict[str, Log] = {name: cls() for name, cls in find(names).items()}
        self.started = False

    def start(self, config: dict[str, Any]) -> None:
        """Begin with the first round; a UserError if a tracker cannot."""
        for name, log in self.open.items():
            try:
                log.start(dict(config))
            except Exception as error:  # of a tracker's own, or of somebody's class
                raise UserError(f"--log {name}: {said_by(error)}.") from error
        self.started = True

    def log(self, t: int, row: dict[str, Any]) -> None:
        """Pass on the numbers of a row; those that are not known are left out."""
        numbers = {
            name: float(value)
            for name, value in row.items()
            if name != "round" and isinstance(value, int | float) and value == value
        }
        self._each("log", t, numbers)

    def finish(self, result: dict[str, Any]) -> None:
        """Pass on the figures of the test rows, and the result; then end."""
        if not self.open:
            return
        figures = {
            f"test/{what}/{name}": group[what]
            for name, group in result["groups"].items()
            for what in ("risk", "accuracy")
        }
        figures |= {f"test/{name}": result[name] for name in ("worst_risk", "worst_accuracy")}
        self.log(result["rounds"], figures)
        self._each("finish", result)
        self.open = {}

    def close(self) -> None:
        """End, if the run did not come to its end."""
        if self.started:
            self._each("finish", None)
        self.open = {}

    def _each(self, call: str, *arguments: Any) -> None:
        for name, log in list(self.open.items()):
            try:
                getattr(log, call)(*arguments)
            except Exception as error:
                del self.open[name]
                with contextlib.suppress(OSError):
                    warn(f"--log {name} failed, and is left out from here: {said_by(error)}")


class _Names:
    """Names that a tracker allows, each of one name of ours: groups may be called anything."""

    def __init__(self, refused: str) -> None:
        self.refused, self.known = re.compile(refused), dict[str, str]()

    def of(self, name: str) -> str:
        """The tracker's name of `name`."""
        if name not in self.known:
            allowed = self.refused.sub("_", name)
            taken = set(self.known.values())
            tries = [allowed, *(f"{allowed} {i}" for i in range(2, len(taken) + 3))]
            self.known[name] = next(word for word in tries if word not in taken)
        return self.known[name]


def _kept_id(name: str, config: dict[str, Any]) -> str | None:
    """The tracker's own name of this run, if it is resumed."""
    with contextlib.suppress(OSError):
        if config["resume"]:
            return (Path(config["output"]) / f"{name}.id").read_text().strip()
    return None


def _keep_id(name: str, config: dict[str, Any], known: str) -> None:
    (Path(config["output"]) / f"{name}.id").write_text(f"{known}\n")


def _listed(config: dict[str, Any]) -> str:
    return "\n".join(f"    {name}  {x}" for name, x in config.items() if x is not None)
