"""Run a job under its launcher, say which clients were lost if it dies, and try again.

    python -m fedmpi.run.supervise --retries 3 -- \\
        mpirun -n 41 python -m fedmpi.train --dataset adult

The launcher's output is passed on as it comes, and so are USR1, TERM, Ctrl-C and Ctrl-Z to the
launcher. Exit codes are the launcher's. A job in which a rank died, that stalled or that
raised an exception is started again from its checkpoint, at most --retries times; a job that was
refused (2) or asked to stop (75) is not.
"""

import argparse
import contextlib
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

from fedmpi.errors import UserError
from fedmpi.mpi.launcher import resumed
from fedmpi.mpi.signals import STOPPED
from fedmpi.run import lost_ranks

REFUSED = 2
PASSED_ON = ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
LOOK_EVERY = 0.1
LOOK_FOR_RANKS_EVERY = 0.02
"""Seconds between looks for ranks.json. Few: a rank that dies before we have seen its process
cannot be told from the others."""
CLOCK_TICK = 0.02
"""Seconds by which a file may look older than it is: its time is that of the kernel's last
tick. A file of the try before is older than that."""
GRACE = 20
"""Seconds that a launcher has to end after its ranks. Open MPI's waits for ever for a host that
cannot be reached any more."""
NOT_UP = "PMIx server's listener thread failed to start"
"""Words of Open MPI's mpirun when it has started nothing: in $TMPDIR there is a folder named by its
PID, which an mpirun that was killed has left there. It removes that folder, and the next mpirun
starts."""
STARTS = 3
KEPT = 1 << 16
"""Bytes of a launcher's last words that are looked at."""


class Supervisor:
    """Runner of one command, until it ends well or there are no more retries."""

    def __init__(self, command: list[str], retries: int) -> None:
        self.command, self.retries = command, retries
        self.shown = os.environ.get("FEDMPI_COMMAND") or shlex.join(command)
        self.folder = run_folder(command)
        self.began = time.time()
        self.job: subprocess.Popen | None = None
        self.asked: signal.Signals | None = None

    def run(self) -> int:
        """Run the command; return the exit code of the last try."""
        for name in PASSED_ON:
            signal.signal(getattr(signal, name), self._pass_on)
        signal.signal(signal.SIGTSTP, self._suspend)
        code = self._try(self.command)
        for left in reversed(range(self.retries)):
            if code in (0, REFUSED, STOPPED) or self.asked:
                break
            again = self._again()
            say(f"trying again, {left} more after this: {shlex.join(again)}")
            code = self._try(again)
        return code

    def _try(self, command: list[str]) -> int:
        """Return the exit code of one try; a launcher that does not come up itself is no try."""
        for left in reversed(range(STARTS)):
            code, said, witness = self._launch(command)
            if not left or witness.began or self.asked or NOT_UP not in said:
                break
            say("the launcher did not come up: starting it again")
        if code not in (0, REFUSED, STOPPED):
            self._explain(said, witness)
        return code

    def _launch(self, command: list[str]) -> tuple[int, str, "Witness"]:
        """Return the exit code of the launcher, what was said, and what was seen."""
        environment = os.environ | {"FEDMPI_COMMAND": self.shown}
        if sys.stderr.isatty():
            environment["FEDMPI_TERMINAL"] = "1"
        witness = Witness(self.folder)
        try:
            # In a session of its own: the terminal's Ctrl-C comes to us alone, and is passed on.
            self.job = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            say(f"cannot run {command[0]}: {error.strerror}")
            witness.join()
            return REFUSED, "", witness
        witness.launcher = self.job.pid
        heard = [Heard(self.job.stdout, sys.stdout), Heard(self.job.stderr, sys.stderr)]
        code = self.job.wait()
        for stream in heard:
            stream.join(timeout=5)
        witness.join(timeout=5)
        code = 128 - code if code < 0 else code
        if (
            code == 0
            and witness.began
            and self.folder
            and (self.folder / lost_ranks.RANKS).exists()
        ):
            code = 1  # the run is not done, whatever the launcher says: Open MPI's has said 0
        return code, "\n".join(stream.text for stream in heard), witness

    def _explain(self, said: str, witness: "Witness") -> None:
        """Say who died, unless a rank has said itself what happened; and how to go on."""
        if self.folder is None or not witness.began:
            return
        if self.asked:
            say(f"{self.asked.name}: this launcher ended its ranks before they could save")
        elif not re.search(r"^fedmpi: rank \d+ of", said, re.MULTILINE):
            who = lost_ranks.who(self.folder, said, witness.first)
            say(f"lost {who}" if who else "the launcher ended without naming a rank")
        print(f"fedmpi: {lost_ranks.how_to_go_on(self.folder)}", file=sys.stderr, flush=True)

    def _again(self) -> list[str]:
        """Return the command of a retry: from the checkpoint, if that is this job's."""
        age = lost_ranks.checkpoint_age(self.folder) if self.folder else None
        ours = age is not None and ("--resume" in self.command or time.time() - age >= self.began)
        return shlex.split(resumed(shlex.join(self.command))) if ours else self.command

    def _pass_on(self, signum: int, frame: object) -> None:
        self.asked = signal.Signals(signum)
        if self.job is not None and self.job.returncode is None:
            self.job.send_signal(signum)
        else:
            sys.exit(128 + signum)

    def _suspend(self, signum: int, frame: object) -> None:
        """Stop the job with us at Ctrl-Z, and let it go on with us."""
        if self.job is not None:
            self.job.send_signal(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGSTOP)
        if self.job is not None:
            self.job.send_signal(signal.SIGCONT)


class Witness(threading.Thread):
    """Thread that sees which rank's process on this host ends first: MPICH's mpirun does not tell.

    The other processes are killed within milliseconds, but the kernel queues the ends in their
    order. A launcher that goes on when all processes have ended is ended, too.
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__(daemon=True)
        self.folder, self.since = folder, time.time()
        self.first: int | None = None
        self.launcher: int | None = None
        """Process of the launcher, the first of its group."""
        self.began = False
        """True once the ranks have written down who they are."""
        self.done = threading.Event()
        if folder is not None:
            self.start()

    def join(self, timeout: float | None = None) -> None:
        """Stop looking, since the launcher has ended."""
        self.done.set()
        if self.folder is not None:
            super().join(timeout)

    def run(self) -> None:
        assert self.folder is not None
        there = self.folder / lost_ranks.RANKS
        while not self._is_there(there):
            # Once more at the end: ranks may have begun and died since the last look.
            if self.done.wait(LOOK_FOR_RANKS_EVERY) and not self._is_there(there):
                return
        self.began = True
        if not hasattr(os, "pidfd_open"):
            return
        here = [
            r["pid"]
            for r in lost_ranks.read_ranks(self.folder)
            if r["host"] == socket.gethostname()
        ]
        if here and self._see_them_end(here) and not self.done.wait(GRACE):
            self._end_launcher()

    def _see_them_end(self, here: list[int]) -> bool:
        """Note which of these processes ends first; return whether all end before the launcher."""
        ends = select.epoll()
        running, gone = {}, []
        for pid in here:
            try:
                running[end := os.pidfd_open(pid)] = pid
                ends.register(end, select.EPOLLIN)
            except ProcessLookupError:
                gone.append(pid)
            except OSError:
                return False
        # Of several that had ended before we looked the first is unknown: the launcher may know.
        if len(gone) == 1:
            (self.first,) = gone
        while running:
            last_look = self.done.is_set()
            for end, _ in ends.poll(LOOK_EVERY, maxevents=1):
                gone.append(running.pop(end))
                os.close(end)
                self.first = gone[0] if len(gone) == 1 else self.first
            if last_look:
                break
        for end in running:
            os.close(end)
        return not running

    def _end_launcher(self) -> None:
        assert self.launcher
        say(f"the ranks of this host ended {GRACE} s ago, the launcher did not: it is killed")
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.launcher, signum)
            if self.done.wait(GRACE / 4):
                return

    def _is_there(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            return path.stat().st_mtime >= self.since - CLOCK_TICK
        return False


class Heard(threading.Thread):
    """Thread that passes a stream on, and remembers the end of it."""

    def __init__(self, source: IO[bytes] | None, to: IO[str]) -> None:
        super().__init__(daemon=True)
        assert source is not None
        self.source, self.to, self.end = source, to, b""
        self.start()

    @property
    def text(self) -> str:
        return self.end.decode(errors="replace")

    def run(self) -> None:
        while chunk := os.read(self.source.fileno(), KEPT):
            self.end = (self.end + chunk)[-KEPT:]
            self.to.buffer.write(chunk)  # type: ignore[attr-defined]
            self.to.flush()


def say(text: str) -> None:
    print(f"fedmpi: {text}.", file=sys.stderr, flush=True)


def run_folder(command: list[str]) -> Path | None:
    """Return the folder of this command line's run; None if that cannot be told."""
    from fedmpi.run.arguments import resolve

    if "fedmpi.train" not in command:
        return None
    options = command[command.index("fedmpi.train") + 1 :]
    if {"-h", "--help"} & set(options):
        return None
    try:
        return Path(resolve(options, client_ranks=1, one_process=False).output)
    except (UserError, SystemExit):
        return None  # train itself says what is wrong


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fedmpi.run.supervise",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--retries", type=int, default=0, metavar="N", help="(0)")
    parser.add_argument("command", nargs="+", help="-- mpirun ... python -m fedmpi.train ...")
    a = parser.parse_args(argv)
    if a.retries < 0:
        print(f"fedmpi: --retries {a.retries}: must be at least 0.", file=sys.stderr)
        return REFUSED
    return Supervisor(a.command, a.retries).run()


if __name__ == "__main__":
    sys.exit(main())
