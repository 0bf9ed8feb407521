"""Renders saved Markdown with the readers that show it (marked, mistune, markdown-it)."""

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.needs import require

MODULES = Path(__file__).parents[3] / "labextension" / "node_modules"
_HARMLESS = re.compile(
    "a|blockquote|br|code|del|details|div|em|h[1-6]|hr|input|li|ol|p|pre|s|span|strong|summary|ul"
    "|dl|dt|dd|table|thead|tbody|tr|th|td"
)
_ATTRIBUTES = re.compile("align|checked|class|disabled|id|start|type|title")


class Readers:
    """All readers; marked runs in one process of Node's for many texts."""

    def __init__(self) -> None:
        # Late: every worker imports this module when it collects, and nbconvert takes a second.
        from nbconvert.filters import markdown_mistune  # noqa: PLC0415

        self._mistune = markdown_mistune
        require("program node", "labextension")
        program = ["node", str(Path(__file__).with_suffix(".mjs")), str(MODULES)]
        self._node = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._commonmark = MarkdownIt("commonmark", {"html": True}).enable("table")
        self._commonmark.validateLink = lambda url: True

    def pages(self, markdown: str) -> dict[str, str]:
        """Return the HTML of each reader for `markdown`."""
        self._node.stdin.write(json.dumps(markdown) + "\n")
        self._node.stdin.flush()
        pages = json.loads(self._node.stdout.readline())
        renderer = self._mistune.IPythonRenderer(escape=False)
        pages["mistune"] = self._mistune.MarkdownWithMath(renderer=renderer).render(markdown)
        return {**pages, "markdown-it": self._commonmark.render(markdown)}

    def close(self) -> None:
        self._node.stdin.close()
        self._node.wait(timeout=10)
        self._node.stdout.close()


class Page(HTMLParser):
    """Collects active parts of a page, addresses fetched without a click, and the visible text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.acts: list[str] = []
        self.text = ""
        self.code: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record tags and attributes that are not allowed."""
        self._open.append(tag)
        if tag == "code":
            self.code.append("")
        if not _HARMLESS.fullmatch(tag):
            self.acts.append(f"<{tag}>")
        self.acts += [
            f"<{tag} {name}={value!r}>" for name, value in attrs if not _is_harmless(name, value)
        ]

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.text += data
        if "code" in self._open:
            self.code[-1] += data


def _is_harmless(name: str, value: str | None) -> bool:
    if name == "href":
        scheme, colon, _ = (value or "").partition(":")
        local = not colon or any(mark in scheme for mark in "/#?")
        return local or scheme.lower() in ("http", "https", "mailto")
    if name == "style":
        return (value or "").startswith("text-align")
    return _ATTRIBUTES.fullmatch(name) is not None
