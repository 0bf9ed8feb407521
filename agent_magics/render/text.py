"""Formats saved items as Markdown and plain text, for readers without kernel or extension."""

import json
import re
from collections.abc import Callable

from agent_magics.exec.output import clean_output
from agent_magics.protocol.items import JsonMapping
from agent_magics.render.blocks.frames import frame_markdown
from agent_magics.render.diffs.changes import changes_markdown, changes_plain
from agent_magics.render.markdown import code_span, fenced, harmless_prose, make_harmless
from agent_magics.render.sources import sources_markdown, sources_plain
from agent_magics.render.tables import code_as_text, tables_as_text
from agent_magics.render.visible import show_invisible
from agent_magics.text.brief import number_of

Item = JsonMapping

_STATUS = {"running": "running", "completed": "ran", "failed": "failed", "denied": "not run"}
_BOXES = {"completed": "[x]", "in_progress": "[ ]", "pending": "[ ]"}
_LEVELS = {"info": "Note", "warning": "Warning", "error": "Error"}
# How `make_harmless` writes the beginning of what is no paragraph.
_BLOCK = re.compile(r"(?:#+|[-+*>|]|\d+[.)]) |```|\*\*\*$|<pre>", re.MULTILINE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def to_markdown(item: Item) -> str:
    """Return a saved item as Markdown without active content, also for terminals."""
    markdown: str = _MARKDOWN[item["kind"]](item)
    return markdown


def to_plain(item: Item) -> str:
    """Return a saved item as plain text, in which nothing can act on a terminal."""
    return _CONTROLS.sub("", _PLAIN[item["kind"]](item))


def _text_markdown(item: Item) -> str:
    text = make_harmless(item["text"])
    if not item.get("sources"):
        return text
    return f"{text}\n\nSources:\n\n{make_harmless(sources_markdown(item['sources']))}"


def _text_plain(item: Item) -> str:
    text = code_as_text(tables_as_text(item["text"]))
    return f"{text}\n\nSources:\n{sources_plain(item['sources'])}" if item.get("sources") else text


def _thoughts_markdown(item: Item) -> str:
    return _quoted("Thinking", _thoughts(item))


def _thoughts(item: Item) -> str:
    left_out = f"… {item['left_out']} characters left out … " if item["left_out"] else ""
    return f"{left_out}{item['text'].strip()}"


def _notice_markdown(item: Item) -> str:
    return _quoted(_LEVELS[item["level"]], item["text"])


def _quoted(label: str, text: str) -> str:
    shown = make_harmless(text, nested=True)
    gap = "\n\n" if _BLOCK.match(shown) else " "  # in a line of words it would be no block
    return f"> **{label}:**{gap}{shown}".replace("\n", "\n> ")


def _headline(item: Item) -> str:
    """Return a call's headline with its state in words, so that no meaning depends on colour."""
    code = item.get("exit_code")
    parts = [_STATUS[item["status"]]]
    if code is not None:
        parts.append(f"exit code {code}")
    if item.get("note"):
        parts.append(item["note"])
    return ", ".join(parts)


def _headline_markdown(item: Item) -> str:
    """Return the headline as Markdown: a note may hold what a server or the model has written."""
    return harmless_prose(" ".join(_headline(item).split()))


def _name(item: Item) -> str:
    """Return the tool's name with unusual characters as "?"; the model chose it."""
    name: str = item["name"]
    return name if name == "python (scratch)" else re.sub(r"[^\w.-]", "?", show_invisible(name))


def _tool_markdown(item: Item) -> str:
    name = _name(item)
    if item["language"] == "python":
        parts = [f"**{name}** ({_headline_markdown(item)})", fenced(_code(item), "python")]
    else:
        title = f" {code_span(show_invisible(item['title']))}" if item["title"] else ""
        parts = [f"**{name}**{title} ({_headline_markdown(item)})"]
    output = _plain_output(item)
    if output.strip():
        parts.append(fenced(output.rstrip("\n")))
    return "\n\n".join(parts)


def _plain_output(item: Item) -> str:
    output: str = item["output"]
    # By itself: what moves a terminal's cursor must not write over the lines above it.
    return clean_output(output) if _CONTROLS.search(output) else output


def _patch_markdown(item: Item) -> str:
    parts = [f"**{_name(item)}** ({_headline_markdown(item)})"]
    if item.get("diff"):
        parts.append(fenced(show_invisible(item["diff"].rstrip("\n")), "diff"))
    if item["status"] != "completed" or not item.get("diff"):
        parts.append(fenced(_plain_output(item).rstrip("\n")))
    return "\n\n".join(parts)


def _code(item: Item) -> str:
    """Return the code of a `python` call, or the raw arguments where they are not valid JSON."""
    try:
        code = str(json.loads(item["arguments"])["code"]).rstrip("\n")
    except (ValueError, KeyError, TypeError, RecursionError):
        code = str(item["arguments"])
    return show_invisible(code)


def _plan_markdown(item: Item) -> str:
    lines = [f"*{_one_line(item['explanation'])}*", ""] if item["explanation"] else []
    for step in item["steps"]:
        text = _one_line(step["description"])
        now = " *(now)*" if step["status"] == "in_progress" else ""
        lines.append(f"- {_BOXES[step['status']]} {text}{now}")
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return harmless_prose(" ".join(text.split()))


def _usage(item: Item) -> str:
    cached = f" ({item['cached_tokens']:,} cached)" if item["cached_tokens"] else ""
    # Notebooks of earlier versions have neither of these.
    thought = item.get("reasoning_tokens")
    reasoning = f" ({thought:,} reasoning)" if thought else ""
    cost = f", {item['cost']}" if item.get("cost") else ""
    return (
        f"{item['input_tokens']:,} tokens in{cached}, {item['output_tokens']:,} out{reasoning}, "
        f"{number_of(item['requests'], 'request')}{cost}"
    )


def _block_markdown(item: Item) -> str:
    return "\n\n".join(map(to_markdown, item["items"]))


def _group_markdown(item: Item) -> str:
    """Return a group as a fold, which GitHub, JupyterLab and nbconvert draw.

    An empty line ends the HTML, so what is inside is Markdown as elsewhere.
    """
    inside = _block_markdown(item)
    summary = re.sub(r"[^\w ,.…()-]", "?", item["title"])  # some of it may be a tool's name
    return f"<details><summary>{summary}</summary>\n\n{inside}\n\n</details>"


def _group_plain(item: Item) -> str:
    return f"{item['title']}:\n\n{_block_plain(item)}"


def _tool_plain(item: Item) -> str:
    head = f"[{_name(item)}] {show_invisible(item['title'])} ({_headline(item)})"
    body = show_invisible(item.get("diff") or "") or _plain_output(item)
    return f"{head}\n{body.rstrip()}" if body.strip() else head


def _plan_plain(item: Item) -> str:
    lines = [item["explanation"]] if item["explanation"] else []
    for step in item["steps"]:
        now = " (now)" if step["status"] == "in_progress" else ""
        lines.append(f"{_BOXES[step['status']]} {step['description']}{now}")
    return "\n".join(lines)


def _block_plain(item: Item) -> str:
    return "\n\n".join(map(to_plain, item["items"]))


_MARKDOWN: dict[str, Callable[[Item], str]] = {
    "text": _text_markdown,
    "reasoning": _thoughts_markdown,
    "notice": _notice_markdown,
    "tool": _tool_markdown,
    "patch": _patch_markdown,
    "changes": changes_markdown,
    "plan": _plan_markdown,
    "table": frame_markdown,
    "usage": lambda item: f"*{harmless_prose(_usage(item))}*",
    "group": _group_markdown,
    "block": _block_markdown,
}
_PLAIN: dict[str, Callable[[Item], str]] = {
    "text": _text_plain,
    "reasoning": lambda item: f"Thinking: {_thoughts(item)}",
    "notice": lambda item: f"{_LEVELS[item['level']]}: {item['text']}",
    "tool": _tool_plain,
    "patch": _tool_plain,
    "changes": changes_plain,
    "plan": _plan_plain,
    "table": lambda item: code_as_text(tables_as_text(frame_markdown(item))),
    "usage": _usage,
    "group": _group_plain,
    "block": _block_plain,
}
