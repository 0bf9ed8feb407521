"""Registers tools that are added or hidden during an agent's life, and detects name collisions.

Law: a name means one tool. Two tools of one name are an error that names the origin of both; only a
function that is defined again (its cell was run once more) replaces its earlier version.
"""

import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any

from agent_magics.dispatch.tool import Tool
from agent_magics.protocol.errors import FatalError


class ToolRegistrations:
    """Tools that were added, hidden or pinned by hand; thread-safe.

    A change holds from the next turn on: a turn keeps the tools it began with.

    Attributes:
        hidden: the names of tools that are neither offered nor answered.
        pinned: the names of tools that are offered however long the list is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tools: dict[str, Tool] = {}
        self.hidden: frozenset[str] = frozenset()
        self.pinned: frozenset[str] = frozenset()
        self._watchers: tuple[Callable[[], None], ...] = ()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The added tools, in order."""
        with self._lock:
            return tuple(self._tools.values())

    def add(self, tool: Tool) -> None:
        """Add a tool; a function that is defined again replaces its earlier version.

        Raises:
            FatalError: another tool has this name; the sentence says where both come from.
        """
        name = tool.tool_options.name
        with self._lock:
            known = self._tools.get(name)
            if known is not None and not is_same_tool(known, tool):
                raise collision(name, known, tool)
            self._tools[name] = tool
            self.hidden -= {name}
        self._changed()

    def remove(self, name: str) -> bool:
        """Remove an added tool; return False where there is none of this name."""
        with self._lock:
            found = self._tools.pop(name, None) is not None
        if found:
            self._changed()
        return found

    def hide(self, name: str) -> None:
        """Hide a tool of any source: it is neither offered nor answered."""
        with self._lock:
            self.hidden |= {name}
            self.pinned -= {name}
        self._changed()

    def show(self, name: str) -> None:
        """Offer a tool again, and pin it: also where the list is too long to offer all."""
        with self._lock:
            self.hidden -= {name}
            self.pinned |= {name}
        self._changed()

    # -- who wants to know -------------------------------------------------------------------------

    def watch(self, changed: Callable[[], None]) -> None:
        """Register a callback for each later change, called on the thread that made it."""
        with self._lock:
            self._watchers = (*self._watchers, changed)

    def unwatch(self, changed: Callable[[], None]) -> None:
        """Remove a callback; do nothing where it is not registered."""
        with self._lock:
            self._watchers = tuple(each for each in self._watchers if each != changed)

    def _changed(self) -> None:
        for changed in self._watchers:
            changed()


def join_tools(*groups: Iterable[Tool]) -> tuple[Tool, ...]:
    """Join groups of tools in order, without repeats; of two definitions the newer one is kept.

    Raises:
        FatalError: two different tools have one name; the sentence says where both come from.
    """
    joined: dict[str, Tool] = {}
    for group in groups:
        for tool in group:
            name = tool.tool_options.name
            known = joined.get(name)
            if known is None:
                joined[name] = tool
            elif not is_same_tool(known, tool):
                raise collision(name, known, tool)
            elif tool.tool_options.number > known.tool_options.number:
                joined[name] = tool
    return tuple(joined.values())


def is_same_tool(one: object, other: object) -> bool:
    """Return whether `other` is a newer definition of the function `one`.

    That is a function of the same name at the top level of the same module: a factory makes many
    closures of one name, and lambdas have none. Tools defined by data are the same where they are
    equal.
    """
    if one is other or one == other:
        return True
    if not (inspect.isfunction(one) and inspect.isfunction(other)):
        return False
    same = (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
    return same and "<" not in one.__qualname__


def collision(name: str, one: object, other: object) -> FatalError:
    """Return the error that two tools have the same name."""
    return FatalError(
        f"Two tools are named {name!r}: {source_of(one)}, and {source_of(other)}; rename one with "
        "@tool(name=...), or take one away."
    )


def source_of(tool: Any) -> str:
    """Return a description of a tool's origin: a file and line, or a package."""
    if hasattr(tool, "source"):
        return str(tool.source)
    if tool.tool_options.own:
        return "a built-in tool"
    code = getattr(inspect.unwrap(tool), "__code__", None)
    if code is None:
        return repr(tool)
    file, line = code.co_filename, code.co_firstlineno
    if "ipykernel_" in file or file.startswith("<"):
        return f"{tool.__qualname__} in the notebook (line {line} of its cell)"
    place = f"{file}:{line}"
    if "site-packages" in file or "dist-packages" in file:
        return f"package {tool.__module__.partition('.')[0]} ({place})"
    return place
