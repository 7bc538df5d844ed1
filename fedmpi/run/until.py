"""--until gap=G: a run that ends when its model is proven to be near the best there is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedmpi.errors import UserError

if TYPE_CHECKING:
    from fedmpi.run.config import Config

CERTIFIED = ("fedminmax", "centralized")


def can_be_certified(config: Config) -> bool:
    """Whether the problem is strongly convex, and a round has its whole gradient."""
    decays = bool(config.options.get("weight_decay"))
    convex = config.model == "logistic" and config.loss == "cross-entropy" and decays
    whole = not config.options.get("batch_rows") and not config.local_epochs
    return convex and whole and not config.partial and config.method in CERTIFIED


def read_until(until: str | None) -> float | None:
    """The gap at which a run may end, from gap=NUMBER."""
    if until is None:
        return None
    name, _, number = until.partition("=")
    try:
        gap = float(number)
    except ValueError:
        gap = math.nan
    if name != "gap" or not 0 < gap < math.inf:
        raise UserError(f"--until {until}: give a gap above 0, as in --until gap=1e-3.")
    return gap


def check_until(config: Config) -> None:
    """Raise a UserError for --until where there is no certificate to go by."""
    if read_until(config.until) is not None and not can_be_certified(config):
        raise UserError(
            "--until needs a certificate, which there is for --method fedminmax and centralized "
            "with --model logistic, --loss cross-entropy, a --weight-decay above 0, full batches."
        )
