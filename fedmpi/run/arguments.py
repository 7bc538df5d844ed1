"""The command line of fedmpi.train: what can be set, the defaults, and what is refused.

Everything is checked here, once, on the server, before anything heavy is imported or loaded.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path

from fedmpi import data as datasets
from fedmpi import methods, models
from fedmpi.data.dataset import Dataset, Preset
from fedmpi.data.datasets.census import STATES, chosen_states
from fedmpi.data.options import NAMES as DATA_NAMES
from fedmpi.data.options import DataOptions, add_data_options, names_of_list, options_from
from fedmpi.data.partition import OWNED, SETTINGS
from fedmpi.data.settings import NAMES as SETTING_NAMES
from fedmpi.data.settings import canonical, column_of, in_a_path
from fedmpi.data.splits import read_fold
from fedmpi.errors import UserError, unknown_name
from fedmpi.methods import optimizer
from fedmpi.methods.attribute import check_groups
from fedmpi.methods.method import Method
from fedmpi.methods.option import LARGEST, LOCAL_TRAINING
from fedmpi.run.checkpoint import parse_every
from fedmpi.run.config import Config
from fedmpi.run.logs import LOGS
from fedmpi.run.logs import find as find_logs
from fedmpi.run.participation import NAMES as COHORT_NAMES
from fedmpi.run.participation import settle_participation
from fedmpi.run.privacy import (
    SLOWER,
    add_privacy_options,
    check_method,
    check_privacy,
    settle_sums,
)
from fedmpi.run.solver import SOLVERS, bundle, check_newton
from fedmpi.run.tuned import apply_tuned
from fedmpi.run.until import check_until

LOSSES = ("cross-entropy", "brier")
REDUCTIONS = ("auto", "flat", "hierarchical", "measure")
BALANCES = ("rows", "speed")
ON_CLIENT_FAILURE = ("end", "continue")
DEFAULT_CLIENTS = 40
REPLICATES = 1000
"""Default of --bootstrap."""
MOST_REPLICATES = 100_000
LARGEST_SEED = 2**63 - 1
UNASKED = {"options", "data", "auto_decay", "available", "counted"}
FIELDS = {field.name for field in dataclasses.fields(Config)} - UNASKED
DATA_OPTIONS = tuple(name for name in DATA_NAMES if name != "seed")


class Parser(argparse.ArgumentParser):
    """Parser of argparse's, whose complaints are UserErrors."""

    def error(self, message: str):  # type: ignore[override]
        raise UserError(f"{message}. See {self.prog} --help.")


def method_in(arguments: list[str]) -> str:
    """The --method of a command line that has not been checked yet; "" if there is none."""
    p = Parser(add_help=False, allow_abbrev=False)
    p.add_argument("--method", nargs="?", default="")
    return p.parse_known_args(arguments)[0].method or ""


def parser(method: str = "") -> argparse.ArgumentParser:
    """Return a parser with fedmpi.train's options and those that the user's own `method` declares.

    Defaults that depend on the dataset are None here.
    """
    p = Parser(
        prog="python -m fedmpi.train",
        description="Train one model with one method, over the ranks of an MPI job.",
        epilog="Where a default is not shown, the dataset's preset decides; the resolved "
        "configuration is printed at the start.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=100),
    )
    g = p.add_argument_group("what to train")
    text = "a name of `fedmpi.data list`, csv:FILE, csv:DIR/ with a file of each owner, or "
    text += "package.module:Class"
    g.add_argument("--dataset", required=True, help=text)
    text = f"who holds which rows: {', '.join(SETTING_NAMES)} (ESG)"
    g.add_argument("--setting", help=text)
    g.add_argument(
        "--method",
        default="fedminmax",
        help=f"{', '.join(methods.FILES)}, or package.module:Class (fedminmax)",
    )
    g.add_argument("--clients", type=int, help="K (as many as client ranks; 40 in one process)")
    g.add_argument("--model", help=f"{', '.join(models.MODELS)}, or package.module:function")
    g.add_argument("--loss", help=", ".join(LOSSES))
    g.add_argument("--seed", type=int, default=0, help="(0)")
    g = p.add_argument_group("the method")
    g.add_argument("--rounds", type=int, help="T")
    g.add_argument("--lr", type=float, help="step size of theta")
    if ":" in method:
        refuse_taken_flags(method)
    for option in methods.all_options(method).values():
        g.add_argument(option.flag, type=option.type, help=option.help or None)
    text = "how methods with one step a round step: fast (few, long steps) or paper (the fixed "
    text += "steps of Algorithm 1, to compare with the paper) (fast)"
    g.add_argument("--solver", default="fast", help=text)
    text = "end when the model is proven to be that near to the best: gap=1e-3; for convex models"
    g.add_argument("--until", metavar="gap=G", help=text)
    g.add_argument("--tuned", metavar="FILE", help="take what fedmpi.tune chose, if not given here")
    g = p.add_argument_group("the data")
    g.add_argument("--skew", type=float, help="Dirichlet C of client sizes (50)")
    for split in ("train", "test"):
        text = f"{split} on N rows, of every group its share"
        g.add_argument(f"--limit-{split}", type=int, metavar="N", help=text)
    g.add_argument(
        "--fold",
        metavar="I/N",
        help="cut the training rows into N parts; train on the others, test on part I",
    )
    text = "hold this share of each group's training rows out; report the model of the round whose "
    text += "worst group does best on them"
    g.add_argument("--validate", type=float, metavar="SHARE", help=text)
    text = "with --validate: end when that has not improved for N rounds"
    g.add_argument("--patience", type=int, metavar="N", help=text)
    add_data_options(g)
    g = p.add_argument_group("the run")
    g.add_argument("--output", help="(runs/<dataset>-<setting>-<method>-s<seed>)")
    text = "further figures of groups: auc, calibration, odds, opportunity, parity, or "
    text += "package.module:Class[,...]; with --validate also in history.csv"
    g.add_argument("--metrics", type=names_of_list, metavar="NAMES", help=text)
    text = f"follow the run in {', '.join(LOGS)}, or package.module:Class[,...]"
    g.add_argument("--log", type=names_of_list, metavar="LOG", help=text)
    text = "replicates of the test rows, for intervals and paired tests; 0 for none "
    text += f"({REPLICATES}; none with --fold, csv:DIR/, --secure, --min-count, --dp-epsilon)"
    g.add_argument("--bootstrap", type=int, metavar="B", help=text)
    g.add_argument("--eval-every", type=int, help="rounds between rows of history.csv (T/100)")
    text = "rounds, or a time as 10m, between checkpoints (as costs less than 2%% of the time)"
    g.add_argument("--checkpoint-every", default="auto", metavar="N", help=text)
    g.add_argument("--resume", action="store_true", help="go on from the checkpoint in --output")
    g.add_argument("--force", action="store_true", help="replace the run that is in --output")
    g.add_argument("--device", default="auto", help="auto, cpu or cuda (auto)")
    g.add_argument("--dtype", default="float32", help="float32 or float64 (float32)")
    text = "bfloat16: products of training passes in it, for convolutions on a CPU or GPU that "
    text += "can; theta and all that is added up stay in --dtype"
    g.add_argument("--autocast", metavar="TYPE", help=text)
    g.add_argument(
        "--micro-batch", type=int, help="rows of one pass (as suits the model and the cache)"
    )
    g.add_argument("--stall-timeout", type=float, default=600.0, help="seconds (600)")
    text = "end, or continue with the others: needs Open MPI's mpirun --with-ft ulfm (end)"
    g.add_argument("--on-client-failure", default="end", metavar="WHAT", help=text)
    text = "how changes of theta are summed: flat; hierarchical, within hosts first; measure, the "
    text += "faster of these; auto, by a rule (auto)"
    g.add_argument("--reduce", default="auto", help=text)
    text = "let MPI sum on the GPUs: needs an MPI that was built for it"
    g.add_argument("--cuda-aware", action="store_true", help=text)
    text = "clients to ranks by rows, or by rows and the measured speed of each rank (rows)"
    g.add_argument("--balance", default="rows", help=text)
    g.add_argument("--progress", default="auto", help="auto, bar, lines or none (auto)")
    add_privacy_options(p)
    return p


def refuse_taken_flags(method: str) -> None:
    """Raise a UserError for an option of the user's method that is a flag of fedmpi already."""
    found = methods.find(method)
    of_step = found.all_options()[len(found.options) :]
    taken = FIELDS | {option.name for option in of_step}
    for option in found.options:
        if option.name in taken:
            raise UserError(
                f"--method {method}: its option {option.name!r} is a flag of fedmpi already: "
                "choose another name."
            )


class Refused(argparse.Action):
    """Action that refuses an option of fedmpi.train which another program has no use for."""

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[override]
        parser.error(f"{option_string} is not for {parser.prog.rpartition('.')[2]}: {self.const}")


def parser_of(
    prog: str, description: str, instead: dict[str, str], method: str = ""
) -> argparse.ArgumentParser:
    """Return a parser of many runs on one dataset, which is its first word."""
    p = parser_without(prog, description, instead, method)
    p.add_argument("dataset", metavar="DATASET", help="a name of `fedmpi.data list`, or csv:FILE")
    return p


def parser_without(
    prog: str, description: str, instead: dict[str, str], method: str = ""
) -> argparse.ArgumentParser:
    """Return a parser of fedmpi.train's options but those of `instead`, which says what to use."""
    p = Parser(
        prog=prog,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[parser(method)],
        conflict_handler="resolve",
        allow_abbrev=False,
    )
    for name, hint in instead.items():
        p.add_argument(
            name,
            action=Refused,
            nargs="*",
            const=hint,
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )
    return p


def resolve(arguments: list[str], client_ranks: int, one_process: bool) -> Config:
    """Return the checked configuration of `arguments` for this many ranks, or raise a UserError."""
    given = parser(method_in(arguments)).parse_args(arguments)
    return resolve_options(given, client_ranks, one_process)


def resolve_options(a: argparse.Namespace, client_ranks: int, one_process: bool) -> Config:
    """Return the checked configuration of options that have been parsed; fill in `a`."""
    if a.tuned:
        apply_tuned(a)
    if a.solver not in SOLVERS:
        raise unknown_name("--solver", a.solver, SOLVERS)
    dataset, method = datasets.find(a.dataset), methods.find(a.method)
    a.dataset = dataset.name
    for option in method.all_options():  # of a grid of methods, the parser may not know all
        vars(a).setdefault(option.name, None)
    _settle(a, dataset, method)
    settle_sums(a)
    if method.single_client:
        a.clients = 1
    elif a.clients is None and a.setting != OWNED and not column_of(a.setting):
        a.clients = DEFAULT_CLIENTS if one_process else client_ranks
    settle_participation(a, method)
    given = {name for name, value in vars(a).items() if value is not None}
    _fill_in(a, dataset.preset, method, given)
    _check_uses(a, dataset, method)
    if method.needs_attribute:
        check_groups(a.method, dataset, options_from(a))
    _check_names(a)
    _check_ranges(a)
    find_logs(a.log)
    for option in method.all_options():
        if getattr(a, option.name) is not None:
            option.check(getattr(a, option.name))
    if local_epochs(a) and getattr(a, "batch_rows", None) is not None:
        raise UserError(
            "--batch-rows is for one step a round, --local-epochs and --batch-size are for many: "
            "give one of them."
        )
    check_newton(a, method, given)
    _check_autocast(a)
    check_privacy(a, method)
    _settle_bootstrap(a)
    optimizer.check({o.name: getattr(a, o.name) for o in optimizer.STEP_OPTIONS}, local_epochs(a))
    if a.fold:
        read_fold(a.fold)
        if a.limit_test is not None:
            raise UserError("--limit-test does nothing with --fold: leave it out.")
    for name in ("output", "data_dir"):
        if getattr(a, name) == "":
            raise UserError(f"{_flag(name)} '': name a folder; . is the one you are in.")
    if a.states is not None:
        # As the Census writes them: ma and MA are the same run.
        states = chosen_states(a.states)
        a.states = ("all",) if len(states) == len(STATES) else states
    if a.dataset.startswith("csv:") and not (a.target and a.group):
        missing = "--group COL[,COL...]" if a.target else "--target COL"
        raise UserError(f"{a.dataset} needs {missing}: which column(s) of the file it is.")
    if a.resume and a.force:
        raise UserError("--resume goes on with a run, --force starts it over: give one of them.")
    if a.cuda_aware and (a.device == "cpu" or a.reduce in ("hierarchical", "measure")):
        other = "--device cpu" if a.device == "cpu" else f"--reduce {a.reduce}"
        raise UserError(f"--cuda-aware sums on the GPUs, {other} does not: give one of them.")
    if a.balance == "speed" and a.setting == OWNED and not a.client:
        raise UserError(f"--balance speed: the rows of {a.dataset} stay with their owners' ranks.")
    few = a.clients is not None and a.clients < client_ranks
    if few and not method.single_client and a.setting != OWNED:
        raise UserError(
            f"{client_ranks} client ranks but only {a.clients} clients: a rank would have nothing "
            f"to do. Use mpirun -n {a.clients + 1}, or --clients {client_ranks} or more."
        )
    if a.output is None:
        setting = "" if method.single_client else f"-{in_a_path(a.setting)}"
        fold = f"-fold{a.fold.replace('/', 'of')}" if a.fold else ""
        name = f"{short_name(a.dataset)}{setting}-{a.method.rpartition(':')[2]}-s{a.seed}{fold}"
        a.output = f"runs/{name}"
    if a.until is not None and a.average is None:
        a.average = "last"  # the theta that is certified
    options = {option.name: getattr(a, option.name) for option in method.all_options()}
    others = {name: value for name, value in vars(a).items() if name in FIELDS}
    config = Config(**others, options=options, available=a.available)
    check_until(config)
    if config.sums == "exact":
        check_method(config, method(config), client_ranks)
    return config


def _settle(a: argparse.Namespace, dataset: Dataset, method: type[Method]) -> None:
    """Decide who holds which rows: by a setting, or as the data say."""
    if not dataset.owned(DataOptions(client=a.client)):
        a.setting = canonical(a.setting or "ESG")
        if a.setting in SETTINGS:
            a.skew = 50.0 if a.skew is None else a.skew
        elif a.skew is not None:
            raise UserError(f"--skew is of PSG and SSG, and does nothing with {a.setting}.")
        return
    if method.single_client and not a.client:
        raise UserError(
            f"--method {a.method} needs all rows in one place, and {a.dataset} has them apart."
        )
    who = f"--client {a.client}" if a.client else a.dataset
    for name in ("setting", "skew", "limit_train", "limit_test", "fold"):
        if getattr(a, name) is not None:
            raise UserError(f"{_flag(name)} is not for data where {who} says who holds which rows.")
    a.setting = OWNED


def _check_autocast(a: argparse.Namespace) -> None:
    """Refuse --autocast with options whose passes are in --dtype."""
    for there, what in (
        (a.dtype == "float64", "--dtype float64"),
        (a.dp_epsilon is not None, "--dp-epsilon, whose limits are of gradients in --dtype"),
        (a.model in models.PERCEPTRONS, f"--model {a.model}, whose passes are written by hand"),
    ):
        if a.autocast and there:
            raise UserError(f"--autocast {a.autocast} is not for {what}: leave one of them out.")


def _settle_bootstrap(a: argparse.Namespace) -> None:
    """Fill in --bootstrap, which tells more of each test row than other sums: see docs/privacy.md.

    Who asks for sums that tell little gets none unasked; --secure and --min-count refuse them.
    """
    apart = a.dataset.endswith("/")
    if a.bootstrap is None:
        hidden = apart or a.secure or a.min_count is not None or a.dp_epsilon is not None
        a.bootstrap = 0 if hidden or a.fold else REPLICATES
    if not 0 <= a.bootstrap <= MOST_REPLICATES or a.bootstrap == 1:
        raise UserError(
            f"--bootstrap {a.bootstrap}: must be 0, for none, or from 2 to {MOST_REPLICATES:,}."
        )
    asks = "--secure" if a.secure else "--min-count" if a.min_count is not None else None
    if asks and a.bootstrap:
        raise UserError(
            f"--bootstrap {a.bootstrap}: its sums tell the losses of single rows, which {asks} is "
            "to hide: leave one of them out."
        )


def short_name(dataset: str) -> str:
    """The dataset's name in the name of a folder."""
    kind, _, rest = dataset.partition(":")
    return f"csv-{Path(rest).stem}" if kind == "csv" else rest or kind


def _fill_in(a: argparse.Namespace, preset: Preset, method: type[Method], given: set[str]) -> None:
    """Fill in the defaults: the dataset's preset, and the method's own where the paper has none."""
    local = method.trains_locally or local_epochs(a)
    defaults = {
        "model": preset.model,
        "loss": preset.loss,
        "lr": preset.lr,
        "rounds": preset.local_rounds if local else preset.rounds,
    }
    for option in method.all_options():
        if method.sets_by_itself(option):
            defaults[option.name] = option.default_for(preset)
        elif local:  # FedMinMax, if the user asks for it
            defaults[option.name] = 1 if option.name == "local_epochs" else option.default
    if not local:
        model, loss = a.model or preset.model, a.loss or preset.loss
        # Newton's step sums more than a change of theta, of which exact sums know the limits, and
        # is of all clients, as are batches of the federation.
        partial = any(getattr(a, name) is not None for name in COHORT_NAMES)
        by_gradient = {"optimizer"} if a.sums == "exact" or partial else set()
        of_solver = bundle(a.solver, model, loss, method, given | by_gradient, preset.rounds)
        defaults |= of_solver | ({"batch_rows": None} if partial else {})
        if a.dp_epsilon is not None and a.solver == "fast":
            defaults |= SLOWER
    for name, value in defaults.items():
        if getattr(a, name) is None:
            setattr(a, name, value)
    a.eval_every = max(1, a.rounds // 100) if a.eval_every is None else a.eval_every


def local_epochs(a: argparse.Namespace) -> bool:
    """Whether clients train local epochs, by what was given or filled in."""
    return any(getattr(a, option.name, None) is not None for option in LOCAL_TRAINING)


def _check_uses(a: argparse.Namespace, dataset: Dataset, method: type[Method]) -> None:
    """Refuse an option that would do nothing: it is a slip, or a misunderstanding."""
    for name in methods.all_options():
        if getattr(a, name) is not None and not method.option(name):
            raise UserError(f"{_flag(name)} does nothing with --method {a.method}: leave it out.")
    for name in DATA_OPTIONS:
        if getattr(a, name) is not None and name not in dataset.uses:
            raise UserError(f"{_flag(name)} does nothing with --dataset {a.dataset}: leave it out.")


def _check_names(a: argparse.Namespace) -> None:
    """Refuse names that do not exist, each with the nearest name that does."""
    allowed = {
        "loss": LOSSES,
        "device": ("auto", "cpu", "cuda"),
        "dtype": ("float32", "float64"),
        "autocast": ("bfloat16",),
        "reduce": REDUCTIONS,
        "balance": BALANCES,
        "progress": ("auto", "bar", "lines", "none"),
        "on_client_failure": ON_CLIENT_FAILURE,
    }
    models.check_name(a.model)
    for name, names in allowed.items():
        given = getattr(a, name)
        if given is not None and given not in names:
            raise unknown_name(_flag(name), given, names)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_ranges(a: argparse.Namespace) -> None:
    """Refuse numbers that cannot be meant, each with what is allowed."""
    at_least = {
        "clients": 1,
        "rounds": 1,
        "rows": 1,
        "limit_train": 1,
        "limit_test": 1,
        "min_group_rows": 1,
        "min_value_rows": 1,
        "merge_small": 1,
        "micro_batch": 1,
        "eval_every": 1,
        "patience": 1,
        "seed": 0,
    }
    above_zero = ("lr", "skew", "stall_timeout")
    for name, low in at_least.items():
        value = getattr(a, name)
        if value is not None and not low <= value < math.inf:
            number = "" if math.isfinite(value) else "a finite number, "
            raise UserError(f"{_flag(name)} {value}: must be {number}at least {low}.")
        most = LARGEST_SEED if name == "seed" else LARGEST
        if isinstance(value, int) and value > most:
            raise UserError(f"{_flag(name)} {value}: must be at most {most}.")
    for name in above_zero:
        value = getattr(a, name)
        if value is not None and not 0 < value < math.inf:
            number = "" if math.isfinite(value) else "a finite number "
            raise UserError(f"{_flag(name)} {value}: must be {number}above 0.")
    if a.validate is not None and not 0 < a.validate < 1:
        share = "a share of the rows above 0 and below 1, as .2"
        raise UserError(f"--validate {a.validate}: must be {share}.")
    if a.patience is not None and a.validate is None:
        raise UserError("--patience needs --validate SHARE, by which it is told when to end.")
    parse_every(a.checkpoint_every)
