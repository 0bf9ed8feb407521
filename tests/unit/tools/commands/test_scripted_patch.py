"""Patches inside shell commands: found and applied as the tool, or refused before anything runs."""

from pathlib import Path

import pytest

from agent_magics.models.recordings.scripted import Call
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import ApprovalRequested, ExecCommandBegin, PatchApplyEnd
from agent_magics.tools.commands.scripted_patch import find_patch
from agent_magics.tools.commands.shell import assess_shell, shell
from tests.support.contexts import make_context
from tests.support.turns import scripted

PATCH = "*** Begin Patch\n*** Add File: a.txt\n+one $HOME\n*** End Patch"
PLAIN = PATCH.replace(" $HOME", "")
NO_PROGRAMS = {"PATH": "/nowhere"}


def paths_of(script: str, workdir: str | None = None) -> list[str] | None:
    found = find_patch(["bash", "-lc", script], workdir, NO_PROGRAMS)
    return None if found is None else [each.path for each in found]


@pytest.mark.parametrize(
    ("script", "path"),
    [
        (f"apply_patch <<'EOF'\n{PATCH}\nEOF", "a.txt"),
        (f"apply_patch <<'EOF'\n{PATCH}\nEOF\n\n", "a.txt"),
        (f'  apply_patch << "PATCH"\n{PATCH}\nPATCH\n', "a.txt"),
        (f"apply_patch <<EOF\n{PLAIN}\nEOF", "a.txt"),
        (f"applypatch <<-'EOF'\n{PATCH}\n\tEOF", "a.txt"),
        (f"apply_patch '{PATCH}'", "a.txt"),
        (f"cd sub && apply_patch <<'EOF'\n{PATCH}\nEOF", "sub/a.txt"),
        (f"cd 'my folder' && apply_patch <<'EOF'\n{PATCH}\nEOF", "my folder/a.txt"),
        (f"cd -- sub&&apply_patch '{PATCH}'", "sub/a.txt"),
        (f"cd /tmp/x && apply_patch <<'EOF'\n{PATCH}\nEOF", "/tmp/x/a.txt"),
    ],
)
def test_a_patch_is_found(script, path):
    assert paths_of(script) == [path]


def test_it_is_found_without_a_shell_and_in_the_folder_of_the_call():
    found = find_patch(["apply_patch", PATCH], "sub", NO_PROGRAMS)
    assert found is not None and found[0].path == "sub/a.txt"
    assert paths_of(f"cd inner && apply_patch '{PATCH}'", "sub") == ["sub/inner/a.txt"]


def test_a_move_goes_where_the_command_would_have_gone():
    patch = "*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** End Patch"
    (moved,) = find_patch(["apply_patch", patch], "sub", NO_PROGRAMS) or ()
    assert (moved.path, moved.move_to) == ("sub/a", "sub/b")


@pytest.mark.parametrize(
    "command",
    [
        ["ls", "apply_patch"],
        ["bash", "-c", "grep -r apply_patch src"],
        ["bash", "-c", "cat apply_patch.md; echo '*** Begin Patch'"],
        ["bash", "-c", "which apply_patch && true"],
        ["python3", "-c", f"apply_patch('''{PATCH}''')"],
        ["bash", "-c", "echo no_apply_patch"],
    ],
)
def test_another_command_is_left_alone(command):
    assert find_patch(command, None, NO_PROGRAMS) is None


@pytest.mark.parametrize(
    "script",
    [
        f"rm -r x && apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"apply_patch <<'EOF'\n{PATCH}\nEOF\npytest",
        f"apply_patch <<'EOF' && pytest\n{PATCH}\nEOF",
        f"cd a && cd b && apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"cd $HOME && apply_patch <<'EOF'\n{PATCH}\nEOF",
        "git diff | apply_patch",
        f"if true; then apply_patch '{PATCH}'; fi",
    ],
)
def test_a_part_of_a_script_is_refused_before_anything_runs(script):
    with pytest.raises(RespondToModel, match="Nothing of this script was run"):
        paths_of(script)


@pytest.mark.parametrize(
    "script", ["rg '(apply_patch )' src", 'git commit -m "Fix it (apply_patch is better)"']
)
def test_words_of_other_commands_are_no_program(script):
    assert paths_of(script) is None


def test_a_quoted_tilde_is_not_taken_for_the_home():
    with pytest.raises(RespondToModel, match="Nothing of this script was run"):
        paths_of(f"cd '~' && apply_patch <<'EOF'\n{PATCH}\nEOF")


def test_a_program_of_that_name_is_a_program(tmp_path):
    program = tmp_path / "apply_patch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = find_patch(["bash", "-c", "git diff | apply_patch"], None, {"PATH": str(tmp_path)})
    assert found is None


def test_what_a_shell_would_change_is_refused():
    with pytest.raises(RespondToModel, match=r"would replace .* <<'EOF' with quotes"):
        paths_of(f"apply_patch <<EOF\n{PATCH}\nEOF")


def test_a_patch_that_is_none_says_so():
    with pytest.raises(RespondToModel, match="line 2"):
        paths_of("apply_patch <<'EOF'\n*** Begin Patch\nnonsense\n*** End Patch\nEOF")


def test_it_is_judged_as_a_write(tmp_path):
    context = make_context(tmp_path, env=NO_PROGRAMS)
    script = f"cd /etc && apply_patch '{PATCH}'"
    (action,) = assess_shell({"command": ["bash", "-c", script]}, context)
    assert action.kind.value.startswith("write outside") and action.target == "/etc/a.txt"


# Every way in which a patch comes as a command.
WAYS = {
    "apply_patch": lambda patch: {"command": ["apply_patch", patch]},
    "script": lambda patch: {"command": ["bash", "-c", f"apply_patch <<'E'\n{patch}\nE"]},
    "permissions": lambda patch: {
        "command": ["apply_patch", patch.replace("\r", "")],
        "sandbox_permissions": {"write": [f"/tmp/{'x' if patch == PATCH else chr(13)}"]},
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_question_shows_its_diff_unless_a_text_of_the_call_has_a_carriage_return(way, tmp_path):
    context = make_context(tmp_path, env=NO_PROGRAMS)
    for patch in (PATCH, PATCH.replace("one", "o\rne"), PATCH.replace("HOME", "HOME\r")):
        (action,) = assess_shell(WAYS[way](patch), context)
        assert bool(action.show()) == (patch == PATCH), patch


def test_by_hand_it_is_applied_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = shell(["bash", "-c", f"apply_patch '{PATCH}'"])
    assert (tmp_path / "a.txt").read_text() == "one $HOME\n"
    assert "No command was run" in repr(result)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("shell", {"command": ["bash", "-lc", f"cd sub && apply_patch <<'E'\n{PATCH}\nE"]}),
        ("shell_command", {"command": f"cd sub && apply_patch <<'E'\n{PATCH}\nE"}),
        ("exec_command", {"cmd": f"apply_patch <<'E'\n{PATCH}\nE\n", "workdir": "sub"}),
        ("shell", {"command": ["apply_patch", PATCH], "workdir": "sub"}),
    ],
)
def test_in_a_turn_it_is_a_patch_and_no_command(tool, arguments, tmp_path):
    (tmp_path / "sub").mkdir()
    asked = []
    agent = scripted(
        Call(tool, arguments),
        "done",
        tools=[tool],
        cwd=tmp_path,
        approval="untrusted",
        on_question=lambda event: asked.append(event) or "approve",
    )
    with agent:
        result = agent.run_sync("go")
    (call,) = result.calls
    assert call.success and "A sub/a.txt" in call.output
    assert (tmp_path / "sub" / "a.txt").read_text() == "one $HOME\n"
    assert [type(event) for event in asked] == [ApprovalRequested]
    assert asked[0].target == str(Path("sub/a.txt"))
    kinds = [type(event) for event in result.events]
    assert PatchApplyEnd in kinds and ExecCommandBegin not in kinds
