"""Remembers which agent of a tree changed each file last, and which agents know of that change."""

from collections.abc import Iterable
from threading import Lock


class Writers:
    """The last writers of files, shared by an agent and its sub-agents; thread-safe."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, set[str]]] = {}  # path -> writer, those who know
        self._lock = Lock()

    def wrote(self, agent: str, paths: Iterable[str]) -> None:
        """Take note that an agent has changed files."""
        with self._lock:
            for path in paths:
                self._last[path] = agent, {agent}

    def saw(self, agent: str, path: str) -> None:
        """Take note that an agent has read a file."""
        with self._lock:
            if path in self._last:
                self._last[path][1].add(agent)

    def take_news(self, agent: str, paths: Iterable[str]) -> dict[str, str]:
        """Return the writers of those files that others have changed unknown to an agent.

        From then on the agent counts as knowing of them.

        Args:
            agent: the path of the agent that is about to write.
            paths: the absolute paths of the files.
        """
        news = dict[str, str]()
        with self._lock:
            for path in paths:
                writer, known = self._last.get(path, (agent, {agent}))
                if agent not in known:
                    news[path] = writer
                    known.add(agent)
        return news
