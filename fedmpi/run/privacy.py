"""Options of exact, secret and private sums, and what is refused: --sums, --secure, --dp-epsilon.

    --sums exact      sums of integers: the same bits on any layout (models/fixed_point.py)
    --secure          and masked, so that nobody sees a rank's own (privacy/masks.py)
    --dp-epsilon E    and with noise, so that they tell little of any row (privacy/accountant.py)

Each of them needs those above it, but --dp-epsilon does without --secure. docs/privacy.md says who
sees what with each.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from fedmpi.errors import UserError, unknown_name
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.method import Method
from fedmpi.privacy.graph import too_few

if TYPE_CHECKING:
    from fedmpi.run.config import Config

SUMS = ("float", "exact")
SMALL_GROUPS = ("leave-out", "refuse")
MIN_COUNT = 5
"""Rows that a group needs with --secure, unless the user says otherwise."""
DELTA, CLIP = 1e-5, 4.0
SLOWER = {"lr_mu": 0.1}
"""Step of the adversary with noise, in place of that of `fast`: clipped gradients are shorter, and
the adversary must not outrun theta. This and CLIP were chosen on a fold of Adult's training rows:
with 1 and .3 the worst group was at 1.47 (epsilon 8), with 4 and .1 at .445."""
LOSS_CLIP = {"cross-entropy": 4.0, "brier": 2.0}
"""Defaults of --dp-loss-clip: a Brier score is at most 2."""
OF_DP = ("dp_epsilon", "dp_delta", "dp_clip", "dp_loss_clip", "dp_noise")


def add_privacy_options(p: argparse.ArgumentParser) -> None:
    """Add the options of this module to fedmpi.train's."""
    g = p.add_argument_group("exact, secret and private sums")
    text = "float, or exact: as integers, with the same bits on any layout and with any MPI (float)"
    g.add_argument("--sums", help=text)
    text = "mask what each client rank sends, so that only sums over all of them can be read"
    g.add_argument("--secure", action="store_true", help=text)
    text = "with --secure: the ranks' key files, made by python -m fedmpi.keys (keys of this run "
    text += "alone, exchanged at the start)"
    g.add_argument("--keys", metavar="DIR", help=text)
    text = f"give no risk of a group with fewer rows than M ({MIN_COUNT} with --secure, else off)"
    g.add_argument("--min-count", type=int, metavar="M", help=text)
    text = f"what to do with such a group: {' or '.join(SMALL_GROUPS)} ({SMALL_GROUPS[0]})"
    g.add_argument("--small-groups", metavar="WHAT", help=text)
    text = "differential privacy of rows: the budget epsilon"
    g.add_argument("--dp-epsilon", type=float, metavar="E", help=text)
    g.add_argument("--dp-delta", type=float, metavar="D", help=f"and its delta ({DELTA:g})")
    text = f"largest norm of a row's gradient; longer ones are cut ({CLIP:g})"
    g.add_argument("--dp-clip", type=float, metavar="C", help=text)
    text = "largest loss of a row that is summed (4; 2 for brier)"
    g.add_argument("--dp-loss-clip", type=float, metavar="L", help=text)
    text = "noise multiplier; the run then ends before the budget is passed (what --rounds need)"
    g.add_argument("--dp-noise", type=float, metavar="Z", help=text)


def settle_sums(a: argparse.Namespace) -> None:
    """Settle what is summed, before other defaults are filled in: secret sums are exact ones."""
    if a.sums is not None and a.sums not in SUMS:
        raise unknown_name("--sums", a.sums, SUMS)
    asks = "--secure" if a.secure else "--dp-epsilon" if a.dp_epsilon is not None else None
    if asks and a.sums == "float":
        raise UserError(f"{asks} adds integers: leave --sums float out, or use --sums exact.")
    # Floats are None: so a run from before there were others is known again by its identity.
    a.sums = "exact" if asks or a.sums == "exact" else None


def check_privacy(a: argparse.Namespace, method: type[Method]) -> None:
    """Fill in the defaults of these options, and refuse what cannot be together."""
    _check_numbers(a)
    if a.keys is not None and not a.secure:
        raise UserError("--keys are for the masks of --secure: add it, or leave --keys out.")
    if a.small_groups is not None and a.small_groups not in SMALL_GROUPS:
        raise unknown_name("--small-groups", a.small_groups, SMALL_GROUPS)
    if a.min_count is None and a.secure:
        a.min_count = MIN_COUNT
    if a.small_groups is not None and a.min_count is None:
        raise UserError("--small-groups says what to do below --min-count M: give both.")
    if a.sums == "exact" and (a.device == "cuda" or a.cuda_aware):
        raise UserError(
            "--sums exact, --secure and --dp-epsilon compute on cores, whose order of addition we "
            "know: use --device cpu."
        )
    if a.dp_epsilon is None:
        for name in OF_DP[1:]:
            if getattr(a, name) is not None:
                raise UserError(f"{_flag(name)} does nothing without --dp-epsilon: give both.")
    else:
        _check_private(a, method)


def _check_numbers(a: argparse.Namespace) -> None:
    for name in OF_DP:
        value = getattr(a, name)
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{_flag(name)} {value}: must be a finite number above 0.")
    if a.dp_delta is not None and a.dp_delta >= 1:
        raise UserError(f"--dp-delta {a.dp_delta}: must be below 1, and well below 1 / rows.")
    if a.min_count is not None and a.min_count < 1:
        raise UserError(f"--min-count {a.min_count}: must be at least 1.")


def check_method(config: Config, method: Method, client_ranks: int) -> None:
    """Refuse a method that needs more than exact sums of changes and of losses of groups.

    What a method reports may depend on its options, as TERM's does.
    """
    flag = "--secure" if config.secure else "--sums exact"
    if method.reports in ("clients", "cells") or method.compares_changes:
        what = "changes" if method.compares_changes else "losses"
        raise UserError(
            f"{flag}: --method {config.method} gives the server each client's own {what}, not sums "
            "alone; use fedminmax, centralized or fedavg."
        )
    second_order = method.optimizer.second_order
    if method.scalars or method.vectors or second_order:
        what = f"--optimizer {config.options['optimizer']}" if second_order else config.method
        raise UserError(
            f"{flag} adds changes of theta and losses of groups; {what} sums more than these: use "
            "fedminmax, centralized or fedavg, and sgd, nesterov or adam."
        )
    if method.personal:
        raise UserError(
            f"{flag}: --method {config.method} has models of single clients, which checkpoints and "
            "scores give to the server; use fedminmax, centralized or fedavg."
        )
    if config.secure:
        _check_secure(method, client_ranks)


def _check_secure(method: Method, client_ranks: int) -> None:
    """Refuse methods that tell of single clients, and too few ranks for a mask."""
    name = method.config.method
    if method.single_client:
        raise UserError(f"--secure: --method {name} has one client, so nothing is summed.")
    if method.has_cohorts():
        raise UserError(
            f"--secure: --method {name} sums over cohorts, whose differences tell of single "
            "clients; use a method in which all clients take part."
        )
    if method.has_client_state():
        raise UserError(
            f"--secure: --method {name} keeps state of single clients, which checkpoints tell the "
            "server; use a method without client_state."
        )
    too_few(client_ranks)


def _check_private(a: argparse.Namespace, method: type[Method]) -> None:
    """Refuse what noise does not cover, and fill in the limits of gradients and losses."""
    flag = "--dp-epsilon"
    local = any(getattr(a, name, None) for name in ("local_epochs", "batch_size"))
    if not issubclass(method, FedMinMax) or local:
        raise UserError(
            f"{flag} is for one step a round: --method fedminmax or centralized, without "
            "--local-epochs. FedAvg with one step is fedminmax with --lr-mu 0 --epsilon 0."
        )
    for name, why in (
        ("validate", "the rows held out would be looked at without noise"),
        ("until", "a bound of noisy sums is no bound"),
        ("patience", "the rows held out would be looked at without noise"),
    ):
        if getattr(a, name) is not None:
            raise UserError(f"{flag}: {_flag(name)} is not private, {why}: leave it out.")
    if a.on_client_failure == "continue" and not a.secure:
        raise UserError(
            f"{flag} with --on-client-failure continue needs --secure: a round that is done again "
            "would be told twice."
        )
    a.dp_delta = DELTA if a.dp_delta is None else a.dp_delta
    a.dp_clip = CLIP if a.dp_clip is None else a.dp_clip
    a.dp_loss_clip = LOSS_CLIP[a.loss] if a.dp_loss_clip is None else a.dp_loss_clip


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
