"""The tools that join and leave while an agent lives, and the one rule for two of one name.

Law: a name means one tool. Two tools of one name are an error that says where both come from; only
a function that is defined again (its cell was run once more) takes the place of its older self.
"""

import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any

from agent_magics.protocol.errors import FatalError


class ToolShelf:
    """Tools added and hidden by hand; every method is safe from every thread.

    What is changed here holds from the next turn on: a turn keeps the tools it began with.

    Attributes:
        version: counts the changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tools: dict[str, Callable[..., Any]] = {}
        self._hidden: frozenset[str] = frozenset()
        self._pinned: frozenset[str] = frozenset()
        self._watchers: tuple[Callable[[], None], ...] = ()
        self.version = 0

    @property
    def tools(self) -> tuple[Callable[..., Any], ...]:
        """What was added, in order."""
        with self._lock:
            return tuple(self._tools.values())

    @property
    def hidden(self) -> frozenset[str]:
        """Names that are neither offered nor answered."""
        return self._hidden

    @property
    def pinned(self) -> frozenset[str]:
        """Names that are offered however long the list gets."""
        return self._pinned

    def add(self, tool: Callable[..., Any]) -> None:
        """Add a tool; one that is defined again takes its older self's place.

        Raises:
            FatalError: another tool has this name; says where both come from.
        """
        name = tool.tool_options.name
        with self._lock:
            known = self._tools.get(name)
            if known is not None and not is_same_tool(known, tool):
                raise collision(name, known, tool)
            self._tools[name] = tool
            self._hidden -= {name}
        self._changed()

    def remove(self, name: str) -> bool:
        """Take a tool that was added away; False where there is none."""
        with self._lock:
            found = self._tools.pop(name, None) is not None
        if found:
            self._changed()
        return found

    def hide(self, name: str) -> None:
        """Neither offer nor answer `name`, wherever it comes from."""
        with self._lock:
            self._hidden |= {name}
            self._pinned -= {name}
        self._changed()

    def show(self, name: str) -> None:
        """Offer `name` again, and do so even where the list is too long to offer all."""
        with self._lock:
            self._hidden -= {name}
            self._pinned |= {name}
        self._changed()

    # -- who wants to know -------------------------------------------------------------------------

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change from now on, on the thread that made it."""
        with self._lock:
            self._watchers = (*self._watchers, changed)

    def unwatch(self, changed: Callable[[], None]) -> None:
        """Call it no more; nothing where it is not called."""
        with self._lock:
            self._watchers = tuple(each for each in self._watchers if each != changed)

    def _changed(self) -> None:
        with self._lock:
            self.version += 1
            watchers = self._watchers
        for changed in watchers:
            changed()


def join_tools(*groups: Iterable[Callable[..., Any]]) -> tuple[Callable[..., Any], ...]:
    """Return the tools of all groups, each once, in order; the newer of two definitions.

    Raises:
        FatalError: two different tools have one name; says where both come from.
    """
    joined: dict[str, Callable[..., Any]] = {}
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


def is_same_tool(one: Any, other: Any) -> bool:
    """Tell whether `other` is `one` defined again.

    That is a function of the same name in the same module, at its top level: of closures a factory
    makes many, and lambdas have no name. Tools that are data are the same where they are equal.
    """
    if one is other or one == other:
        return True
    if not (inspect.isfunction(one) and inspect.isfunction(other)):
        return False
    same = (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
    return same and "<" not in one.__qualname__


def collision(name: str, one: Any, other: Any) -> FatalError:
    """Return the error that two tools have one name."""
    return FatalError(
        f"Two tools are named {name!r}: {source_of(one)}, and {source_of(other)}; rename one with "
        "@tool(name=...), or take one away."
    )


def source_of(tool: Any) -> str:
    """Return where a tool comes from, as a person finds it: a file and line, or a package."""
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
