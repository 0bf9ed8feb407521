"""Set-up for all tests: homes of their own, an empty folder each, and a look at what they leave."""

import gc
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import hypothesis
import psutil
import pytest
from hypothesis.internal.conjecture import providers

pytest_plugins = [
    *("tests.support.needs", "tests.support.time_limits"),
    "tests.support.kernels.notebooks",
]

# How long one example takes says something about the machine only. The examples are the same in
# each run, so that no run fails for what nobody changed; `make explore` tries new ones.
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tests")

# Tests never write to the home of whoever runs them, and never use their key.
_homes = tempfile.mkdtemp(prefix="agent-magics-homes-")
HOMES = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
# What others keep there takes seconds to be made, such as matplotlib's list of fonts. No authority
# is trusted: each client would read all of the system's, for which it takes 15 ms.
SHARED = ("XDG_CACHE_HOME", "SSL_CERT_DIR")
for name in (*HOMES, *SHARED):
    os.environ[name] = str(Path(_homes, name))
    Path(_homes, name).mkdir()
for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "SSL_CERT_FILE"):
    os.environ.pop(name, None)

# Folders whose tests take longest.
DEAR = ("browser", "servers", "launcher", "attacks", "kernel", "mcp")
# Those whose files share one kernel, or one page.
SHARING = ("browser", "kernel")
# How the threads are named that a process keeps: the loop of all agents, its executor, the pump of
# all commands, threads for tools, which wait a while for the next one, who looks after files, and
# those on which Dask and fsspec wait for the network.
LASTING = (
    *("agent-engine", "asyncio_", "agent-exec", "agent-tool", "agent-tripwire"),
    *("Dask-Offload", "Dask-Callback"),
    "fsspecIO",
)
_ADDRESS = re.compile(r" at 0x[0-9a-f]{10}")
_numbers = count()  # of the folders of tests


@pytest.hookimpl(trylast=True)  # when the profile is chosen
def pytest_configure() -> None:
    """Make the examples of Hypothesis the same in each order of tests, unless new ones are asked
    for: they also contain numbers and words of the modules that are loaded by then.
    """
    assert hasattr(providers, "_get_local_constants")  # another version may name it otherwise
    if hypothesis.settings.default.derandomize:
        providers._get_local_constants = lambda: providers._local_constants


def pytest_unconfigure() -> None:
    """Remove the homes."""
    shutil.rmtree(_homes, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave modules and tests, which last, to no collection of garbage: each looks at millions."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[bool | None]:
    """Collect garbage between tests only: in one that nests too deeply for Python, finalizers of
    what earlier tests have left would have no room either.
    """
    try:
        return (yield)
    finally:
        made = gc.get_count()
        # At Python's own 700 it takes a twentieth of all.
        if due := [age for age, most in enumerate((10_000, 10, 10)) if made[age] > most]:
            gc.collect(max(due))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the dearest, so that no worker ends alone: folders, and files in which one soaks.

    Cells of a notebook keep their order, and so do the tests of a file that share one kernel or
    page: there a test's cells are the past of the next one's, as they are for a person. Pages
    without the extension come last in a file, since JupyterLab is loaded anew for each change.
    """
    if addresses := [item.nodeid for item in items if _ADDRESS.search(item.nodeid)]:
        raise pytest.UsageError(f"such an id is another in the next run: {addresses[0]}")
    dear = {item.path for item in items if item.get_closest_marker("soak")}
    dear |= {item.path for item in items if "launcher" in item.path.parts}
    items.sort(key=lambda item: (_place(item), item.path not in dear))


def _place(item: pytest.Item) -> tuple[int, str, bool, int]:
    (top, folder, *_) = item.path.relative_to(item.config.rootpath).parts
    if top == "notebooks":
        return len(DEAR), item.path.name, False, getattr(item, "cell_num", 0)
    if folder in SHARING:
        lacks = item.name.endswith("[without]")
        return DEAR.index(folder), item.path.name, lacks, item.location[1] or 0
    return DEAR.index(folder) if folder in DEAR else len(DEAR) + 1, "", False, 0


@pytest.fixture(scope="module", autouse=True)
def _own_homes() -> None:
    """Each file has its own records and settings, since an agent looks through all of them."""
    for name in HOMES:
        os.environ[name] = tempfile.mkdtemp(dir=_homes)


@pytest.fixture(scope="session")
def _place_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a worker makes the folders of its tests.

    On ext4 each of these gets inodes of another part of the disk. Without a journal, one for a new
    file is sought past all of its part that were deleted in the last five minutes.
    """
    place = tmp_path_factory.mktemp("tests")
    with suppress(FileNotFoundError):
        subprocess.run(["chattr", "+T", place], check=False, stderr=subprocess.DEVNULL)
    return place


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, _place_of_tests: Path) -> Path:
    """Return an empty folder of the test's own.

    pytest's also renews a link to the newest folder, which takes longer than most tests.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = _place_of_tests / f"{name}{next(_numbers)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No thread and no open port outlives the tests; `make/watched.py` sees to the rest."""
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    left = {each for each in left if not each.name.startswith(LASTING)}
    for thread in left:
        thread.join(timeout=5)
    assert not [thread for thread in left if thread.is_alive()]
    connections = psutil.Process().net_connections(kind="inet")
    assert not [each.laddr for each in connections if each.status == psutil.CONN_LISTEN]
