"""Shows a table's first rows: all that came to the page, a few in the saved Markdown."""

import re
from collections.abc import Iterable, Mapping

from agent_magics.protocol.items import Json, JsonMapping
from agent_magics.render.markdown import harmless_prose
from agent_magics.text.brief import brief_line, number_of

# The type of a displayed table in the event of a rich output; it is published as an item.
TABLE = "application/vnd.agent-magics.table+json"


class DisplayedTable(dict[str, Json]):
    """The first rows of a table, as `table_of` in ``kernel.live.frames`` has read them.

    Code may display anything as a table; only one of this class is within the limits.
    """


_SIGN = re.compile(r"[\\`*_{}\[\]<>#!~$&]")
_ROWS, _COLUMNS, _LETTERS = 8, 8, 60  # of the Markdown


def frame_item(table: Mapping[str, Json]) -> dict[str, Json]:
    """Return the item of a table, as `table_of` in ``kernel.live.frames`` describes it."""
    return {**table, "kind": "table"}


def without_frames(output: str, rich: Iterable[Mapping[str, Json]]) -> str:
    """Return a call's output without the text of the tables that are shown below it."""
    for data in rich:
        if TABLE in data:
            output = output.replace(f"{data['text/plain']}\n", "", 1)
    return output


def frame_markdown(item: JsonMapping) -> str:
    """Return the size of a table, and its first rows and columns as a Markdown table."""
    columns, rows = item["columns"][:_COLUMNS], item["rows"][:_ROWS]
    size = f"{number_of(item['total'], 'row')} by {number_of(item['width'], 'column')}"
    left_out = item["total"] > len(rows) or max(item["width"], len(item["columns"])) > len(columns)
    caption = f"*{size}{', the first of them:' if left_out else ''}*"
    if not columns:
        return caption
    sides = [
        "---:" if all(isinstance(row[n], int | float) for row in rows) else ":---"
        for n in range(len(columns))
    ]
    lines = [
        _line(column["name"] for column in columns),
        f"| {' | '.join(sides)} |",
        *(_line(row[: len(columns)]) for row in rows),
    ]
    return "\n".join((caption, "", *lines))


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: object) -> str:
    text = "" if value is None else brief_line(str(value), _LETTERS)
    # Its signs are data: `*a*` is no emphasis here.
    return harmless_prose(_SIGN.sub(r"\\\g<0>", text)).replace("|", "\\|")
