"""Where modules may come from, and whose imports that concerns."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import agent_magics
from agent_magics import Agent, FatalError
from agent_magics.files import trusted_imports
from agent_magics.files.own_places import kernel_places
from agent_magics.files.trusted_imports import distrust, is_trusted
from agent_magics.mcp.transports.stdio import server_environment
from agent_magics.protocol.mcp import McpServerConfig
from tests.support.turns import scripted

HOSTILE = "import pathlib; pathlib.Path('hostile-{name}').touch()"


@pytest.fixture(autouse=True)
def no_roots_of_others(monkeypatch):
    """What other tests of this process opened as a workspace does not count here."""
    monkeypatch.setattr(trusted_imports, "_distrusted", set())


def test_what_is_installed_is_trusted_and_the_folders_of_a_run_are_not(tmp_path):
    assert all(map(is_trusted, kernel_places()))
    assert is_trusted(str(Path(agent_magics.__file__).parent))
    for path in ("", "src", ".", str(tmp_path), f"{tmp_path}/a/b"):
        assert not is_trusted(path), path


def test_a_link_is_judged_by_both_its_ends(tmp_path, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (tmp_path / "inside").symlink_to(sys.prefix)
    (elsewhere / "outside").symlink_to(tmp_path)
    assert is_trusted(str(elsewhere))
    assert not is_trusted(str(tmp_path / "inside"))
    assert not is_trusted(str(elsewhere / "outside"))


def test_a_folder_that_commands_may_write_is_not_trusted_any_more(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    assert is_trusted(str(root / "lib"))
    distrust([root])
    assert not is_trusted(str(root / "lib"))


def test_a_kernel_that_starts_in_the_root_folder_trusts_what_lies_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    distrust(["/", tmp_path])
    assert is_trusted("/opt/lib")
    assert not is_trusted(str(tmp_path / "lib"))


UNKNOWN_PRICE = {"max_cost": 1.0, "model": "of no known price"}


@pytest.mark.parametrize(
    ("use", "refused"),
    [
        (Agent.configure, {"mcp_servers": {"x": {}}}),
        (Agent.configure, {"language_servers": {"x": 1}}),
        (Agent.configure, {"hooks": [1]}),
        (Agent.configure, UNKNOWN_PRICE),
        (Agent.turn_config, {"hooks": [1]}),
        (Agent.turn_config, {"output": object()}),
        (Agent.turn_config, UNKNOWN_PRICE),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else each.__name__,
)
def test_the_folders_of_settings_that_are_refused_stay_trusted(use, refused, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with scripted() as agent, pytest.raises(FatalError) as refusal:
        use(agent, writable_roots=[root], **refused)
    assert "writable_roots" not in str(refusal.value)
    assert is_trusted(str(root / "lib"))


def test_the_standard_library_is_trusted_whatever_the_workspace_is():
    for root in ("/", "/usr", sys.base_prefix):
        distrust([root])
    assert is_trusted(os.__file__)
    assert is_trusted(os.path.dirname(os.__file__))
    assert not is_trusted("/usr/share/x.py")


def test_an_environment_inside_the_workspace_is_trusted_and_what_stands_beside_it_is_not(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    package = str(Path(agent_magics.__file__).parents[1])
    code = (
        f"import sys; sys.path.append({package!r})\n"
        "from agent_magics.files.trusted_imports import is_trusted\n"
        "import sysconfig, os\n"
        "print(is_trusted(sysconfig.get_path('purelib')), is_trusted(os.getcwd() + '/lib'))"
    )
    done = subprocess.run(
        [tmp_path / ".venv/bin/python", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True", "False"], done.stderr


SCRIPT = """
import asyncio, pathlib, threading
import agent_magics
for name in ("aiohttp", "pydantic", "platformdirs", "anywidget", "mcp", "tomllib", "yarl"):
    pathlib.Path(f"{name}.py").write_text(HOSTILE.format(name=name))
from agent_magics import Agent, Call, ScriptedModel, tool

@tool
def mine() -> str:
    "Import a module of the person's, late."
    import beside
    return beside.WORD

agent = Agent(ScriptedModel([Call("mine", {}), "Done."]), tools=[mine], approval="never")
result = agent.run_sync("Go.")
assert "a word" in str([item for item in agent.session.conversation.history.items]), result
Agent("gpt-x", api_key="k", base_url="http://127.0.0.1:9/v1")
from agent_magics.models.transport import load_aiohttp
print(load_aiohttp().__file__)
threading.Thread(target=__import__, args=("alone",)).start()
"""


@pytest.mark.soak
def test_a_script_of_the_person_finds_its_own_modules_and_we_do_not(tmp_path):
    (tmp_path / "run.py").write_text(f"HOSTILE = {HOSTILE!r}\n{SCRIPT}", encoding="utf-8")
    (tmp_path / "beside.py").write_text("WORD = 'a word'", encoding="utf-8")
    (tmp_path / "alone.py").write_text("print('alone')", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "site-packages/aiohttp" in done.stdout
    assert done.stdout.endswith("alone\n"), "what only the person can have meant is found"
    assert not list(tmp_path.glob("hostile-*"))


@pytest.mark.soak
def test_a_plugin_beside_a_module_in_the_workspace_is_none(tmp_path):
    info = tmp_path / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: evil\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[agent_magics.tools]\nevil = evil", encoding="utf-8")
    (tmp_path / "evil.py").write_text(HOSTILE.format(name="evil"), encoding="utf-8")
    code = (
        "from agent_magics.tools.catalog.discovery import installed_tools\n"
        "print(installed_tools())\n"
        "from importlib.metadata import version\nprint(version('evil'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "Discovered(tools=(), warnings=(), skills=())\n1.0\n", done.stderr
    assert not list(tmp_path.glob("hostile-*"))


@pytest.mark.parametrize(
    "line",
    [
        *(
            "python3 -m name",
            "python3 -um name",
            "python3 -c code",
            "python -mname",
            "python -umname",
        ),
        *("python -X dev -m name", "python -W ignore -OBm name", "/opt/python3.12 -Xdev -mname"),
        *("pypy3 -mname", "env python -m name", "uv run python -m name", "env python -mname"),
        *(
            "sh -c 'exec python3 -um name'",
            "bash -lc 'cd x; python -mname'",
            "env -i python -Imname",
        ),
        *("timeout 60 python -c code", "nice -n 5 python -W ignore -mname"),
    ],
)
def test_a_server_does_not_take_its_module_from_the_workspace(line):
    command, *words = shlex.split(line)
    config = McpServerConfig("name", command, tuple(words))
    assert server_environment(config, {})["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize(
    "line",
    ["python server.py -c x", "python -u server.py -m x", "node -c x", "uv run server.py -m x"],
)
def test_a_server_s_script_finds_the_modules_beside_it(line):
    command, *words = line.split()
    config = McpServerConfig("name", command, tuple(words))
    assert "PYTHONSAFEPATH" not in server_environment(config, {})
