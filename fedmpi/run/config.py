"""One training run: every option of it, resolved. Every rank has this; the server reads it.

arguments.py makes it of a command line.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedmpi.methods.option import COHORTS

IDENTITY = "science"
"""Key of the identity in config.json, checkpoints and failed.json. It is the name that the identity
had at first: runs and checkpoints from then are recognised."""


@dataclass(frozen=True)
class Config:
    """One training run, fully resolved, which `replace` alone can change.

    An option that the method or the dataset has no use for is None, whatever its type says: the
    types are for those that read it.
    """

    dataset: str
    setting: str
    method: str
    clients: int
    model: str
    loss: str
    seed: int
    rounds: int
    lr: float
    options: dict[str, Any]
    """Options of the method's own, by name (Method.options), which are attributes as well."""
    skew: float
    limit_train: int | None
    limit_test: int | None
    fold: str | None
    validate: float | None
    patience: int | None
    rows: int
    target: str | None
    group: tuple[str, ...]
    test: str | None
    drop: tuple[str, ...]
    client: str | None
    states: tuple[str, ...]
    min_group_rows: int
    min_value_rows: int
    merge_small: int | None
    missing: tuple[str, ...] | None
    bins: int | None
    metrics: tuple[str, ...] | None
    log: tuple[str, ...] | None
    dtype: str
    eval_every: int
    device: str
    micro_batch: int | None
    """Rows of a pass; None until the job knows the model: see models/micro_batch.py."""
    checkpoint_every: str
    stall_timeout: float
    on_client_failure: str
    reduce: str
    sums: str | None
    """How changes and losses are summed: exact, as integers, or None, as floats."""
    secure: bool
    keys: str | None
    min_count: int | None
    small_groups: str | None
    dp_epsilon: float | None
    dp_delta: float | None
    dp_clip: float | None
    dp_loss_clip: float | None
    dp_noise: float | None
    bootstrap: int | None
    """Replicates of the test rows in bootstrap.npz; 0 is none."""
    cuda_aware: bool
    balance: str
    solver: str
    until: str | None
    tuned: str | None
    data_dir: str
    output: str
    resume: bool
    force: bool
    progress: str
    autocast: str | None = None
    """Type of the products in training passes, where it is not `dtype`."""
    auto_decay: float | None = None
    """The weight decay where the solver's default is `auto`: it takes the number of rows."""
    available: dict[str, float] | None = None
    """How often each client can take part, by its name or number: what --availability names."""
    tuned_options: tuple[str, ...] | None = None
    """Names of the options that tuning has chosen: they do not tell two runs of a table apart."""
    data: str | None = None
    """Fingerprint of owners' files; for all other data the dataset's key serves."""
    counted: bool = False
    """Whether the number of clients was counted in the data: --setting by:COLUMN alone."""

    def __getattr__(self, name: str) -> Any:
        """Return an option of the method; local training is None for methods that do without."""
        options = self.__dict__.get("options", {})
        if name in options or name in ("local_epochs", "batch_size"):
            return options.get(name)
        raise AttributeError(f"the method has no option {name!r}")

    @property
    def decay(self) -> float:
        """The weight decay as a number, once the rows are known."""
        given = self.options.get("weight_decay")
        return (self.auto_decay if given == "auto" else given) or 0.0

    @property
    def by(self) -> str | None:
        """The column that --setting by:COLUMN splits the rows by."""
        from fedmpi.data.settings import column_of

        return column_of(self.setting)

    @property
    def partial(self) -> bool:
        """Whether the options let only some clients take part in a round."""
        return any(self.options.get(option.name) for option in COHORTS)

    def saved(self) -> dict:
        """Return all settings by name, the method's options among them, as config.json has them."""
        settings = dataclasses.asdict(self)
        return settings | settings.pop("options")

    @cached_property
    def data_key(self) -> str:
        """Name of the prepared rows, or the fingerprint of owners' files.

        A run asks for it five times, and for a user's file that takes reading and hashing the file:
        so each process finds the key once.
        """
        # Imported here, because the ranks of clients do without them.
        from fedmpi import data as datasets
        from fedmpi.data.options import options_from

        return self.data or datasets.find(self.dataset).key(options_from(self))

    def replace(self, **changes: Any) -> Config:
        """Return this run with `changes`, and with the key of the rows if these stay the same."""
        new = dataclasses.replace(self, **changes)
        if "data_key" in vars(self) and changes.keys() <= {"clients", *NOT_IDENTITY}:
            vars(new)["data_key"] = self.data_key
        return new

    def __getstate__(self) -> dict:
        """Leave the key of the rows out: on another host the same name may be of another file."""
        return {name: value for name, value in vars(self).items() if name != "data_key"}

    def identity(self) -> dict:
        """Settings that decide the result, to rounding: runs that agree in them are the same run.

        The rows are among them by the name of their prepared folder, which for a user's file comes
        from its contents; where the contents say who the clients are, so does that name.
        """
        from fedmpi.data.partition import OWNED  # which the ranks of clients do without

        # What is None decides nothing. So runs from before an option existed are known again.
        settings = {
            name: value
            for name, value in self.saved().items()
            if name not in NOT_IDENTITY and value is not None
        }
        if self.setting == OWNED or self.counted:
            settings.pop("clients", None)
        return settings | {"data": self.data_key}


NOT_IDENTITY = (
    "bootstrap",
    "log",
    "availability",
    "auto_decay",
    "counted",
    "eval_every",
    "device",
    "micro_batch",
    "checkpoint_every",
    "stall_timeout",
    "on_client_failure",
    "reduce",
    "secure",
    "keys",
    "cuda_aware",
    "balance",
    "solver",
    "tuned",
    "tuned_options",
    "data_dir",
    "output",
    "resume",
    "force",
    "progress",
)
