"""Gives the tests of the browser to half of the workers; of all others each worker gets a file.

Each worker that has some of them starts a JupyterLab and a Chromium of its own, which take ten
seconds of a processor.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

_BROWSER = "tests/browser/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> "_Scheduler | None":
    return _Scheduler(config, log) if config.option.dist == "loadfile" else None


class _Scheduler(LoadFileScheduling):
    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._files: list[str] = []  # those of the browser, in the order of the run

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of what one worker runs."""
        file = super()._split_scope(nodeid)
        if not file.startswith(_BROWSER):
            return file
        if file not in self._files:
            self._files.append(file)
        return f"{_BROWSER}{self._files.index(file) % max(1, self.numnodes // 2)}"
