"""A model evaluated on labelled rows: figures by group, rates by attribute, with intervals."""

from __future__ import annotations

import numpy as np
import torch

from fedmpi.intervals import LEVEL, pair, risk_interval, wilson
from fedmpi.scoring.fairness import RATES, by_value, rates
from fedmpi.scoring.inputs import NO_CLASS, NO_GROUP, Tally
from fedmpi.scoring.model import Model
from fedmpi.scoring.scores import Scores
from fedmpi.scoring.sources import Part, Source, labels_of


def add_scores(model: Model, source: Source, scores: Scores, tally: Tally) -> None:
    """Add the rows of `source` to the sums; rows without a class or a group are left out."""
    for part in source.parts(tally):
        y, group = labels(model, part)
        keep = (y >= 0) & (group >= 0)
        tally.left_out[NO_CLASS] += int((y < 0).sum())
        tally.left_out[NO_GROUP] += int(((y >= 0) & (group < 0)).sum())
        rows = part.rows if keep.all() else part.rows[keep]
        logits = model.logits(model.encode_counted(rows, tally))
        true, of = (torch.from_numpy(codes[keep].astype(np.int64)) for codes in (y, group))
        scores.add(model.loss(logits, true), logits, true, of)


def labels(model: Model, part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Return the class and the group of each row, -1 for one that was not trained on."""
    if isinstance(part.rows, np.ndarray):
        assert part.y is not None and part.group is not None
        return part.y, part.group
    rules = labels_of(model)
    return rules.y(part.rows), rules.group(part.rows)


def figures(model: Model, scores: Scores) -> dict:
    """Return what result.json has of groups and rates, with intervals at LEVEL."""
    risk, accuracy, tested = scores.risk, scores.accuracy, scores.rows > 0
    risk_ends = risk_interval(scores.losses, scores.squares, scores.rows)
    accuracy_ends = wilson(scores.right, scores.rows)
    groups = {
        name: {
            "n_test": int(scores.rows[a]),
            "risk": _known(risk[a]),
            "risk_interval": pair(risk_ends[a]),
            "accuracy": _known(accuracy[a]),
            "accuracy_interval": pair(accuracy_ends[a]),
            "confusion": scores.confusion[a].tolist(),
        }
        for a, name in enumerate(model.groups)
    }
    names = np.array(model.groups)[tested]
    found = {"weights": model.weights, "level": LEVEL, "groups": groups}
    if tested.any():
        risk, accuracy = risk[tested], accuracy[tested]
        found |= {
            "worst_group": str(names[np.argmax(risk)]),
            "best_group": str(names[np.argmin(risk)]),
            "least_accurate_group": str(names[np.argmin(accuracy)]),
            "most_accurate_group": str(names[np.argmax(accuracy)]),
            "worst_risk": float(risk.max()),
            "best_risk": float(risk.min()),
            "average_risk": float(risk.mean()),
            "worst_accuracy": float(accuracy.min()),
            "best_accuracy": float(accuracy.max()),
            "average_accuracy": float(accuracy.mean()),
        }
    return found | {"fairness": _fairness(model, scores.confusion)}


def _fairness(model: Model, confusion: np.ndarray) -> dict | None:
    """Rates by attribute and their intervals; None where result.json has none."""
    attribute = model.description["attribute"]
    if attribute is None or len(model.classes) != 2:
        return None
    counts = by_value(attribute["values"], confusion)
    return {"attribute": attribute["name"], "positive": model.classes[1]} | rates(counts)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def table(found: dict) -> str:
    """Return the figures as lines for the screen."""
    groups = found["groups"]
    width = max(len("average"), *map(len, groups))
    named = f"[{found['level']:.0%} interval]"
    head = f"{'rows':>10}  {'risk':>8} {named:<18}  {'accuracy':>8} {named:<18}"
    lines = [f"{'group':<{width}}  {head}"]
    for name, g in groups.items():
        cells = [f"{g['n_test']:>10,}"]
        cells += [_with_ends(g, key) for key in ("risk", "accuracy")]
        lines.append("  ".join([f"{name:<{width}}", *cells]))
    lines.append("-" * len(lines[0]))
    for what, by_risk, by_accuracy in (
        ("worst", "worst_group", "least_accurate_group"),
        ("best", "best_group", "most_accurate_group"),
        ("average", None, None),
    ):
        if f"{what}_risk" in found:
            risk, accuracy = found[f"{what}_risk"], found[f"{what}_accuracy"]
            whose = f"  ({found[by_risk]}; {found[by_accuracy]})" if by_risk else ""
            lines.append(
                f"{what:<{width}}  {'':>10}  {risk:>8.4f} {'':<18}  {accuracy:>8.4f}{whose}"
            )
    return "\n".join(line.rstrip() for line in lines + _rate_lines(found["fairness"]))


def _rate_lines(fairness: dict | None) -> list[str]:
    if not fairness:
        return []
    name = fairness["attribute"]
    width = max(len(name), *map(len, fairness["values"]))
    heads = (f"{rate.replace('_', ' '):<27}" for rate in RATES)
    lines = ["", f"{name:<{width}}  {'rows':>10}  {'  '.join(heads)}  ({fairness['positive']})"]
    for value, told in fairness["values"].items():
        cells = "  ".join(_with_ends(told, rate) for rate in RATES)
        lines.append(f"{value:<{width}}  {told['n_test']:>10,}  {cells}")
    return lines


def _with_ends(told: dict, key: str) -> str:
    value, interval = told[key], told[f"{key}_interval"]
    if value is None or value != value:
        return f"{'-':>8} {'':<18}"
    ends = "[{:.4f}, {:.4f}]".format(*interval) if interval else ""
    return f"{value:>8.4f} {ends:<18}"
