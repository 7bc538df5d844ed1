"""Being asked to stop: by USR1, TERM or Ctrl-C.

Within the rounds the request is only noted. Whichever rank the signal came to, all ranks learn of
it in the sum that closes the round (`Exchange.sum_changes`), and stop together, at a checkpoint.
Before the rounds there is nothing to save, and the process ends at once. A second Ctrl-C ends it at
once, too.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPED = 75
"""Exit code of a run that was asked to stop, and can go on: EX_TEMPFAIL of sysexits.h."""

SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)

_in_rounds = False
_asked: signal.Signals | None = None
_speaks = True


def listen(speaks: bool) -> None:
    """Take the signals from now on; `speaks` is true on the rank that prints."""
    global _speaks
    _speaks = speaks
    for signum in SIGNALS:
        signal.signal(signum, _receive)


@contextmanager
def listening(speaks: bool) -> Iterator[None]:
    """Take the signals for a while; then everything is as it was before."""
    global _in_rounds, _asked
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    try:
        listen(speaks)
        yield
    finally:
        _in_rounds, _asked = False, None
        for signum, answer in before.items():
            signal.signal(signum, answer)


def wait_for_the_round() -> None:
    """Only note signals from now on: the ranks stop together, when a round is done."""
    global _in_rounds
    _in_rounds = True


def ignore() -> None:
    """Ignore all signals: the job is about to end in order, and is to keep its exit code.

    A signal may come from srun --kill-on-bad-exit, which ends all ranks when one has ended, or at
    the time limit. While Python takes itself down, our own answer to signals is already gone.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


def asked() -> signal.Signals | None:
    """Return the signal that asked this rank to stop, if one did."""
    return _asked


def _receive(signum: int, frame: FrameType | None) -> None:
    global _asked
    again = signum == _asked == signal.SIGINT
    if _in_rounds and not again:
        if signum == signal.SIGINT:
            _say("Ctrl-C: stopping when this round is saved. Again ends it at once.")
        _asked = _asked or signal.Signals(signum)
        return
    when = "again: ended at once" if again else "before the first round: nothing new to save"
    _say(f"{signal.Signals(signum).name} {when}.")
    os._exit(128 + signum)


def _say(text: str) -> None:
    if _speaks:
        # Not print: the signal may have come in the middle of one.
        os.write(2, f"\nfedmpi: {text}\n".encode())
