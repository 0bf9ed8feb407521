"""Formats web searches, and the sources of an answer as links that can only open a page."""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from agent_magics.protocol.items import Citation, Json, JsonMapping, json_object
from agent_magics.text.brief import brief

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


def describe_search(action: JsonMapping | str, *, done: bool) -> str:
    """Describe one step of a web search in a few words.

    Args:
        action: the action of a `WebSearchCall`, or its JSON text.
        done: whether the step has ended.
    """
    # A model may call a function of this name, with arguments that are no object.
    step: JsonMapping = json_object(action) or {} if isinstance(action, str) else action
    kind = str(step.get("type", "search"))
    verb = _VERBS.get(kind, _VERBS["search"])[done]
    queries = step.get("queries")
    asked = queries if isinstance(queries, list) and queries else [step.get("query")]
    quoted = [json.dumps(_short(word), ensure_ascii=False) for word in asked if word]
    page = _short(step.get("url") or "")
    if kind == "open_page":
        return f"{verb} {page or 'a page'}"
    if "pattern" in step:
        pattern = json.dumps(_short(step["pattern"]), ensure_ascii=False)
        return f"{verb} {pattern} in {page or 'a page'}"
    return f"{verb} {', '.join(quoted) or 'the web'}"


def _short(text: object) -> str:
    line = "".join(filter(str.isprintable, " ".join(str(text).split())))
    return brief(line, LONGEST)


def sources_of(citations: Iterable[Citation]) -> list[Json]:
    """Return the cited pages and files without repeats, as saved: ``{"title": …, "url": …}``."""
    found: dict[tuple[str, str], Json] = {}
    for citation in citations:
        url = harmless_url(citation.url)
        title = _short(citation.title) or urlsplit(url).hostname or citation.file_id
        found.setdefault((url, "" if url else title), {"title": title, "url": url})
    return list(found.values())[:MOST_SOURCES]


def harmless_url(url: str) -> str:
    """Return an http(s) address with Markdown syntax percent-encoded; "" for any other address."""
    try:
        parts = urlsplit(url)
        hostname = parts.hostname
    except ValueError:
        return ""
    named = parts.username is None and "\\" not in url  # "https://bank@evil" only looks like a bank
    if parts.scheme not in ("http", "https") or not hostname or not named:
        return ""
    return quote(parts.geturl(), safe=_SAFE)


def sources_markdown(sources: Iterable[JsonMapping]) -> str:
    """Return cited sources as a Markdown list of links with plain-text titles."""
    return "\n".join(f"- {_link(str(each['title']), str(each['url']))}" for each in sources)


def _link(title: str, url: str) -> str:
    label = re.sub(r"[^\w ,.;:?'\"()/&%+-]", " ", _short(title))
    label = re.sub(r"\s+", " ", label).strip() or url
    address = harmless_url(url)  # once more: what is drawn may come from a saved notebook
    return f"[{label}]({address})" if address else label


def sources_plain(sources: Iterable[JsonMapping]) -> str:
    """Return cited sources as lines of plain text."""
    return "\n".join(
        f"- {each['title']}: {each['url']}" if each["url"] else f"- {each['title']}"
        for each in sources
    )
