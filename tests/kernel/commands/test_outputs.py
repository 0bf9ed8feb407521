"""What ``%agent`` shows of files, prompts and calls: never a key, and nothing hidden."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels.cells import scripted
from tests.support.kernels.driver import Kernel
from tests.support.skills import TOOL, write_skill

KEY = "sk-proj-4711-Never_Shown-To|Anybody-At-All"
# Turns the direction of what follows, is drawn as nothing, or has a meaning for terminals.
HIDDEN = ("\u202e", "\u200b", "\ufeff", "\x1b")
NAME = f"a{'b'.join(HIDDEN)}c"
PATCH = f"""\
*** Begin Patch
*** Update File: conf.py
@@
-KEY = '{KEY}'
+KEY = '{KEY}', 1
*** End Patch"""
CODE = f"used = '{KEY}'\nprint(used)"
COMMANDS = (
    *("status", "project", "settings", "settings trust", "approvals", "mcp", "tools"),
    *("tools trust", "skills", "skills trust", "skills show sales", "prompts", "prompts trust"),
    *("memory", "history", "history --code", "diff", "diff list", "review", "rewind 1", "sessions"),
    *("undo", "redo", "undo 1", "export", "export code.ipynb", "usage", "resume last"),
    "rewind 1 --yes",
)
# There is nothing for them where another one came before.
MAY_FAIL = {"diff", "diff list", "review", "rewind 1", "rewind 1 --yes", "undo", "redo", "undo 1"}
MAY_FAIL |= {"resume last"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel's workspace: a project with hostile names, and the person's key in its texts."""
    place = tmp_path_factory.mktemp("mine")
    ours = place / ".agent_magics"
    for folder in (ours / "skills", place / ".claude/skills"):
        write_skill(folder, "sales", f"{NAME} {KEY}")
        (folder / NAME).mkdir()
        (folder / NAME / "SKILL.md").write_text(f"---\nname: odd\ndescription: {KEY}\n---\nGo.\n")
    (ours / "prompts").mkdir()
    (ours / "prompts/monthly.md").write_text(f"---\ndescription: '{NAME} {KEY}'\n---\nGo.\n")
    (ours / f"prompts/{NAME}.md").write_text("Go.\n")
    (ours / "memory").mkdir()
    (ours / "memory/topic.md").write_text(f"# {NAME} {KEY}\n\nAbout:\n- file `{KEY}` (5f70bf18)\n")
    (ours / "tools").mkdir()
    (ours / f"tools/{NAME}.py").write_text(TOOL)
    # As JSON, since a TOML text may hold no control characters.
    (place / "pyproject.toml").write_text(
        f"[tool.agent-magics]\n{json.dumps(NAME)} = {json.dumps(KEY)}\n"
        "api_key = 'a key of the project, 4711'\nbase_url = 'http://me:key-4711@host/v1'\n"
    )
    (place / "conf.py").write_text(f"KEY = '{KEY}'\n")
    return place


@pytest.fixture(scope="module")
def kernel(place: Path) -> Iterator[Kernel]:
    env = {"HOME": str(place / "home"), "OPENAI_API_KEY": KEY}
    with Kernel(cwd=str(place), env=env) as kernel:
        calls = f"Call('apply_patch', {{'input': {PATCH!r}}}), Call('python', {{'code': {CODE!r}}})"
        assert kernel.run(scripted(f"[{calls}]", "'Done.'")).status == "ok"
        kernel.run("%config AgentMagics.approval = 'never'")
        # The prompt's key is cut off where lists shorten it.
        outcome = kernel.run(f"%%agent\n{'word ' * 15} {KEY}\n")
        assert outcome.status == "ok", outcome.text
        yield kernel


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shows_neither_a_key_nor_hidden_characters(
    kernel: Kernel, place: Path, command: str
) -> None:
    outcome = kernel.run(f"%agent {command}")
    assert outcome.status == "ok" or command in MAY_FAIL
    shown = [
        text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        for output in outcome.outputs
        for text in output.get("data", {"stream": output.get("text", "")}).values()
    ]
    assert shown
    for text in shown:
        assert "4711" not in text
        assert not [each for each in HIDDEN if each in text.replace("\x1b[", "")]


def test_an_error_that_quotes_a_file_shows_no_key(kernel: Kernel, place: Path) -> None:
    (place / "own.py").write_text("a\nb\n")
    written = {"path": "own.py", "content": f"a\nKEY = '{KEY}'\nb\n"}
    kernel.run(scripted(f"Call('write_file', {written})", "'Done.'", name="other"))
    kernel.run("%%agent --name other --approval never --tools write_file\nWrite it.\n")
    (place / "own.py").write_text("a\nmine\nb\n")
    outcome = kernel.run("%agent review revert 1 other")
    assert "the agent's line “KEY = '[redacted]'” is not in own.py any more" in outcome.text


def test_exported_code_holds_no_key(kernel: Kernel, place: Path) -> None:
    kernel.run("%agent export exported.ipynb")
    assert "4711" not in (place / "exported.ipynb").read_text()
