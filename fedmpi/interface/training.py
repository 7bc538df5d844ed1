"""fedmpi.train(...) of the Python interface: the options of the command, as keywords."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmpi.errors import UserError, unknown_name
from fedmpi.interface.run import Run, named

if TYPE_CHECKING:
    from fedmpi.mpi.ranks import Ranks
    from fedmpi.run.config import Config

ONE_AT_A_TIME = threading.Lock()
"""Held while a run trains in this process: MPI is started for the calls of one thread."""


def train(dataset: Any, method: Any = "fedminmax", **options: Any) -> Run | None:
    """Train one model; return the finished Run on rank 0, None on the others.

    `dataset` is a name, csv:FILE, csv:DIR/, or a pandas DataFrame (with target=, group= and maybe
    client=; test= may be a DataFrame, too). `options` are those of `python -m fedmpi.train --help`,
    with _ for -. A class or a function of your own can stand where the command has
    package.module:Class.

    One process needs no mpirun. Under mpirun every rank makes the same call, of which rank 0's
    arguments count. A mistake is a UserError, on all ranks. Without `output` the run is in a
    temporary folder, which goes with the Run; `Run.save` keeps it.
    """
    return train_here(dataset, method, options)


def train_here(
    dataset: Any, method: Any, options: dict[str, Any], alone: bool = False
) -> Run | None:
    """Train on the ranks of the launch, or in this process `alone`; see `train`."""
    from fedmpi.mpi.start import in_a_caller
    from fedmpi.train import carry_out

    temporary = ""

    def read() -> Config:
        nonlocal temporary
        given = {"progress": "none"} | place
        given |= {name: value for name, value in options.items() if value is not None}
        if "output" not in given:
            given["output"] = temporary = tempfile.mkdtemp(prefix="fedmpi-run-")
        return configuration(world, given.pop("dataset", dataset), method, given)

    try:
        with (
            ONE_AT_A_TIME,
            same_threads(),
            in_a_caller(alone) as world,
            frames_placed(world, dataset, options) as place,
        ):
            config = world.on_server(read)
            carry_out(world, config, quiet=True)
        if not world.is_server:
            return None
        return Run(config.output, bool(temporary), config.model)
    except BaseException:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextlib.contextmanager
def same_threads() -> Iterator[None]:
    """Leave a torch that the caller uses with as many threads as it had."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    try:
        yield
    finally:
        if torch:
            torch.set_num_threads(before)


@contextlib.contextmanager
def frames_placed(world: Ranks, dataset: Any, options: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Make a DataFrame of rank 0's a dataset of every host's, for the time of a run.

    Yield the options that say where it is; none if `dataset` is not a DataFrame.
    """
    from fedmpi.data import PLACED
    from fedmpi.mpi.ranks import AgreedError

    tables: dict[str, bytes] = {}

    def write() -> str:
        tables.update(tables_of(dataset, options))
        return tempfile.mkdtemp(prefix="fedmpi-data-") if tables else ""

    if not (folder := Path(world.on_server(write))).name:
        yield {}
        return
    if world.local_size < world.size:  # several hosts
        tables = world.bcast(tables)
    place = {"data_dir": str(folder)}
    try:
        if world.local_rank == 0:
            from fedmpi.data.datasets.frame import Frame

            folder.mkdir(exist_ok=True)
            frame = Frame(folder, **tables)
            PLACED[frame.name], place["dataset"] = frame, frame.name
        yield place
    except AgreedError as error:
        from fedmpi.data.datasets.csvfile import FIRST_LINE

        text = str(error).replace(f"{folder}/frame.csv", "the DataFrame")
        raise type(error)(text.replace(FIRST_LINE, "")) from None
    finally:
        PLACED.pop(place.get("dataset", ""), None)
        if world.local_rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


def tables_of(dataset: Any, options: dict[str, Any]) -> dict[str, bytes]:
    """The DataFrames that a caller gives, as CSV; the `test` frame is taken out of `options`."""
    pandas = sys.modules.get("pandas")  # without which there is no DataFrame
    frames = (pandas.DataFrame,) if pandas else ()
    if not isinstance(dataset, frames):
        if isinstance(options.get("test"), frames):
            raise UserError("test= is a DataFrame, and the dataset is not: give both as frames.")
        return {}
    from fedmpi.data.datasets.frame import as_csv

    for name, example in (("target", '"paid"'), ("group", '"sex" or ["sex", "region"]')):
        if not options.get(name):
            raise UserError(f"a DataFrame needs {name}=, the name of its column(s): {example}.")
    tables = {"content": as_csv(dataset)}
    if isinstance(options.get("test"), frames):
        tables["test"] = as_csv(options.pop("test"))
    return tables


def configuration(world: Ranks, dataset: Any, method: Any, options: dict[str, Any]) -> Config:
    """The checked configuration of a call, or a UserError with the line that the command has."""
    from fedmpi.run.arguments import parser, resolve_options
    from fedmpi.train import check_ranks

    options = {name: named(value) for name, value in options.items()}
    options |= {"dataset": named(dataset), "method": named(method)}
    of_command = parser(options["method"])
    config = resolve_options(
        parsed(of_command, options), len(world.client_ranks), one_process=world.size == 1
    )
    check_ranks(world, config)
    return config


def parsed(of_command: argparse.ArgumentParser, options: dict[str, Any]) -> argparse.Namespace:
    """Options by keyword as the parser of the command gives them."""
    flags = {action.dest: action for action in of_command._actions if action.dest != "help"}
    words, lists = [], {}
    for name, value in options.items():
        if name not in flags:
            raise unknown_name("option", name, flags)
        flag, takes_value = flags[name].option_strings[0], flags[name].nargs != 0
        if isinstance(value, tuple):
            lists[name] = tuple(map(str, value))
            if not all(lists[name]) or len(set(value)) < len(value) or not value:
                raise UserError(f"{flag} {value}: give names, each once.")
        elif takes_value:
            words.append(f"{flag}={value}")
        elif value:
            words.append(flag)
    a = of_command.parse_args(words)
    for name, names in lists.items():
        setattr(a, name, names)
    return a
