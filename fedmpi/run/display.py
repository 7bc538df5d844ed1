"""What the user sees. Rank 0 alone prints."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from fedmpi.errors import UserError
from fedmpi.mpi.launcher import at_terminal

LINE_EVERY = 10.0


def say(text: str = "") -> None:
    """Print a line at once: the output of mpirun is no terminal, and would be held back."""
    try:
        print(text, flush=True)
    except OSError as error:
        # Python would try again to write what it could not, at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise UserError(f"cannot print: {error.strerror} (where the output goes to).") from None


def warn(text: str) -> None:
    """Print a line on the error stream, in the form of those that end a run."""
    print(f"fedmpi: {text}.", file=sys.stderr, flush=True)


def facts(pairs: dict[str, object]) -> str:
    """Return `name value` pairs as aligned lines."""
    width = max(map(len, pairs))
    shown = {k: ", ".join(v) if isinstance(v, tuple) else v for k, v in pairs.items()}
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in shown.items())


def result_table(result: dict) -> str:
    """Return the table that a run ends with: a line a group, then worst, best and average."""
    groups = result["groups"]
    width = max(len("average"), *map(len, groups))
    metrics = list(next(iter(groups.values())).get("metrics", {}))
    head = ("train rows", "test rows", "test risk", "accuracy", "weight", *metrics)
    lines = ["  ".join([f"{'group':<{width}}", *(f"{h:>10}" for h in head)])]
    for name, g in groups.items():
        numbers = [f"{g['n_train']:>10,}", f"{g['n_test']:>10,}"]
        numbers += [_number(g[key]) for key in ("risk", "accuracy", "weight")]
        numbers += [f"{_number(g['metrics'][key]):>{len(key)}}" for key in metrics]
        lines.append("  ".join([f"{name:<{width}}", *numbers]))
    lines.append("-" * len(lines[0]))
    for name in ("worst", "best", "average"):
        numbers = [" " * 10, " " * 10, _number(result[f"{name}_risk"])]
        numbers += [_number(result[f"{name}_accuracy"])]
        lines.append("  ".join([f"{name:<{width}}", *numbers]))
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return f"{value:>10.4f}" if value is not None else f"{'-':>10}"


class Progress:
    """A bar with the worst group's risk at a terminal; elsewhere a plain line every so often."""

    def __init__(self, kind: str, rounds: int) -> None:
        if kind == "auto":
            kind = "bar" if at_terminal() else "lines"
        self.kind, self.rounds = kind, rounds
        self.began = self.line_at = time.perf_counter()
        self.first: int | None = None
        self.bar = None
        if kind == "bar":
            from tqdm import tqdm

            self.bar = tqdm(total=rounds, unit="round", ncols=100, file=sys.stderr)

    def update(self, t: int, groups: tuple[str, ...], risks: np.ndarray | None) -> None:
        """Show that round `t` is done; `risks` are the last that are known."""
        now = time.perf_counter()
        self.first = self.first or t
        if self.bar is not None:
            if risks is not None and now - self.line_at > 0.5:
                self.line_at = now
                self.bar.set_postfix_str(self._worst(groups, risks), refresh=False)
            self.bar.update(t - self.bar.n)
            if t == self.rounds:
                self.bar.close()
        elif self.kind == "lines" and (now - self.line_at > LINE_EVERY or t in (1, self.rounds)):
            self.line_at = now
            pace = (now - self.began) / (t - self.first + 1)
            left = f", about {pace * (self.rounds - t):,.0f} s left" if t < self.rounds else ""
            worst = f"  {self._worst(groups, risks)}" if risks is not None else ""
            say(f"round {t}/{self.rounds}{worst}  {pace * 1000:.0f} ms a round{left}")

    def close(self) -> None:
        """Leave the bar as it is: what is printed next begins a line."""
        if self.bar is not None:
            self.bar.close()

    @staticmethod
    def _worst(groups: tuple[str, ...], risks: np.ndarray) -> str:
        a = int(np.nanargmax(risks))
        return f"worst {risks[a]:.4f} ({groups[a]})"
