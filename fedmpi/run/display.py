"""What the user sees. Rank 0 alone prints."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from fedmpi.errors import UserError
from fedmpi.intervals import FEW
from fedmpi.mpi.launcher import at_terminal

LINE_EVERY = 10.0
BETWEEN = "95% between"


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
    groups, rows = result["groups"], _summary(result)
    width = max(*map(len, ["group", *groups]), *(len(name) - 2 * 12 for name, _ in rows))
    metrics = [
        name
        for name in next(iter(groups.values())).get("metrics", {})
        if any(_is_known(g["metrics"][name]) for g in groups.values())
    ]
    head = ("train rows", "test rows", "test risk", BETWEEN, "accuracy", BETWEEN, "weight")
    lines = ["  ".join([f"{'group':<{width}}", *(f"{h:>10}" for h in (*head, *metrics))])]
    for name, g in groups.items():
        numbers = [
            f"{g['n_train']:>10,}",
            f"{g['n_test']:>10,}",
            *_figures(g),
            _number(g["weight"]),
        ]
        numbers += [f"{_number(g['metrics'][key]):>{len(key)}}" for key in metrics]
        lines.append("  ".join([f"{name:<{width}}", *numbers]))
    lines.append("-" * len(lines[0]))
    for name, numbers in rows:
        lines.append("  ".join([f"{name:<{width + 2 * 12}}", *numbers]).rstrip())
    if len(groups) > 1 and result.get("worst_accuracy_interval"):
        lines.append("the intervals of worst hold for all groups at once")
    if told := result.get("metrics"):
        lines += ["", *metric_lines(told, by_value=len(told["values"]) < len(groups))]
    return "\n".join([*lines, *_few(groups)])


def personal_table(personal: dict) -> str:
    """Return the table of the clients' own models, beside the global model on the same rows."""
    groups = personal["groups"]
    width = max(map(len, ["group", *groups]))
    head = (f"{personal['rows']} rows", "own risk", "global", "own acc.", "global")
    lines = [
        f"the clients' own models, each on its client's {personal['rows']} rows:",
        "  ".join([f"{'group':<{width}}", *(f"{h:>10}" for h in head)]),
    ]
    for name, g in groups.items():
        figures = (g[key] for key in ("risk", "global_risk", "accuracy", "global_accuracy"))
        lines.append("  ".join([f"{name:<{width}}", f"{g['rows']:>10,}", *map(_number, figures)]))
    return "\n".join(lines)


def metric_lines(told: dict, by_value: bool) -> list[str]:
    """Lines of --metrics: the figures of each value, if asked for, and the numbers over values."""
    lines = []
    if by_value:
        rows = {**told["values"], "all": told["all"]}
        width = max(map(len, (told["by"], *rows)))
        names = list(told["all"])
        lines.append("  ".join([f"{told['by']:<{width}}", *(f"{name:>10}" for name in names)]))
        for value, figures in rows.items():
            numbers = [f"{_number(figures[name]):>{max(10, len(name))}}" for name in names]
            lines.append("  ".join([f"{value:<{width}}", *numbers]))
    width = max(map(len, told["over_values"]), default=0)
    lines += [f"{name:<{width}}  {_number(x)}" for name, x in told["over_values"].items()]
    return lines


def extreme(groups: dict[str, dict], kind: str, of: str) -> str:
    """Name of the `kind` ("worst" or "best") group by risk or accuracy; "" if no group has any."""
    known = {name: g[of] for name, g in groups.items() if _is_known(g[of])}
    pick = max if (kind == "worst") == (of == "risk") else min
    return pick(known, key=lambda name: known[name], default="")


def _summary(result: dict) -> list[tuple[str, list[str]]]:
    """Lines below the groups, a name and figures each: one line where both are of one group."""
    lines = []
    for kind in ("worst", "best"):
        of = {what: extreme(result["groups"], kind, what) for what in ("risk", "accuracy")}
        figures = {what: result[f"{kind}_{what}"] for what in of}
        figures |= {f"{what}_interval": result.get(f"{kind}_{what}_interval") for what in of}
        if of["risk"] == of["accuracy"]:
            lines.append((f"{kind}: {of['risk']}", _figures(figures)))
            continue
        risk, accuracy = _figures(figures)[:2], _figures(figures)[2:]
        lines.append((f"{kind} risk: {of['risk']}", risk))
        blank = [" " * len(number) for number in risk]
        lines.append((f"{kind} accuracy: {of['accuracy']}", [*blank, *accuracy]))
    means = {what: result[f"average_{what}"] for what in ("risk", "accuracy")}
    return [*lines, ("average", _figures(means))]


def _figures(g: dict) -> list[str]:
    """Risk and accuracy, each with its interval."""
    cells = []
    for what in ("risk", "accuracy"):
        ends = g.get(f"{what}_interval")
        between = "-".join(f"{x:.3f}" for x in ends or ())
        cells += [_number(g[what]), f"{between:>{len(BETWEEN)}}"]
    return cells


def _few(groups: dict[str, dict]) -> list[str]:
    """Notes where the worst group's figure rests on few test rows."""
    named: dict[str, list[str]] = {}
    for what in ("risk", "accuracy"):
        name = extreme(groups, "worst", what)
        if name and groups[name]["n_test"] < FEW:
            named.setdefault(name, []).append(what)
    return [
        f"note: worst {' and '.join(of)} of few test rows: {groups[name]['n_test']}, of {name}"
        for name, of in named.items()
    ]


def _is_known(value: float | None) -> bool:
    return value is not None and value == value


def _number(value: float | None) -> str:
    return f"{value:>10.4f}" if value is not None and value == value else f"{'-':>10}"


def validated(result: dict, rounds: int) -> str:
    """Return the line on which round was chosen on the validation rows, and why the run ended."""
    chosen, ended = result["validation"], result["rounds"]
    early = f"ended after round {ended} of {rounds}, as patience did; " if ended < rounds else ""
    return (
        f"{early}the model is that of round {chosen['round']}, whose worst group does best on the "
        f"validation rows: {chosen['worst_risk']:.4f}"
    )


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

    def update(
        self, t: int, groups: tuple[str, ...], risks: np.ndarray | None, spent: str = ""
    ) -> None:
        """Show that round `t` is done; `risks` are the last that are known.

        `spent`: what the rounds so far have spent of a privacy budget.
        """
        now = time.perf_counter()
        self.first = self.first or t
        if self.bar is not None:
            if risks is not None and now - self.line_at > 0.5:
                self.line_at = now
                told = " ".join(filter(None, (self._worst(groups, risks), spent)))
                self.bar.set_postfix_str(told, refresh=False)
            self.bar.update(t - self.bar.n)
            if t == self.rounds:
                self.bar.close()
        elif self.kind == "lines" and (now - self.line_at > LINE_EVERY or t in (1, self.rounds)):
            self.line_at = now
            pace = (now - self.began) / (t - self.first + 1)
            left = f", about {pace * (self.rounds - t):,.0f} s left" if t < self.rounds else ""
            worst = f"  {self._worst(groups, risks)}" if risks is not None else ""
            worst += f"  {spent}" if spent else ""
            say(f"round {t}/{self.rounds}{worst}  {pace * 1000:.0f} ms a round{left}")

    def close(self) -> None:
        """Leave the bar as it is: what is printed next begins a line."""
        if self.bar is not None:
            self.bar.close()

    @staticmethod
    def _worst(groups: tuple[str, ...], risks: np.ndarray) -> str:
        if np.isnan(risks).all():  # nobody was available
            return ""
        a = int(np.nanargmax(risks))
        return f"worst {risks[a]:.4f} ({groups[a]})"
