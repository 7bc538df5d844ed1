"""Options of the commands that tune, run and compare a grid of methods."""

from __future__ import annotations

import argparse

from fedmpi.errors import UserError
from fedmpi.tune import CRITERIA

BUDGET = 8
AIM = "aim"
"""Value of --tune-by: each method by the risk that it is there to lower."""
LEAST = {"budget": 1, "folds": 2, "at_once": 1}
GRID = (
    *("methods", "settings", "seeds", "local_rounds", "output", "force", "tables_only", "at_once"),
    *("budget", "no_tune", "folds", "criterion", "tune_by", "tune_every_seed"),
)
"""Options that are not those of a run."""


def add_grid_options(p: argparse.ArgumentParser, output: str, methods: str) -> None:
    """Add the options of a grid to those of a run; `methods` are the ones if none is named."""
    from fedmpi.methods import FILES

    g = p.add_argument_group("the grid")
    text = f"of {', '.join(FILES)}; with options of its own as in qfedavg,q=5 ({methods})"
    g.add_argument("--methods", nargs="+", metavar="METHOD", help=text)
    text = "who holds which rows, as ESG, dirichlet:.3, by:COLUMN (ESG PSG SSG)"
    g.add_argument("--settings", nargs="+", metavar="SETTING", help=text)
    g.add_argument("--seeds", nargs="+", type=int, metavar="SEED", help="(0 1 2)")
    g.add_argument("--local-rounds", type=int, metavar="T", help="of methods with local epochs")
    g.add_argument("--output", default=output, metavar="DIR", help="(%(default)s)")
    g.add_argument("--force", action="store_true", help="replace runs of other configurations")
    g.add_argument("--tables-only", action="store_true", help="run nothing")
    g.add_argument("--at-once", type=int, default=1, metavar="N", help="runs at a time (1)")
    g = p.add_argument_group("tuning")
    text = f"configurations that each method tries, its defaults among them ({BUDGET})"
    g.add_argument("--budget", type=int, default=BUDGET, metavar="N", help=text)
    g.add_argument("--no-tune", action="store_true", help="take the defaults of all methods")
    g.add_argument("--folds", type=int, default=3, metavar="N", help="(3)")
    text = "the risk that is compared: of the worst group, or the average (worst)"
    g.add_argument("--criterion", default="worst", help=text)
    text = "the validation risk to be lowest: worst, average, or aim, the one that the method is "
    text += "there to lower (%(default)s)"
    g.add_argument("--tune-by", default=AIM, metavar="CRITERION", help=text)
    text = "choose for each seed by itself, not by the first for all"
    g.add_argument("--tune-every-seed", action="store_true", help=text)


def take_grid_options(a: argparse.Namespace, *others: str) -> argparse.Namespace:
    """Take the options of the grid, and these others, out of `a`, and check them.

    What is left are the options of its runs.
    """
    from fedmpi.methods import all_options

    grid = argparse.Namespace(**{name: vars(a).pop(name) for name in (*GRID, *others)})
    for name in all_options():  # bgl has a --budget, too, which a variant can still set
        vars(a).setdefault(name, None)
    a.method = a.setting = a.seed = a.fold = a.tuned = a.output = None
    a.resume, a.force, a.on_client_failure = False, False, "end"
    if grid.criterion not in CRITERIA:
        raise UserError(f"--criterion {grid.criterion}: must be {' or '.join(CRITERIA)}.")
    if grid.tune_by not in (AIM, *CRITERIA):
        raise UserError(f"--tune-by {grid.tune_by}: must be {AIM}, {' or '.join(CRITERIA)}.")
    for name, least in LEAST.items():
        if getattr(grid, name) < least:
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} {getattr(grid, name)}: must be at least {least}.")
    return grid
