"""How a process of a job begins and ends, and what it prints when it ends in an error."""

import io
import math
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from fedmpi.errors import UserError
from fedmpi.mpi import launcher, signals
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import GRACE, SERVER, AgreedError, Ranks

_KEPT: list[socket.socket] = []
_without_finalize = False
tell_instead: Callable[[BaseException], str] | None = None
"""Function from an exception to its line, on a rank whose rows nobody else may see: the exception
may quote these rows."""


def start() -> Ranks:
    """Return all ranks of the launch, once this process is ready for a command of fedmpi's.

    It is ready when the launcher is known to fit the library, signals are listened to, and the
    settings of OpenMP are made: numpy and torch, which are imported after this, read them once.
    """
    world = Ranks(MPI.COMM_WORLD, stall_timeout=math.inf)
    refuse_mismatch(world)
    signals.listen(speaks=world.is_server)
    os.environ.setdefault("OMP_NUM_THREADS", str(world.threads))
    # Threads that wait for each other by spinning take the core from the one that they wait for,
    # if anything else runs on this node: measured in docs/sharp-bits.md.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    return world


@contextmanager
def in_a_caller(alone: bool = False) -> Iterator[Ranks]:
    """All ranks of the launch, for a call from somebody's Python, which goes on afterwards.

    With `alone` it is this process, whatever others there are. In one process nothing of that
    process changes, and errors are the caller's. With several ranks, signals are listened to for
    the time of the call; an AgreedError is raised on all ranks, and any other error, which the
    other ranks would wait for in vain, ends the job.
    """
    world = Ranks(MPI.COMM_SELF if alone else MPI.COMM_WORLD, stall_timeout=math.inf)
    advice = None if alone else launcher.mismatch(world.size, MPI.get_vendor()[0])
    if advice:
        raise AgreedError(advice)
    if world.size == 1:
        yield world
        return
    with signals.listening(speaks=world.is_server):
        try:
            yield world
        except AgreedError:
            raise
        except BaseException as error:
            _abort(error)


def refuse_mismatch(world: Ranks) -> None:
    """End, if a launcher started several processes that do not find each other."""
    advice = launcher.mismatch(world.size, MPI.get_vendor()[0])
    if advice and launcher.process_number() > 0:
        time.sleep(1)  # the first one speaks; a launcher ends them all when one is gone
        sys.exit(AgreedError.code)
    if advice:
        raise AgreedError(advice)


def end_without_finalize() -> None:
    """Let `run` end this process without MPI_Finalize.

    Where a rank has died, or dies just then, Open MPI's waits in it for ever, now and then.
    """
    global _without_finalize
    _without_finalize = True


def died(error: BaseException) -> bool:
    """Return whether `error` says that a rank has died. Most MPIs end the job instead."""
    if not (isinstance(error, MPI.Exception) and launcher.survives_failures()):
        return False
    return error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED)


def run(main: Callable[[], int | None]) -> None:
    """Run `main` so that an exception on any rank ends the whole job, with one message.

    Without this the other ranks would wait for ever in their next collective.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names may have what the locale has not
            stream.reconfigure(errors="backslashreplace")
    try:
        code = main() or 0
        signals.ignore()
    except AgreedError as error:
        signals.ignore()
        if MPI.COMM_WORLD.Get_rank() == SERVER:
            print(f"fedmpi: {error}", file=sys.stderr, flush=True)
        code = error.code
    except SystemExit:
        raise
    except BaseException as error:
        _abort(error)
    if _without_finalize:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _abort(error: BaseException) -> NoReturn:
    """Tell `error`, and end all ranks."""
    code = 130 if isinstance(error, KeyboardInterrupt) else 1
    # The rank that tells must not be killed in the middle of a line, and the launcher takes a
    # moment to pass on what it was told: what it has not read when Abort comes is lost.
    time.sleep(1.0 if _told(error) else GRACE)
    MPI.COMM_WORLD.Abort(code)
    os._exit(code)  # MPICH's Abort may return here before the launcher kills us


def _told(error: BaseException) -> bool:
    """Print `error`, unless another rank on this host does; return whether it was printed."""
    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    if size > 1 and sys.platform == "linux" and not _first_here():
        return False
    where = f"rank {rank} of {size} on {socket.gethostname()}: " if size > 1 else ""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    if died(error):
        text = "another rank of this job has died. Start it again, with --resume if it had saved."
    elif not isinstance(error, UserError | KeyboardInterrupt):
        if tell_instead:
            text = tell_instead(error)
        else:
            traceback.print_exception(error)
    print(f"fedmpi: {where}{text}", file=sys.stderr, flush=True)
    return True


def _first_here() -> bool:
    """Return whether no other rank of this job on this host has called this.

    Ranks of a job have the same parent. The name in Linux's abstract namespace is free again when
    its holder dies, so nothing is left behind.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0fedmpi-{os.getppid()}")
    except OSError:
        return False
    _KEPT.append(claim)
    return True
