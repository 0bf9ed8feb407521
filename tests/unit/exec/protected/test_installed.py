"""Law: what a command changed in the kernel's environment is told, and we do not import it."""

import os
import site
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from agent_magics.exec.protected.installed import _package_of, installed_below
from agent_magics.exec.protected.tripwire import Tripwire
from agent_magics.exec.sandbox.plan import build_confinement
from agent_magics.files import trusted_imports
from agent_magics.files.beneath import real_path
from agent_magics.files.trusted_imports import distrust_changes, is_trusted

PACKAGE = "lib/python3.11/site-packages/package"


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment in the workspace, with a module deeper than what is compared by content."""
    monkeypatch.setattr(trusted_imports, "_distrusted", {str(tmp_path)})
    folder = tmp_path / ".venv"
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(site, "getsitepackages", lambda: [str((folder / PACKAGE).parent)])
    (folder / PACKAGE / "a/b/__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "a/b/c.py", "a/b/__pycache__/c.cpython-311.pyc", "data.bin"):
        (folder / PACKAGE / name).write_text("mine", encoding="utf-8")
    (folder / PACKAGE).with_name("other").mkdir()
    for prepared in ("prepared", "prepared-cache"):
        (folder / "lib" / prepared).mkdir()
        (folder / "lib" / prepared / "c.py").write_text("evil", encoding="utf-8")
        (folder / "lib" / prepared / "c.cpython-311.pyc").write_text("evil", encoding="utf-8")
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    yield folder
    (folder / PACKAGE / "a/b").chmod(0o755)


def arm(environment, tmp_path_factory, tier=1, tell=None):
    workspace = environment.parent
    tripwire = Tripwire(str(tmp_path_factory.mktemp("quarantine")), every=None)
    confinement = build_confinement(
        tier=tier,
        policy="workspace-write",
        roots=[workspace],
        cwd=workspace,
        tmp=tmp_path_factory.mktemp("tmp"),
    )
    return tripwire, tripwire.arm(confinement, tell)


def overwrite(file: Path) -> None:
    file.write_text("evil", encoding="utf-8")


def overwrite_and_set_times(file: Path) -> None:
    overwrite(file)
    os.utime(file, (1, 1))


def exchange(file: Path) -> None:
    (file.parent / "new").write_text("evil", encoding="utf-8")
    (file.parent / "new").rename(file)


def exchange_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("old"))
    file.parent.mkdir()
    overwrite(file)


def move_another_there(file: Path) -> None:
    """Put a folder there whose files were written before."""
    file.parent.rename(file.parent.with_name("old"))
    (file.parents[5] / "prepared").rename(file.parent)


def hide(file: Path) -> None:
    overwrite(file)
    file.parent.chmod(0o311)


def show_names_only(file: Path) -> None:
    overwrite(file)
    file.parent.chmod(0o444)


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    """The changes of the fixture itself are none of the command; what a test leaves is its own."""
    monkeypatch.setattr("agent_magics.exec.protected.installed._TICK", -1)
    distrust_changes(None)
    yield
    distrust_changes(None)


def wait_for_a_tick(folder: Path) -> None:
    """Wait until the file system's clock has gone on."""
    probe = folder / "probe"
    probe.touch()
    first = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == first:
        probe.touch()
    probe.unlink()


CHANGES = [
    *(overwrite, overwrite_and_set_times, exchange, exchange_folder, move_another_there, hide),
    show_names_only,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_module_is_told_and_not_imported(environment, tmp_path_factory, change):
    file = environment / PACKAGE / "a/b/c.py"
    wait_for_a_tick(environment.parent)
    told = []
    tripwire, watch = arm(environment, tmp_path_factory, tell=told.extend)
    wait_for_a_tick(environment.parent)
    assert is_trusted(str(file))
    change(file)
    watch.finish()
    tripwire.look_at_environment()
    told = [each for each in told if "environment" in each.why]
    assert len(told) == 1
    assert not is_trusted(str(file)) and not is_trusted(str(environment / PACKAGE / "__init__.py"))
    assert is_trusted(str((environment / PACKAGE).with_name("other") / "__init__.py"))
    assert watch.finish() == []
    tripwire.look_at_environment()
    assert len(told) == 1


def test_where_too_much_was_changed_nothing_is_imported(environment, tmp_path_factory, monkeypatch):
    monkeypatch.setattr("agent_magics.exec.protected.installed._MOST_DISTRUSTED", 0)
    wait_for_a_tick(environment.parent)
    tripwire, watch = arm(environment, tmp_path_factory)
    wait_for_a_tick(environment.parent)
    overwrite(environment / PACKAGE / "a/b/c.py")
    watch.finish()
    tripwire.look_at_environment()
    assert not is_trusted(str((environment / PACKAGE).with_name("other") / "__init__.py"))


def test_of_the_standard_library_one_module_is_distrusted():
    module = real_path(os.__file__)
    assert _package_of(module) == module
    package = f"{os.path.dirname(module)}/json"
    assert _package_of(f"{package}/decoder.py") == package


def test_an_environment_that_is_too_large_is_told_once(environment, tmp_path_factory, monkeypatch):
    monkeypatch.setattr("agent_magics.exec.protected.installed._LONGEST", -1)
    told = []
    tripwire, watch = arm(environment, tmp_path_factory, tell=told.extend)
    for _ in range(2):
        tripwire.look_at_environment()
    watch.finish()
    assert [each.path for each in told] == [str(environment)]


def test_whether_python_compiles_is_the_persons_choice_afterwards(monkeypatch):
    for compiles_nothing in (True, False):
        monkeypatch.setattr(sys, "dont_write_bytecode", compiles_nothing)
        for since in (1, 2, None):
            distrust_changes(since)
            assert sys.dont_write_bytecode is (compiles_nothing or since is not None)


def move_another_cache_there(file: Path) -> None:
    file.parent.rename(file.parent.with_name("old"))
    (file.parents[6] / "prepared-cache").rename(file.parent)


def test_a_change_just_before_a_search_is_told_once(environment, tmp_path_factory, monkeypatch):
    monkeypatch.setattr("agent_magics.exec.protected.installed._TICK", 10**10)
    (environment / PACKAGE / "sourceless.pyc").touch()
    told = []
    tripwire, watch = arm(environment, tmp_path_factory, tell=told.extend)
    for _ in range(2):
        tripwire.look_at_environment()
    watch.finish()
    assert len(told) == 1
    assert (environment / PACKAGE / "sourceless.pyc").exists(), "Python would not write it anew"


@pytest.mark.parametrize("change", [overwrite_and_set_times, move_another_cache_there])
def test_compiled_modules_are_removed(environment, tmp_path_factory, change):
    compiled = environment / PACKAGE / "a/b/__pycache__/c.cpython-311.pyc"
    wait_for_a_tick(environment.parent)
    tripwire, watch = arm(environment, tmp_path_factory)
    wait_for_a_tick(environment.parent)
    change(compiled)
    watch.finish()
    tripwire.look_at_environment()
    assert not compiled.exists()


WRITTEN = {
    "c.py": overwrite,
    "__pycache__/c.cpython-311.pyc": overwrite,
    "./c.py": move_another_there,
    "./__pycache__/c.cpython-311.pyc": move_another_cache_there,
}


@pytest.mark.parametrize("written", WRITTEN)
def test_what_a_running_command_wrote_is_not_imported(environment, tmp_path_factory, written):
    file = environment / PACKAGE / "a/b/c.py"
    spec = spec_from_file_location("c", file)
    spec.cached = str(file.parent / "__pycache__/c.cpython-311.pyc")
    wait_for_a_tick(environment.parent)
    tripwire, watch = arm(environment, tmp_path_factory)
    wait_for_a_tick(environment.parent)
    assert not trusted_imports._is_changing(spec) and sys.dont_write_bytecode
    WRITTEN[written](file.parent / written)
    assert trusted_imports._is_changing(spec)
    tripwire.look_at_environment()
    overwrite(file.parent / written)
    assert trusted_imports._is_changing(spec), "it runs on"
    watch.finish()
    assert trusted_imports._is_changing(spec), "nobody has looked"
    tripwire.look_at_environment()
    assert not trusted_imports._is_changing(spec), "judged by its place from now on"


def test_nothing_is_searched_where_it_is_mounted_or_stands_elsewhere(environment, tmp_path_factory):
    _, watch = arm(environment, tmp_path_factory, tier=2)
    assert trusted_imports._changing is None
    watch.finish()
    assert installed_below([str(environment.parent)]) == [str(environment)]
    assert installed_below([str(tmp_path_factory.mktemp("other"))]) == []
