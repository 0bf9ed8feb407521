"""Selects the tools that a request carries: all, or past a budget built-in ones and those found.

A specification costs tokens in every request. Past a budget only the built-in tools and
`tool_search` are offered; what a search finds is offered from the next request on, behind
everything that was offered before, so that the beginning of the request (the part that a provider
caches) stays the same. A tool that is not offered can still be called.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from agent_magics.dispatch.catalog.ranking import Ranking, words_of
from agent_magics.protocol.tools import (
    ConfiguredToolSpec,
    FreeformToolSpec,
    FunctionToolSpec,
    ToolSpec,
)

# Estimated tokens of all specifications together, above which they are deferred.
TOOL_BUDGET = 10_000
SEARCH = "tool_search"

# JSON of English words comes to about four characters a token with the tokenizers of today; no
# tokenizer is loaded for an estimate.
_CHARACTERS_PER_TOKEN = 4
_NAME_WEIGHT = 3  # a word in a tool's name counts as so many in its description
# Characters of a list of names; a longer list gives the count instead.
_LONGEST_LIST = 320
_SERVER = re.compile(r"mcp__.+?__")


def estimated_tokens(spec: ToolSpec) -> int:
    """Estimate a specification's tokens in each request: its JSON, at four characters a token."""
    if isinstance(spec, FunctionToolSpec):
        text = json.dumps([spec.name, spec.description, spec.parameters], ensure_ascii=False)
    elif isinstance(spec, FreeformToolSpec):
        text = spec.name + spec.description + spec.definition
    else:
        text = spec.name
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


class ToolOffer:
    """The tools of a run, of which each request carries all or a part.

    Nothing is computed before the first request.

    Args:
        specs: all tools that the run has from the beginning, in order.
        core: names that are always offered.
        budget: estimated tokens above which the others are deferred.
        search: the specification of `tool_search`, offered where tools are deferred.
        joining: returns the tools that have joined since: the same tuple while nothing changes.
    """

    def __init__(
        self,
        specs: Sequence[ConfiguredToolSpec],
        core: Collection[str] = (),
        budget: int = TOOL_BUDGET,
        search: ConfiguredToolSpec | None = None,
        joining: Callable[[], tuple[ConfiguredToolSpec, ...]] = tuple,
    ) -> None:
        self._own = tuple(specs)
        self._offer = partial(PresentTools, core=core, budget=budget, search=search)
        self._joining = joining
        self._joined: tuple[ConfiguredToolSpec, ...] = ()
        self._offered = self._offer(self._own)

    def now(self) -> "PresentTools":
        """Return the tools that are there now; the same object while nothing changes."""
        joined = self._joining()
        if joined is not self._joined:
            own = {each.spec.name for each in self._own}
            more = (each for each in joined if each.spec.name not in own)
            self._offered = self._offer((*self._own, *more))
            self._joined = joined
        return self._offered


class PresentTools:
    """The tools of a run between two changes; see `ToolOffer`.

    Attributes:
        all: all of them, in order.
    """

    def __init__(
        self,
        specs: tuple[ConfiguredToolSpec, ...],
        core: Collection[str],
        budget: int,
        search: ConfiguredToolSpec | None,
    ) -> None:
        self.all = specs
        self._core = core
        self._budget = budget
        self._search = search
        self._last: tuple[tuple[str, ...], tuple[ConfiguredToolSpec, ...]] | None = None

    @cached_property
    def costs(self) -> Mapping[str, int]:
        """Name -> estimated tokens of its specification."""
        return {each.spec.name: estimated_tokens(each.spec) for each in self.all}

    @cached_property
    def deferred(self) -> Mapping[str, ConfiguredToolSpec]:
        """The tools offered only after a search has found them; empty within the budget."""
        others = {e.spec.name: e for e in self.all if e.spec.name not in self._core}
        if not others or self._search is None or sum(self.costs.values()) <= self._budget:
            return {}
        return others

    @cached_property
    def _first(self) -> tuple[ConfiguredToolSpec, ...]:
        """The specifications of a request before any search."""
        if not self.deferred or self._search is None:
            return self.all
        search = ConfiguredToolSpec(_listing(self._search.spec, self.deferred), True)
        return (*(each for each in self.all if each.spec.name not in self.deferred), search)

    def specs(self, found: Collection[str]) -> tuple[ConfiguredToolSpec, ...]:
        """Return the specifications of the next request; the same tuple while nothing changes.

        Args:
            found: names that searches of this conversation found, in that order.
        """
        if not found or not self.deferred:
            return self._first
        names = tuple(found)
        if self._last is None or self._last[0] != names:
            more = (self.deferred[name] for name in names if name in self.deferred)
            self._last = names, (*self._first, *more)
        return self._last[1]

    def search(self, query: str, limit: int) -> list[ToolSpec]:
        """Return the deferred tools that match `query`, the best first."""
        return [self.deferred[name].spec for name in self._ranking.best(query, limit)]

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking({name: _words(each.spec) for name, each in self.deferred.items()})


def _words(spec: ToolSpec) -> list[str]:
    words = words_of(spec.name) * _NAME_WEIGHT
    if isinstance(spec, FunctionToolSpec):
        properties: Any = spec.parameters.get("properties", {})  # untrusted JSON
        for name, each in properties.items():
            description = each.get("description", "") if isinstance(each, Mapping) else ""
            words += words_of(f"{name} {description}")
    return words + words_of(getattr(spec, "description", ""))


def _listing(search: ToolSpec, deferred: Collection[str]) -> ToolSpec:
    """Return the specification of `tool_search` with the names of the deferred tools added."""
    if not isinstance(search, FunctionToolSpec):
        return search
    text = f"{search.description}\n\nThe tools that it finds: {list_names(deferred)}."
    return FunctionToolSpec(
        search.name, text, search.parameters, search.strict, search.strict_reason
    )


def list_names(names: Iterable[str]) -> str:
    """Return the names joined; of a long list the count per server and the first of each."""
    names = list(names)
    text = ", ".join(names)
    if len(text) <= _LONGEST_LIST:
        return text
    groups: dict[str, list[str]] = {}
    for name in names:
        found = _SERVER.match(name)
        start = found[0] if found else ""
        groups.setdefault(start, []).append(name.removeprefix(start))
    share = _LONGEST_LIST // len(groups)
    return "; ".join(_group_words(start, members, share) for start, members in groups.items())


def _group_words(start: str, members: Sequence[str], share: int) -> str:
    head = f"{len(members)} named {start}…" if start else f"{len(members)} others"
    shown: list[str] = []
    left = share - len(head)
    for member in members:
        left -= len(member) + 2
        if left < 0:
            break
        shown.append(member)
    if not shown:
        return head
    return f"{head} ({', '.join(shown)}{', …' if len(shown) < len(members) else ''})"
