"""Checks what tests need of a machine; tests that cannot run are listed at the end of the run.

A test that needs something is marked, ``@pytest.mark.needs("root", "program rg")``; one that finds
out at run time calls `require` or `not_tested`. Any other skip is an error.
"""

import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest

from agent_magics.exec.launcher.linux import landlock_abi
from agent_magics.exec.launcher_client import shared_launcher

CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_ROOT = Path(__file__).parents[2]
_TOLD = "not tested here: "


def require(*needs: str) -> None:
    """End the test as not tested where the machine lacks one of `needs` (keys of `CHECKS`)."""
    for need in needs:
        if reason := lacking(need):
            not_tested(need, reason)


def lacking(need: str) -> str:
    """Return why the machine lacks `need`, or ""."""
    kind, _, name = need.partition(" ")
    return CHECKS[kind](name)


def not_tested(what: str, reason: str) -> NoReturn:
    """End the test as not tested, for a reason found at run time."""
    pytest.skip(f"{_TOLD}{what} ({reason})")


def _why_not_root(_: str) -> str:
    return "" if os.geteuid() == 0 else "the tests do not run as root"


def _why_no_program(name: str) -> str:
    return "" if shutil.which(name) else f"{name} is not installed"


def _why_no_tier(number: str) -> str:
    able = shared_launcher().capabilities()
    return "" if able.tier >= int(number) else able.reason


def _why_no_abi(number: str) -> str:
    return "" if landlock_abi() >= int(number) else f"this kernel has Landlock {landlock_abi()}"


def _why_no_folder(path: str) -> str:
    return "" if os.access(path, os.W_OK) else f"{path} cannot be written to"


def _why_no_machine(name: str) -> str:
    return "" if name in platform.uname() else f"this is {platform.machine()}"


def _why_no_python(version: str) -> str:
    return "" if sys.version_info >= tuple(map(int, version.split("."))) else "this one is older"


def _why_no_chromium(_: str) -> str:
    return "" if any(map(shutil.which, CHROMIUM)) else "it is not installed"


def _why_no_labextension(_: str) -> str:
    return (
        ""
        if (_ROOT / "labextension/node_modules/marked-17").is_dir()
        else "not built: make labextension"
    )


def _why_no_server(folder: str) -> str:
    return "" if (_ROOT / f"build/{folder}.stamp").is_file() else "not installed: make servers"


def _why_no_package(name: str) -> str:
    return "" if find_spec(name) else f"{name} is not installed"


CHECKS: dict[str, Callable[[str], str]] = {
    "root": _why_not_root,
    "chromium": _why_no_chromium,
    "labextension": _why_no_labextension,
    "program": _why_no_program,  # program rg
    "tier": _why_no_tier,  # tier 2: of the sandbox
    "abi": _why_no_abi,  # abi 4: of Landlock
    "python": _why_no_python,  # python 3.12
    "folder": _why_no_folder,  # folder /dev/shm
    "machine": _why_no_machine,  # machine x86_64
    "server": _why_no_server,  # server mcp/npm
    "package": _why_no_package,  # package notebook
}


# -- the plugin, which tests/conftest.py registers -------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--untested",
        type=Path,
        metavar="FILE",
        help="patterns, one a line, of what need not be tested here; all else fails the run",
    )
    parser.addoption(
        "--list-untested",
        type=Path,
        metavar="FILE",
        help="write which tests were not run, as arguments for somebody who can: pytest @FILE",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*what): not tested where the machine lacks it")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        require(*mark.args)
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    numbers = {name: parameters.get(name) for name in ("tier", "abi")}
    require(*(f"{name} {number}" for name, number in numbers.items() if isinstance(number, int)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Iterator[None]:
    return _loud((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Iterator[None]:
    return _loud((yield))


def _loud(report: Any) -> Any:
    """Return the report; a skip that is not ours becomes a failure."""
    if report.skipped and not hasattr(report, "wasxfail") and not _reason(report).startswith(_TOLD):
        report.outcome = "failed"
        report.longrepr = f"skipped without tests/support/needs.py: {_reason(report)}"
    return report


def _reason(report: Any) -> str:
    """Return why a test was skipped; pytest stores (file, line, reason)."""
    return report.longrepr[2].removeprefix("Skipped: ")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run for tests that were not run and should have been."""
    if path := session.config.getoption("list_untested"):
        names = [f"{report.nodeid}\n" for report in _skipped(session.config)]
        path.write_text("".join(names), encoding="utf-8")
    if session.exitstatus == pytest.ExitCode.OK and _forbidden(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print one line for each thing that was not tested."""
    untested, forbidden = _untested(config), _forbidden(config)
    if untested:
        terminalreporter.section("not tested here")
    for line, count in sorted(untested.items()):
        wrong = "  <- it should have been, see --untested" if line in forbidden else ""
        terminalreporter.line(f"{_TOLD}{line}, {count} test{'s'[: count > 1]}{wrong}")


def _untested(config: pytest.Config) -> Counter[str]:
    """Return the needs that were missing, as ``what (reason)``, each with its number of tests."""
    return Counter(_reason(report).removeprefix(_TOLD) for report in _skipped(config))


def _skipped(config: pytest.Config) -> list[Any]:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.stats.get("skipped", []) if reporter else []


def _forbidden(config: pytest.Config) -> set[str]:
    """Return the lines that match no pattern of the file of ``--untested``."""
    path = config.getoption("untested")
    if path is None:
        return set()
    patterns = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    return {
        line
        for line in _untested(config)
        if not any(fnmatchcase(line, pattern) for pattern in patterns)
    }
