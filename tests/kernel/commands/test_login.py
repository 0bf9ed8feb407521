"""`%agent login` in a real kernel: the key is typed, used, and found nowhere afterwards."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.support.kernels.driver import Kernel, NotebookKernelManager
from tests.support.models.server import ModelServer

KEY = "sk-canary-1f0e9d8c7b6a5948"
LOGIN = "%agent login {}"
NO_KEYRING = "import sys; sys.modules['keyring'] = None"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(chat=["Hello."], api_key=KEY) as server:
        yield server


@pytest.fixture
def homes(tmp_path: Path) -> dict[str, str]:
    """Folders of the person's own, so that all that was written can be looked through."""
    names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "IPYTHONDIR")
    return {name: str(tmp_path / name.lower()) for name in names}


@pytest.fixture
def kernel(tmp_path: Path, homes: dict[str, str]) -> Iterator[Kernel]:
    (tmp_path / "work").mkdir()
    with Kernel(cwd=str(tmp_path / "work"), env=homes) as kernel:
        kernel.run(NO_KEYRING)
        kernel.run("%load_ext agent_magics")
        yield kernel


def place_of(server: ModelServer) -> str:
    return server.base_url.removeprefix("http://").removesuffix("/v1")


def save_as_notebook(messages: list[dict], path: Path) -> None:
    """Save what a front end would have: each cell's code and its outputs."""
    cells: list = []
    for message in messages:
        if message["msg_type"] == "execute_input":
            cells.append(nbformat.v4.new_code_cell(message["content"]["code"]))
        elif message["msg_type"] in ("stream", "display_data", "execute_result", "error"):
            cells[-1].outputs.append(nbformat.v4.output_from_msg(message))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def files_with(text: str, folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def test_a_key_is_typed_used_and_found_nowhere(
    kernel: Kernel, server: ModelServer, tmp_path: Path
) -> None:
    place, messages, asked = place_of(server), [], []

    def look(message: dict) -> None:
        messages.append(message)
        if message["msg_type"] == "input_request":
            asked.append(message["content"])

    seen = {"on_message": look, "on_other": look}
    kernel.run(f"%config AgentMagics.base_url = {server.base_url!r}", **seen)
    outcome = kernel.run(LOGIN.format(""), allow_stdin=True, answers=[KEY], **seen)
    assert outcome.status == "ok", outcome.text
    assert place in outcome.text and "credentials.json" in outcome.text
    assert [each["password"] for each in asked] == [True] and place in asked[0]["prompt"]

    status = kernel.run("%agent status", **seen).text
    assert f"for {place}: the file" in status
    assert kernel.run("%%agent --approval never\nGo.\n", **seen).status == "ok"
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    # A command, and the python tool's namespace, do not have it.
    kernel.run("!env", **seen)
    kernel.run("print(In, _ih, Out, get_ipython().user_ns.keys())", **seen)
    kernel.run("%history -n", **seen)
    kernel.run("import json; print(json.dumps([*map(str, globals().values())])[:100000])", **seen)
    kernel.run("get_ipython().history_manager.writeout_cache()", **seen)
    assert KEY not in str(messages)
    save_as_notebook(messages, tmp_path / "work" / "saved.ipynb")
    assert place in (tmp_path / "work" / "saved.ipynb").read_text(), "the outputs are in it"
    assert files_with(KEY, tmp_path) == ["xdg_config_home/agent-magics/credentials.json"]
    assert files_with("%agent login", tmp_path), "the history is looked through"

    kept = tmp_path / "xdg_config_home/agent-magics/credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "forgotten" in kernel.run("%agent logout", **seen).text
    assert files_with(KEY, tmp_path) == []
    assert f"for {place}: none" in kernel.run("%agent status", **seen).text


def test_a_notebook_that_was_saved_after_it_does_not_hold_the_key(
    tmp_path: Path, homes: dict[str, str], server: ModelServer
) -> None:
    """The kernel has its key from an earlier login; the model says it, code prints it."""
    folder = tmp_path / "xdg_config_home" / "agent-magics"
    folder.mkdir(parents=True)
    kept = folder / "credentials.json"
    with open(os.open(kept, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(f'{{"version": 1, "hosts": {{"{place_of(server)}": {{"key": "{KEY}"}}}}}}')
    with ModelServer(chat=[f"Your key is {KEY}, I think."]) as teller:
        place, mine = place_of(teller), place_of(server)
        kept.write_text(kept.read_text().replace(mine, place))
        cells = [
            NO_KEYRING,
            f"%load_ext agent_magics\n%config AgentMagics.base_url = {teller.base_url!r}",
            "%%agent --approval never\nWhat is my key?\n",
            "%agent status",
            "print(_agent.text)",
        ]
        notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
        client = NotebookClient(notebook, kernel_manager_class=NotebookKernelManager, timeout=60)
        client.execute(env={**os.environ, **homes}, cwd=str(tmp_path))
        assert teller.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    saved = nbformat.writes(notebook)
    assert "Your key is [redacted]" in saved
    assert KEY not in saved
    assert files_with(KEY, tmp_path) == ["xdg_config_home/agent-magics/credentials.json"]


def test_where_nobody_can_type_it_says_so(kernel: Kernel) -> None:
    outcome = kernel.run("%agent login openai")
    assert outcome.status == "error" and not outcome.prompts
    assert "takes no input" in outcome.text and "OPENAI_API_KEY" in outcome.text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"%agent login {KEY}", "take it out"),
        (f"%agent login openai {KEY}", "take it out"),
        ("%agent login nobody", "openrouter"),
        ("%agent login http://", "openrouter"),
        ("%agent logout openai", "No key for api.openai.com"),
        ("%agent login opneai", "did you mean openai?"),
    ],
)
def test_misuse_is_told_without_what_stood_there(kernel: Kernel, line: str, words: str) -> None:
    outcome = kernel.run(line, allow_stdin=True, answers=["x"])
    assert outcome.status == "error" and not outcome.prompts
    assert words in outcome.text and KEY not in outcome.text


@pytest.mark.parametrize("typed", ["", "   ", "two words", "schlüssel"])
def test_what_is_no_key_changes_nothing(kernel: Kernel, tmp_path: Path, typed: str) -> None:
    kernel.run("%agent login openai", allow_stdin=True, answers=[KEY])
    outcome = kernel.run("%agent login openai", allow_stdin=True, answers=[typed])
    assert outcome.status == "error" and "is as it was" in outcome.text
    assert files_with(KEY, tmp_path) == ["xdg_config_home/agent-magics/credentials.json"]


def test_a_variable_that_goes_first_is_named(kernel: Kernel) -> None:
    kernel.run("import os; os.environ['OPENROUTER_API_KEY'] = 'x'")
    outcome = kernel.run("%agent login openrouter", allow_stdin=True, answers=[KEY])
    assert "OPENROUTER_API_KEY" in outcome.text


def test_nbclient_says_that_nobody_can_type(tmp_path: Path, homes: dict[str, str]) -> None:
    cells = ["%load_ext agent_magics", "%agent login openai"]
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
    client = NotebookClient(notebook, kernel_manager_class=NotebookKernelManager, timeout=60)
    with pytest.raises(CellExecutionError, match="takes no input"):
        client.execute(env={**os.environ, **homes}, cwd=str(tmp_path))
