"""The paper's claims, each decided by figures: pass, fail, or not decided here.

Two figures are equal if they differ by at most max(.01, 2 standard deviations), the larger of the
two deviations over seeds; .01 alone where there is one seed. The rule was fixed before any run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from fedmpi.reproduce.paper import CLIENTS
from fedmpi.reproduce.statistics import HETEROGENEITY, Figures, Mean, Run

LEAST = 0.01
SLACK = 1e-9
"""Added to each limit, for figures of three digits whose difference is .01 but for rounding."""
PASS, FAIL, OPEN = "pass", "fail", "not decided here"
QUICK = "A quick look: few rounds and local epochs, one seed. Not a result."


def allowed(a: Mean, b: Mean) -> float:
    """The largest difference between two figures that still count as equal."""
    return max(LEAST, 2 * max(a.std or 0.0, b.std or 0.0)) + SLACK


@dataclass
class Claim:
    """A claim and its checks: the claim passes if all checks do, and fails if one check does."""

    number: int
    text: str
    checks: list[tuple[bool | None, str]] = field(default_factory=list)

    def check(self, holds: bool | None, figures: str) -> None:
        self.checks.append((holds, figures))

    def compare(
        self,
        what: str,
        names: tuple[str, str],
        cells: tuple[Mean | None, Mean | None],
        holds: Callable[[float, float], bool],
    ) -> None:
        """Check `holds(a - b, allowed difference)`; the check is open if a or b is missing."""
        a, b = cells
        if a is None or b is None:
            missing = " and ".join(
                name for name, cell in zip(names, cells, strict=True) if not cell
            )
            self.check(None, f"{what}: no run of {missing}")
            return
        limit = allowed(a, b)
        text = f"{what}: {names[0]} {show(a)}, {names[1]} {show(b)}, difference "
        self.check(
            holds(a.mean - b.mean, limit), f"{text}{a.mean - b.mean:+.3f}, allowed {limit:.3f}"
        )

    @property
    def verdict(self) -> str:
        held = [holds for holds, _ in self.checks]
        if False in held:
            return FAIL
        return OPEN if None in held or not held else PASS

    def as_dict(self) -> dict:
        return {
            "number": self.number,
            "claim": self.text,
            "verdict": self.verdict,
            "checks": [
                {"verdict": {True: PASS, False: FAIL, None: OPEN}[holds], "figures": text}
                for holds, text in self.checks
            ],
        }


def show(cell: Mean) -> str:
    """Text of a figure, to three digits."""
    return f"{cell.mean:.3f}" + (f"±{cell.std:.3f}" if cell.std is not None else "")


def equal(difference: float, limit: float) -> bool:
    return abs(difference) <= limit


def above(difference: float, limit: float) -> bool:
    return difference > limit


def not_above(difference: float, limit: float) -> bool:
    return difference <= limit


def decide(figures: Figures) -> list[Claim]:
    """All claims, decided. With two groups PSG would be SSG, so "every setting" is without PSG."""
    settings = [s for s in HETEROGENEITY if s != "PSG" or len(figures.groups) > 2]
    claims = [decider(figures, settings) for decider in DECIDERS]
    for number, claim in enumerate(claims, 1):
        claim.number = number
    return claims


def _worst(figures: Figures, run: Run | None, kind: str = "risk") -> Mean | None:
    return figures.get(kind, run, "worst")


def equals_centralized(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(1, "FedMinMax equals the centralized baseline in every setting")
    baseline = figures.find("centralized", "")
    for setting in settings:
        run = figures.find("fedminmax", setting)
        for column in ("worst", *(g for g in figures.groups if g != "worst")):
            cells = figures.get("risk", run, column), figures.get("risk", baseline, column)
            claim.compare(
                f"{setting}, risk of {column}", ("FedMinMax", "centralized"), cells, equal
            )
    return claim


def afl_equals_in_ssg(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(2, "AFL equals FedMinMax only in SSG (worst group's risk)")
    for setting in settings:
        cells = [_worst(figures, figures.find(m, setting)) for m in ("afl", "fedminmax")]
        what = f"{setting}, {'equal' if setting == 'SSG' else 'AFL worse'}"
        holds = equal if setting == "SSG" else above
        claim.compare(what, ("AFL", "FedMinMax"), (cells[0], cells[1]), holds)
    return claim


def fedavg_falls(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(3, "FedAvg's worst-group accuracy falls as shards get more heterogeneous")
    runs = {setting: figures.find("fedavg", setting) for setting in settings}

    def compare(first: str, second: str, holds: Callable[[float, float], bool], word: str) -> None:
        risks = [_worst(figures, runs[s]) for s in (first, second)]
        beside = " and ".join(show(cell) if cell else "-" for cell in risks)
        cells = _worst(figures, runs[second], "accuracy"), _worst(figures, runs[first], "accuracy")
        what = f"{second} {word} {first} (worst risk in {first}, {second}: {beside})"
        claim.compare(what, (second, first), cells, holds)

    for first, second in pairwise(settings) if len(settings) > 2 else ():
        compare(first, second, not_above, "not above")
    compare(settings[0], settings[-1], lambda d, limit: d < -limit, "below")
    return claim


def best_worst_group(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(4, "FedMinMax has the lowest risk of the worst group, or ties for it, everywhere")
    for setting in settings:
        ours = figures.find("fedminmax", setting)
        others = [
            run
            for run in figures.runs
            if (run.clients, run.setting) == (figures.clients, setting)
            and run.method != "fedminmax"
        ]
        if not others:
            claim.check(None, f"{setting}: no run of another method")
        for run in others:
            name = f"{run.method} {run.parameter}".strip()
            cells = _worst(figures, ours), _worst(figures, run)
            claim.compare(f"{setting}, not above {name}", ("FedMinMax", name), cells, not_above)
    return claim


def same_weights(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(5, "FedMinMax ends with the same group weights in every setting")
    runs = {setting: figures.find("fedminmax", setting) for setting in settings}
    for i, first in enumerate(settings):
        for second in settings[i + 1 :]:
            for name in figures.groups:
                cells = [figures.get("weight", runs[s], name) for s in (first, second)]
                claim.compare(f"weight of {name}", (first, second), (cells[0], cells[1]), equal)
    return claim


def afl_weights_move(figures: Figures, settings: list[str]) -> Claim:
    """Claim 6: "near" is at most a tenth of the way of FedMinMax's weights from the priors, or .01.

    A way is half the sum of the differences over the groups.
    """
    claim = Claim(
        6, "AFL's group weights stay near the priors in ESG, and move to the minimax ones"
    )
    priors = figures.priors if len(figures.priors) == len(figures.groups) else None
    afl, ours = ({s: _weights(figures, m, s) for s in settings} for m in ("afl", "fedminmax"))
    way, whole = _distance(afl["ESG"], priors), _distance(ours["ESG"], priors)
    if way is None or whole is None:
        claim.check(None, "ESG, way from the priors: no priors, or no run of AFL and FedMinMax")
    else:
        figures_text = f"AFL {way:.3f}, FedMinMax {whole:.3f}, allowed {max(LEAST, whole / 10):.3f}"
        claim.check(
            way <= max(LEAST, whole / 10) + SLACK, f"ESG, way from the priors: {figures_text}"
        )
    ways = {s: d for s in settings if (d := _distance(afl[s], ours[s])) is not None}
    text = ", ".join(f"{setting} {d:.3f}" for setting, d in ways.items()) or "no runs"
    text = f"way from AFL's weights to FedMinMax's: {text}"
    if len(ways) < len(settings) or ways["ESG"] <= LEAST:
        claim.check(None, text)
    else:
        shrinks = all(b <= a + LEAST for a, b in pairwise(ways.values()))
        claim.check(shrinks and ways["SSG"] < ways["ESG"] - LEAST, text)
    return claim


def _weights(figures: Figures, method: str, setting: str) -> dict[str, float] | None:
    """Mean final weight of each group, if the method was run."""
    run = figures.find(method, setting)
    cells = {name: figures.get("weight", run, name) for name in figures.groups}
    weights = {name: cell.mean for name, cell in cells.items() if cell}
    return weights if len(weights) == len(cells) else None


def _distance(a: dict[str, float] | None, b: dict[str, float] | None) -> float | None:
    """Total variation between two distributions over the groups, if both are known."""
    return sum(abs(a[name] - b[name]) for name in a) / 2 if a and b else None


def local_is_worse(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(
        7, "LocalFedMinMax is worse than FedMinMax at 40 clients in ESG and PSG, equal in SSG"
    )
    for setting in settings:
        cells = [
            _worst(figures, figures.find(method, setting, CLIENTS))
            for method in ("localfedminmax", "fedminmax")
        ]
        what = f"{setting}, {'equal' if setting == 'SSG' else 'worse'}"
        holds = equal if setting == "SSG" else above
        claim.compare(what, ("LocalFedMinMax", "FedMinMax"), (cells[0], cells[1]), holds)
    return claim


DECIDERS = (
    equals_centralized,
    afl_equals_in_ssg,
    fedavg_falls,
    best_worst_group,
    same_weights,
    afl_weights_move,
    local_is_worse,
)
