"""Defines the rows of the comparison: the measurement, its subjects, and our goals."""

from dataclasses import dataclass

OURS, OURS_INLINE, FLOOR, FLOOR_SDK = "ours", "ours_inline", "floor_content", "floor_openai"
PEERS = (
    "openai_agents",
    "pydantic_ai",
    "chatlas",
    "langgraph",
    "smolagents",
    "inspect_ai",
    "mini_swe_agent",
)
SUBJECTS = (OURS, OURS_INLINE, FLOOR, FLOOR_SDK, *PEERS)
TITLES = {
    OURS: "agent-magics",
    OURS_INLINE: "agent-magics, inline tool",
    **{peer: peer.replace("_", "-") for peer in PEERS},
}
SLOW = "its turns grow with the history: minutes"
NOT_STREAMING = ("mini_swe_agent",)
OURS_ALONE = "measured for ours and the floor alone"


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        name: selects it on the command line, together with the rows of the same measurement.
        title: the figure's title.
        unit: of the figure; "x" for a ratio.
        measure: function of worker.py, or a program of measures/ for "memory".
        wire: "responses", "chat", or "" for the first that a subject has.
        figure: the key of the printed figure.
        to_peer: our goal as a share of the best peer.
        to_floor: our goal as a multiple of floor_content.
        most: our goal in the row's unit.
        without: why subjects are left out, by subject.
    """

    name: str
    title: str
    unit: str
    measure: str
    wire: str
    figure: str
    to_peer: float | None = None
    to_floor: float | None = None
    most: float | None = None
    without: tuple[tuple[str, str], ...] = ()

    @property
    def take(self) -> str:
        """The id of the measurement; rows that share one are measured together."""
        return f"{self.measure}-{self.wire}" if self.wire else self.measure


def _all_peers(why: str) -> tuple[tuple[str, str], ...]:
    return tuple((subject, why) for subject in (FLOOR_SDK, *PEERS))


def _on_both_wires() -> list[Row]:
    rows = []
    for wire, name in (("responses", "Responses"), ("chat", "Chat")):
        rows += [
            Row(
                f"turns-{wire}",
                f"200 turns, {name}, CPU a turn",
                "ms",
                "turns",
                wire,
                "cpu_ms",
                to_peer=1 / 30,
                to_floor=1.5,
            ),
            Row(
                f"growth-{wire}",
                f"the same, turns 150-200 over 1-50, {name}",
                "x",
                "turns",
                wire,
                "growth",
                most=1.15,
            ),
            Row(
                f"thousand-{wire}",
                f"1,000 turns, {name}, last 20 over first 20",
                "x",
                "thousand",
                wire,
                "growth",
                most=2,
                without=_all_peers(SLOW),
            ),
            Row(
                f"large-{wire}",
                f"50 turns with outputs of 50 KB, {name}, CPU a turn",
                "ms",
                "large",
                wire,
                "cpu_ms",
                to_floor=1.5,
            ),
            Row(
                f"deltas-{wire}",
                f"20,000 deltas, {name}, CPU",
                "s",
                "deltas",
                wire,
                "cpu_s",
                to_peer=0.15,
                to_floor=1.3,
            ),
        ]
    return rows


ROWS = [
    *_on_both_wires(),
    Row("cold", "cold start and five turns, wall", "s", "cold", "", "wall_s", to_peer=0.7),
    Row("cold-cpu", "the same, CPU", "s", "cold", "", "cpu_s", to_peer=0.7),
    Row(
        "parallel-async",
        "16 async tools of 50 ms, answer to next request, wall",
        "ms",
        "parallel_async",
        "",
        "gap_ms",
        to_peer=0.5,
        most=65,
    ),
    Row(
        "parallel-sync",
        "16 sync tools of 50 ms, answer to next request, wall",
        "ms",
        "parallel_sync",
        "",
        "gap_ms",
        to_peer=0.5,
        most=65,
    ),
    Row("dispatch", "a call of five fields, CPU", "us", "dispatch", "", "cpu_us", to_peer=0.5),
    Row("tools", "100 tools built, CPU", "ms", "tools", "", "cpu_ms", to_peer=0.5),
    Row(
        "memory",
        "1,000 turns in a kernel, memory over the bare kernel",
        "MB",
        "remembering",
        "",
        "grown_mb",
        most=150,
        without=_all_peers(OURS_ALONE),
    ),
    Row("import", "import, wall", "ms", "imports", "", "wall_ms", to_peer=0.06),
    Row("import-cpu", "the same, CPU", "ms", "imports", "", "cpu_ms", to_peer=0.06),
    Row("import-memory", "the same, memory", "MB", "imports", "", "memory_mb"),
]
