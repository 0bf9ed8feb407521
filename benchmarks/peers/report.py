"""Writes the comparison as Markdown: medians, ratios within rounds, and their range."""

import ast
from statistics import median

from rows import FLOOR, OURS, PEERS, Row

DRIFT = 0.15  # share by which the machine's speed may change while a row is measured in a round


def constants(code: str) -> dict:
    """Return the top-level names of a module with plain values, read without running it."""
    found: dict = {}
    for node in ast.parse(code).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        if not isinstance(target, ast.Name) or node.value is None:
            continue
        try:
            found[target.id] = ast.literal_eval(_with_names(node.value, found))
        except ValueError:
            continue
    return found


class _Names(ast.NodeTransformer):
    """Replaces names by values that are already known."""

    def __init__(self, known: dict):
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self.known[node.id]) if node.id in self.known else node


def _with_names(value: ast.AST, known: dict) -> ast.AST:
    return _Names(known).visit(value)


class Figures:
    """The measured figures by row and subject, as {round: figure}."""

    def __init__(self, found: dict):
        self.found = found

    def of(self, row: Row, subject: str) -> dict[int, float]:
        return {
            one["round"]: one[row.figure]
            for one in self.found["taken"]
            if (one["take"], one["subject"]) == (row.take, subject) and row.figure in one
        }

    def failure(self, row: Row, subject: str) -> str:
        """Return why there is no figure."""
        for one in self.found["taken"]:
            if (one["take"], one["subject"]) == (row.take, subject) and "error" in one:
                return one["error"]
        return self.found["without"][row.name].get(subject, "")

    def ratios(self, row: Row, subject: str, base: str) -> list[float]:
        """Return the ratios of `subject` to `base`, by round."""
        figures, others = self.of(row, subject), self.of(row, base)
        return [figures[number] / others[number] for number in figures if others.get(number)]

    def best(self, row: Row, subjects: list[str]) -> str | None:
        """Return which of `subjects` has the least median."""
        known = [subject for subject in subjects if self.of(row, subject)]
        return min(known, key=lambda one: median(self.of(row, one).values()), default=None)


def page(
    found: dict, rows: list[Row], subjects: list[str], titles: dict, not_streaming: tuple
) -> str:
    """Return the whole page."""
    figures = Figures(found)
    parts = [
        "# agent-magics beside other agent libraries",
        _circumstances(found),
        "## Our goals",
        _goals(figures, rows, titles, not_streaming),
        "## Figures",
        "Medians over rounds; smaller is better.",
        _matrix(figures, rows, subjects, titles, _median_cell),
        "## How many times ours",
        "Each subject over agent-magics, taken within a round: median, and the range over rounds.",
        _matrix(figures, rows, [s for s in subjects if s != OURS], titles, _times_cell, unit=False),
        "## What is not measured, and why",
        _gaps(figures, rows, subjects, titles),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def drifted(found: dict) -> dict[str, list[int]]:
    """Return the rounds in which the machine's speed changed during a row, by measurement."""
    marked: dict[str, list[int]] = {}
    for one in found["speeds"]:
        if abs(one["after"] / one["before"] - 1) > DRIFT:
            marked.setdefault(one["take"], []).append(one["round"])
    return marked


def _circumstances(found: dict) -> str:
    speeds = [one[when] for one in found["speeds"] for when in ("before", "after")]
    speeds += found["speed"]
    lines = [
        f"- {found['machine']}; {found['rounds']} rounds, {found['seconds'] / 60:.0f} min",
        f"- command: `{found['command']}`, after `python benchmarks/peers/run.py --install`",
        f"- load average {found['load'][0]:.1f} before, {found['load'][1]:.1f} after; a fixed loop "
        f"took {found['speed'][0]:.1f} ms before and {found['speed'][1]:.1f} ms after "
        f"({min(speeds):.1f} to {max(speeds):.1f} between)",
        *(f"- {peer}: {text}" for peer, text in found["versions"].items()),
        "- what each row measures, and what to trust: [benchmarks/README.md](../README.md)",
    ]
    marked = drifted(found)
    if marked:
        text = "; ".join(f"{name} in {_numbers(rounds)}" for name, rounds in sorted(marked.items()))
        lines.append(
            f"- **the machine's speed changed** by more than {DRIFT:.0%} while these were taken "
            f"(marked * below): {text}"
        )
    return "\n".join(lines)


def _numbers(rounds: list[int]) -> str:
    return f"round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}"


def _goals(figures: Figures, rows: list[Row], titles: dict, not_streaming: tuple) -> str:
    head = ["row", "ours", "over floor_content", "over the best peer", "the best that streams"]
    lines = [[*head, "goal", "met"]]
    streaming = [peer for peer in PEERS if peer not in not_streaming]
    marked = drifted(figures.found)
    for row in rows:
        ours = figures.of(row, OURS)
        if not ours:
            continue
        best, streams = figures.best(row, list(PEERS)), figures.best(row, streaming)
        over_floor = _spread(figures.ratios(row, OURS, FLOOR))
        over_best = _spread(figures.ratios(row, OURS, best)) if best else ""
        lines.append(
            [
                row.title + ("*" if row.take in marked else ""),
                _number(median(ours.values()), row.unit),
                over_floor,
                f"{over_best} ({titles[best]})" if best else "",
                f"{_spread(figures.ratios(row, OURS, streams))} ({titles[streams]})"
                if streams not in (None, best)
                else "",
                *_verdict(figures, row, best),
            ]
        )
    return _table(lines)


def _verdict(figures: Figures, row: Row, best: str | None) -> tuple[str, str]:
    """Return the goals of a row as text, and which of them are met."""
    goals = []
    if row.most is not None:
        value = median(figures.of(row, OURS).values())
        goals.append((f"<= {_number(row.most, row.unit)}", value <= row.most))
    for limit, base, name in ((row.to_peer, best, "best peer"), (row.to_floor, FLOOR, "floor")):
        ratios = figures.ratios(row, OURS, base) if base else []
        if limit is not None and ratios:
            goals.append((f"<= {limit:.2g} x {name}", median(ratios) <= limit))
    words = "; ".join(text for text, _ in goals)
    return words, "; ".join("yes" if met else "**no**" for _, met in goals)


def _matrix(
    figures: Figures, rows: list[Row], subjects: list[str], titles: dict, cell, unit: bool = True
) -> str:
    marked = drifted(figures.found)
    lines = [["row", *(titles.get(subject, subject) for subject in subjects)]]
    for row in rows:
        title = row.title + (f", {row.unit}" if unit and row.unit != "x" else "")
        title += "*" if row.take in marked else ""
        lines.append([title, *(cell(figures, row, subject) for subject in subjects)])
    return _table(lines)


def _median_cell(figures: Figures, row: Row, subject: str) -> str:
    known = figures.of(row, subject)
    return _short(median(known.values())) if known else "-"


def _times_cell(figures: Figures, row: Row, subject: str) -> str:
    return _spread(figures.ratios(row, subject, OURS)) or "-"


def _gaps(figures: Figures, rows: list[Row], subjects: list[str], titles: dict) -> str:
    """Return the reasons behind each "-", grouped by reason."""
    lines = []
    for row in rows:
        reasons: dict[str, list[str]] = {}
        for subject in subjects:
            if not figures.of(row, subject):
                why = figures.failure(row, subject) or "no figure"
                reasons.setdefault(why, []).append(titles.get(subject, subject))
        text = "; ".join(f"{', '.join(who)}: {why}" for why, who in reasons.items())
        if text:
            lines.append(f"- {row.title}: {text}")
    return "\n".join(lines)


def _spread(ratios: list[float]) -> str:
    if not ratios:
        return ""
    if len(ratios) == 1:
        return _short(ratios[0])
    return f"{_short(median(ratios))} ({_short(min(ratios))}-{_short(max(ratios))})"


def _number(value: float, unit: str) -> str:
    return f"{_short(value)} {unit}" if unit != "x" else _short(value)


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _table(lines: list[list[str]]) -> str:
    head, *body = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body])
