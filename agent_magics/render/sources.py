"""Web searches in words, and what an answer cites as links that can only lead to a page."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from agent_magics.protocol.items import Citation, Json

# Longer lists are cut: a deep search cites hundreds of pages, and they are saved in the notebook.
MOST_SOURCES = 30
LONGEST = 200

_VERBS = {
    "search": ("searching", "searched"),
    "open_page": ("opening", "opened"),
    "find_in_page": ("looking for", "looked for"),
    "find": ("looking for", "looked for"),
}
# What an address may hold as it is; `render.markdown` takes the same for harmless.
_SAFE = "/?#=&%+,:.~-_"


def describe_search(action: Mapping[str, Any] | str, *, done: bool) -> str:
    """Say in a few words what a step of a web search does, or did.

    Args:
        action: see `WebSearchCall`, or the same as JSON text.
        done: whether it is over.
    """
    if isinstance(action, str):
        action = json.loads(action or "{}")
    kind = str(action.get("type", "search"))
    verb = _VERBS.get(kind, _VERBS["search"])[done]
    queries = action.get("queries")
    asked = queries if isinstance(queries, list) and queries else [action.get("query")]
    words = [json.dumps(_short(word), ensure_ascii=False) for word in asked if word]
    page = _short(action.get("url") or "")
    if kind == "open_page":
        return f"{verb} {page or 'a page'}"
    if "pattern" in action:
        pattern = json.dumps(_short(action["pattern"]), ensure_ascii=False)
        return f"{verb} {pattern} in {page or 'a page'}"
    return f"{verb} {', '.join(words) or 'the web'}"


def _short(text: Any) -> str:
    line = "".join(filter(str.isprintable, " ".join(str(text).split())))
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def sources_of(citations: Iterable[Citation]) -> list[Json]:
    """Return the pages and files that are cited, each once, as they are saved: title and url."""
    found: dict[tuple[str, str], dict[str, Json]] = {}
    for citation in citations:
        url = harmless_url(citation.url)
        title = _short(citation.title) or urlsplit(url).hostname or citation.file_id
        found.setdefault((url, "" if url else title), {"title": title, "url": url})
    return list(found.values())[:MOST_SOURCES]


def harmless_url(url: str) -> str:
    """Return `url` in signs that mean nothing in Markdown, or "" where it is no web page's."""
    try:
        parts = urlsplit(url)
        hostname = parts.hostname
    except ValueError:
        return ""
    named = parts.username is None and "\\" not in url  # "https://bank@evil" only looks like a bank
    if parts.scheme not in ("http", "https") or not hostname or not named:
        return ""
    return quote(parts.geturl(), safe=_SAFE)


def sources_markdown(sources: Iterable[Mapping[str, Any]]) -> str:
    """Return a list of links; titles are words and nothing else."""
    return "\n".join(f"- {_link(str(each['title']), str(each['url']))}" for each in sources)


def _link(title: str, url: str) -> str:
    words = re.sub(r"[^\w ,.;:?'\"()/&%+-]", " ", _short(title))
    words = re.sub(r"\s+", " ", words).strip() or url
    address = harmless_url(url)  # once more: what is drawn may come from a saved notebook
    return f"[{words}]({address})" if address else words


def sources_plain(sources: Iterable[Mapping[str, Any]]) -> str:
    """Return the same as lines of text."""
    return "\n".join(
        f"- {each['title']}: {each['url']}" if each["url"] else f"- {each['title']}"
        for each in sources
    )
