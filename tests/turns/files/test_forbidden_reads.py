"""A rule that forbids reading holds for every way in which a file gets to the model."""

import io
import itertools
import json
import os
import re
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from agent_magics import Agent, Call, ScriptedModel, ToolContext, tool
from agent_magics.dispatch.results.stored import Origin
from agent_magics.exec.launcher_client import shared_launcher
from agent_magics.protocol.errors import FatalError
from agent_magics.tools import STRUCTURE
from tests.support.needs import require
from tests.support.rows.echo import Echo

pytestmark = pytest.mark.soak

SECRET, NAME = "hunter2-hunter2", "payroll"
RULE = '[[rule]]\npermission = "read"\npattern = "{pattern}"\ndecision = "{decision}"\n'

# What the rule says, and where a file stands that it is about.
PATTERNS = {
    "secret/**": f"secret/{NAME}.txt",
    "**/*payroll*": f"a/b/c/d/e/{NAME}.txt",
    f"{NAME}.txt": f"{NAME}.txt",
}

# What a model may send; PATH is the forbidden file, FOLDER its folder, LINK a link to the file.
CALLS = {
    "read_file": {"path": "PATH"},
    "read_file link": {"path": "LINK"},
    "read_file window": {"path": "./PATH", "start_line": 1, "max_lines": 1},
    "read_file bytes": {"path": "PATH", "offset_bytes": 0},
    "read_file absolute": {"path": "CWD/PATH"},
    "read_file misspelt": {"path": "PATHx"},
    "read_file csv": {"path": "FOLDER/payroll.csv"},
    "read_file ipynb": {"path": "FOLDER/payroll.ipynb"},
    "grep_files": {"pattern": "hunter"},
    "grep_files names": {"pattern": "hunter", "output_mode": "files_with_matches"},
    "grep_files counts": {"pattern": "hunter", "output_mode": "count"},
    "grep_files path": {"pattern": "hunter", "path": "PATH"},
    "grep_files folder": {"pattern": "hunter", "path": "FOLDER"},
    "grep_files ignored": {"pattern": "nothing", "path": "ignoring"},
    "glob": {"pattern": "**/*"},
    "glob name": {"pattern": "payroll*"},
    "glob folder": {"pattern": "*", "path": "FOLDER"},
    "list_dir": {"path": ".", "recursive": True, "include_hidden": True},
    "list_dir folder": {"path": "FOLDER"},
    "list_dir size": {"path": "FOLDER", "sort": "size", "detail_level": "full"},
    "list_dir misspelt": {"path": "PATHx"},
    "view_image": {"path": "FOLDER/payroll.png"},
    "view_image misspelt": {"path": "FOLDER/payrol.png"},
    "apply_patch": {
        "patch": "*** Begin Patch\n*** Update File: PATH\n@@\n-nothing like it\n+x\n*** End Patch"
    },
    "apply_patch link": {
        "patch": "*** Begin Patch\n*** Update File: LINK\n@@\n-nothing like it\n+x\n*** End Patch"
    },
    "apply_patch misspelt": {
        "patch": "*** Begin Patch\n*** Update File: PATHx\n@@\n-a\n+x\n*** End Patch"
    },
    "apply_patch move": {
        "patch": "*** Begin Patch\n*** Update File: PATH\n*** Move to: moved.txt\n*** End Patch"
    },
    "apply_patch fitting": {
        "patch": f"*** Begin Patch\n*** Update File: PATH\n@@\n-{SECRET}\n+x\n*** End Patch"
    },
    "apply_patch json": {
        "file_path": "PATH",
        "original_content": "nothing like it",
        "updated_content": "x",
    },
    "edit_file": {"path": "PATH", "old": "nothing like it", "new": "x"},
    "write_file": {"path": "PATH", "content": SECRET[::-1]},
    "symbols": {"query": "hunter"},
    "symbols path": {"path": "PATH"},
    "symbols py": {"path": "FOLDER/payroll.py", "detail_level": "full"},
    "symbols name": {"name_path": "hunter", "detail_level": "full"},
    "symbols folder": {"path": "FOLDER", "detail_level": "full"},
    "symbols misspelt": {"name_path": "huntr"},
    "definition": {"name": "hunter"},
    "references": {"name_path": "hunter", "path": "FOLDER"},
    "call_graph": {"name_path": "hunter"},
    "diagnostics": {"paths": ["FOLDER/payroll.py"]},
    "edit_symbol py": {"name_path": "hunter", "action": "remove", "path": "FOLDER/payroll.py"},
    "edit_symbol": {"name_path": "hunter", "action": "replace", "text": "x = 1"},
    "shell cat": {"command": ["cat", "PATH"]},
    "shell script": {"command": ["bash", "-c", "cd FOLDER && cat *; true"]},
    "shell redirect": {"command": ["bash", "-c", "head -1 < PATH; true"]},
    "shell link": {"command": ["cat", "LINK"]},
    "shell grep": {"command": ["bash", "-c", "grep -r hunter . ; true"]},
    "shell dd": {"command": ["dd", "if=PATH"]},
    "shell copy": {"command": ["bash", "-c", "cp -r . /tmp/all; cat /tmp/all/*/*; true"]},
    "shell_command": {"command": "cat PATH"},
    "exec_command": {"cmd": "cat PATH"},
    "python": {"code": "print(open('PATH').read())", "where": "scratch"},
    "batch": {"calls": [{"tool": "read_file", "arguments": {"path": "PATH"}}]},
}
TOOLS = [
    "read-only",
    "coding",
    "data",
    *STRUCTURE,
    "edit_file",
    "write_file",
    "batch",
    "shell_command",
]
MISFIT = re.compile("no tool named|not a parameter|: expected ")  # a call with outdated arguments
# What only the sandbox can hold, since nothing says what it will read.
SANDBOXED = {"shell script", "shell grep", "shell copy", "python"}


@pytest.fixture
def picture():
    data = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(data, "PNG")
    return data.getvalue()


def furnish(cwd: Path, place: str, picture: bytes) -> None:
    """Put the forbidden file there, and others of its kind beside it, with a link to it."""
    file = cwd / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    beside = file.parent
    (beside / "payroll.csv").write_text(f"name,key\nx,{SECRET}\n", encoding="utf-8")
    (beside / "payroll.py").write_text(f"def hunter():\n    return '{SECRET}'\n", encoding="utf-8")
    cell = {"cell_type": "code", "source": SECRET, "outputs": [], "metadata": {}}
    notebook = {"cells": [cell], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}
    (beside / "payroll.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    (beside / "payroll.png").write_bytes(picture)
    (cwd / "public.txt").write_text("nothing to see\n", encoding="utf-8")
    (cwd / "ignoring").mkdir()
    (cwd / "ignoring/.gitignore").write_text("*.txt\n", encoding="utf-8")
    (cwd / "link").symlink_to(file)


def rule_for(cwd: Path, pattern: str, decision: str = "forbid") -> None:
    (cwd / ".agent_magics").mkdir(exist_ok=True)
    patterns = [pattern, *([] if "*" in pattern else ["payroll.*"])]
    text = "".join(RULE.format(pattern=each, decision=decision) for each in patterns)
    (cwd / ".agent_magics/rules.toml").write_text(text, encoding="utf-8")


def filled(arguments: object, cwd: Path, place: str) -> object:
    text = json.dumps(arguments).replace("CWD", str(cwd)).replace("PATH", place)
    folder = os.path.dirname(place) or "."
    return json.loads(text.replace("FOLDER", folder).replace("LINK", "link"))


@pytest.mark.parametrize("policy", ["untrusted", "on-request", "never"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_tool_shows_what_a_rule_forbids_to_read(tmp_path, picture, pattern, policy):
    place = PATTERNS[pattern]
    furnish(tmp_path, place, picture)
    rule_for(tmp_path, pattern)
    tier = shared_launcher().capabilities().tier
    told = {}
    with Agent(
        tools=TOOLS, cwd=tmp_path, approval=policy, on_question=lambda q: "approve"
    ) as agent:
        for case, arguments in CALLS.items():
            if case in SANDBOXED and tier < 2:
                continue
            given = filled(arguments, tmp_path, place)
            told[case] = str(agent.call_sync(case.partition(" ")[0], given).content)
    assert {c: t for c, t in told.items() if SECRET in t} == {}
    assert not [t for t in told.values() if MISFIT.search(t)]
    listing = {c: t for c, t in told.items() if c.startswith(("list_dir", "glob", "grep"))}
    names = {c: t for c, t in listing.items() if "payroll.png" in t or "payroll.ipynb" in t}
    assert names == {}
    misspelt = {c: t for c, t in told.items() if "misspelt" in c}
    assert not [t for t in misspelt.values() if f"{NAME}.txt" in t.replace(f"{NAME}.txtx", "")]
    assert (tmp_path / place).read_text(encoding="utf-8") == f"{SECRET}\n"
    assert SECRET in (tmp_path / place).with_name("payroll.py").read_text(encoding="utf-8")
    assert not (tmp_path / "moved.txt").exists()


SPELLINGS = [
    *("secret", "secret/", "./secret/**", "secret//**", "x/../secret", "secret/*", "**/secret"),
    *("CWD/secret", "CWD/./secret/**", "LINKED/secret/**", "inside/**", "sec*", "[s]ecret/"),
]


@pytest.mark.parametrize("place", ["secret/payroll.txt", "secret/a/b/payroll.txt"])
@pytest.mark.parametrize("pattern", SPELLINGS)
def test_a_forbidden_folder_is_forbidden_however_it_is_written(tmp_path, pattern, place):
    cwd, linked = tmp_path / "work", tmp_path / "linked"
    (cwd / place).parent.mkdir(parents=True)
    (cwd / place).write_text(SECRET, encoding="utf-8")
    linked.symlink_to(cwd)
    (cwd / "inside").symlink_to("secret")
    rule = RULE.format(pattern=pattern, decision="forbid")
    (cwd / ".agent_magics").mkdir()
    rule = rule.replace("CWD", str(cwd)).replace("LINKED", str(linked))
    (cwd / ".agent_magics/rules.toml").write_text(rule, encoding="utf-8")
    with Agent(tools=["read-only"], cwd=cwd) as agent:
        for name, given in (
            ("read_file", {"path": place}),
            ("grep_files", {"pattern": "hunter", "path": os.path.dirname(place)}),
            ("grep_files", {"pattern": "hunter"}),
            ("list_dir", {"path": ".", "recursive": True}),
        ):
            told = str(agent.call_sync(name, given).content)
            assert SECRET not in told and "payroll" not in told.replace(place, ""), name


def test_what_was_kept_before_the_rule_is_not_read_after_it(tmp_path):
    (tmp_path / "secret").mkdir()
    lines = "".join(f"{SECRET} {n}\n" for n in range(5_000))  # equal ones would be folded
    (tmp_path / "secret/long.txt").write_text(lines, encoding="utf-8")
    with Agent(tools=TOOLS, cwd=tmp_path) as agent:
        before = agent.call_sync("shell", {"command": ["cat", "secret/long.txt"]}).text
        handle = next(f"@r{n}" for n in itertools.count(1) if f"@r{n}" in before)
        assert SECRET in agent.call_sync("read_file", {"path": handle}).text
        rule_for(tmp_path, "secret/**")
        for name in ("read_file", "grep_files", "view_image"):
            given = {"path": handle} | ({"pattern": "hunter"} if name == "grep_files" else {})
            said = agent.call_sync(name, given)
            assert SECRET not in str(said.content) and "rule" in said.text, name


# Ways in which a text of the file comes into a result; FOLDER says that it names a folder alone.
READINGS = {
    "its name": ("exec_command", {"cmd": "cat notes.txt"}),
    "a glob": ("exec_command", {"cmd": "cat no*"}),
    "a search": ("exec_command", {"cmd": "grep -r hunter ."}),
    "no word": ("exec_command", {"cmd": "cat $(ls | head -3 | tail -1) $(ls)"}),
    "from below": ("exec_command", {"cmd": "cat ../n*", "workdir": "sub"}),
    "a program": ("shell", {"command": ["sh", "show.sh"]}),
    "scratch": ("python", {"code": "print(open('no' + 'tes.txt').read())", "where": "scratch"}),
    "a batch": (
        "batch",
        {"calls": [{"tool": "grep_files", "arguments": {"pattern": "hunter", "path": "."}}] * 3},
    ),
}


@tool(mutating=False)
def doubled(given: list[str], text: str = "") -> list[str]:
    """Give the texts twice."""
    return [*given, *given]


@tool(mutating=False)
def read_on(path: str, *, ctx: ToolContext) -> str:
    """Read all of a file."""
    return ctx.validate_path(path).read_text()


def keep(agent: Agent, cwd: Path, way: str) -> list[str]:
    """Read the file in one way, and make other results of what was kept; return the names."""
    (cwd / "sub").mkdir()
    (cwd / "show.sh").write_text("cat n*", encoding="utf-8")
    lines = "".join(f"{SECRET} {n} {'x' * 50}\n" for n in range(500))
    (cwd / "notes.txt").write_text(lines, encoding="utf-8")
    tool_name, given = READINGS[way]
    assert "@r1" in agent.call_sync(tool_name, given).text
    assert SECRET in agent.call_sync("grep_files", {"path": "@r1", "pattern": "hunter"}).text
    agent.call_sync("batch", {"calls": [{"tool": "read_file", "arguments": {"path": "@r1"}}] * 9})
    agent.call_sync("read_on", {"path": "@r1"})
    agent.session.conversation.handles.keep_value([SECRET] * 999, origin(agent))
    names = list(agent.session.conversation.handles._entries)
    agent.call_sync("doubled", {"given": names[-1]})
    return list(agent.session.conversation.handles._entries)


def origin(agent: Agent) -> Origin:
    return Origin(agent.session.conversation.handles.reads_of("@r1"))


OLD = [*TOOLS, doubled, read_on]


@pytest.mark.parametrize("way", READINGS)
def test_what_a_result_was_read_from_is_known_however_it_was_read(tmp_path, way):
    with Agent(ScriptedModel(["Hello."]), OLD, cwd=tmp_path, approval="never") as agent:
        agent.run_sync("Hello.")
        names = keep(agent, tmp_path, way)
        assert len(names) >= 4
        id = agent.session.conversation.id
        rule_for(tmp_path, f"{tmp_path}.other/**")
        assert SECRET in agent.call_sync("read_file", {"path": "@r1"}).text
        rule_for(tmp_path, "notes.txt")
        for name in names:
            said = agent.call_sync("read_file", {"path": name}).text
            assert SECRET not in said and "rule" in said, name
    with Agent.resume(id, ScriptedModel([]), OLD, cwd=tmp_path, approval="never") as agent:
        for name in names:
            said = agent.call_sync("read_file", {"path": name}).text
            assert SECRET not in said and "rule" in said, name


@pytest.mark.parametrize("pattern", ["secret/**", "**/*.pem", "notes.*"])
def test_what_an_older_rule_kept_out_is_not_withheld(tmp_path, pattern):
    rule_for(tmp_path, pattern)
    (tmp_path / "secret").mkdir()
    (tmp_path / "public.txt").write_text("".join(f"open {n}\n" for n in range(9_000)))
    with Agent(ScriptedModel(["Hello."]), TOOLS, cwd=tmp_path, approval="never") as agent:
        agent.run_sync("Hello.")
        assert "@r1" in agent.call_sync("exec_command", {"cmd": "cat p*"}).text
        assert "open 1" in agent.call_sync("read_file", {"path": "@r1"}).text
        id = agent.session.conversation.id
    with Agent.resume(id, ScriptedModel([]), TOOLS, cwd=tmp_path, approval="never") as agent:
        assert "open 1" in agent.call_sync("read_file", {"path": "@r1"}).text


def test_a_rule_that_asks_is_asked_for_a_file_and_kept_out_of_searches(tmp_path, picture):
    place = "secret/payroll.txt"
    furnish(tmp_path, place, picture)
    rule_for(tmp_path, "secret/**", "prompt")
    asked = []

    def on_question(question):
        asked.append(question)
        return "approve"

    with Agent(tools=TOOLS, cwd=tmp_path, on_question=on_question) as agent:
        assert SECRET not in agent.call_sync("grep_files", {"pattern": "hunter"}).text
        assert not asked
        assert SECRET in agent.call_sync("read_file", {"path": place}).text
        assert len(asked) == 1
        assert SECRET in agent.call_sync("grep_files", {"pattern": "hunter", "path": "secret"}).text


MANY = " ".join(f"w{number}" for number in range(4_000))
NAMING = [
    *("cat {}", "cat ./{}", f": {MANY}\ncat {{}}", f"{': a ' * 4_000}; cat {{}}"),
    *("grep -f{} x", "grep -nf./{} x", "date --file={}", "cat link", "cat < {}", "cat $(echo {})"),
]


@pytest.mark.parametrize("line", NAMING, ids=range(len(NAMING)))
@pytest.mark.parametrize("sandbox", [True, False])
def test_a_command_that_names_a_forbidden_file_is_refused(tmp_path, monkeypatch, line, sandbox):
    if not sandbox:
        monkeypatch.setenv("AGENT_MAGICS_TIER", "0")
    (tmp_path / "pay.csv").write_text(SECRET, encoding="utf-8")
    (tmp_path / "link").symlink_to("pay.csv")
    rule_for(tmp_path, "pay.csv")
    with Agent(
        ScriptedModel([]), ["shell_command"], cwd=tmp_path, on_question=lambda question: "approve"
    ) as agent:
        output = agent.call_sync("shell_command", {"command": line.format("pay.csv")})
    assert "Refused: a rule forbids" in output.text and SECRET not in output.text


# How the words of a command name "own data/pay, 1=a.csv"; the home is the folder "own data".
SPELT = [
    *("cat 'own data/pay, 1=a.csv'", "cat o'wn data/pa'y', 1=a.csv'", "cat ~/'pay, 1=a.csv'"),
    *("cat own\\ data/pay,\\ 1=a.csv", 'cat "own data/pay, 1=a.csv"', 'cat "$HOME/pay, 1=a.csv"'),
    *(
        'cat "${HOME}"/pay,\\ 1=a.csv',
        'cat "$PWD/own data/pay, 1=a.csv"',
        "cd&& cat pay,\\ 1=a.csv",
    ),
    *(
        "cat <own' data/pay, 1=a.csv'",
        "(cd ~; cat 'pay, 1=a.csv')",
        ": ~; cat ~+/own\\ data/pay,' 1'=a.csv",
    ),
    "cd 'own data'; cd ..; cd -P o'wn data'; cat pay,' 1=a.csv'",
    "{ cd -- 'own data' 2>x; cat pay,' 1=a.csv'; }",
    "if cd 'own data'/; then cat pay,\\ 1=a.csv; fi",
    *("sh -c \"cat 'own data/pay, 1=a.csv'\"", ["cat", "own data/pay, 1=a.csv"]),
]


@pytest.mark.parametrize("line", SPELT, ids=range(len(SPELT)))
def test_a_forbidden_file_is_named_by_the_words_that_a_shell_reads(tmp_path, monkeypatch, line):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")
    monkeypatch.setenv("HOME", str(tmp_path / "own data"))
    (tmp_path / "own data").mkdir()
    (tmp_path / "own data/pay, 1=a.csv").write_text(SECRET, encoding="utf-8")
    rule_for(tmp_path, "own data/*.csv")
    tool_name = "shell_command" if isinstance(line, str) else "shell"
    with Agent(
        ScriptedModel([]), [tool_name], cwd=tmp_path, on_question=lambda question: "approve"
    ) as agent:
        output = agent.call_sync(tool_name, {"command": line})
    assert "Refused: a rule forbids" in output.text and SECRET not in output.text


# Lists in braces by which a shell names pay.csv, and such as name nothing.
LISTS = [
    *("cat {pay,x}.csv", "cat {x,pay}.csv", "cat {x,{y,pay}}.csv", "cat p{a,b}y.{txt,csv}"),
    *("cat pa{x..z}.csv", "cat pa{z..x}.csv", "cat <{pay,}.csv", "cd sub; cat ../{x,pay}.csv"),
    *("cat {,x,./pay.csv}", "bash -c 'cat {pay,x}.csv'"),
]
NO_LISTS = [
    "cat x{pay,}.csv",
    f"echo '{json.dumps([{'pay': 1, 'csv': 2}] * 50)}'",
    "echo {a..b..c}",
]


@pytest.mark.parametrize("line", [*LISTS, *NO_LISTS])
def test_a_list_in_braces_names_what_a_shell_makes_of_it(tmp_path, monkeypatch, line):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")
    (tmp_path / "pay.csv").write_text(SECRET, encoding="utf-8")
    (tmp_path / "sub").mkdir()
    rule_for(tmp_path, "pay.csv")
    with Agent(
        ScriptedModel([]), ["shell_command"], cwd=tmp_path, on_question=lambda question: "approve"
    ) as agent:
        output = agent.call_sync("shell_command", {"command": line}).text
    assert ("Refused: a rule forbids" in output) == (line in LISTS) and SECRET not in output


@pytest.mark.parametrize(("policy", "says"), [("on-request", "denied"), ("never", "Refused")])
@pytest.mark.parametrize("much", ["words", "commands"])
def test_a_command_of_too_many_words_is_asked_about_where_a_rule_forbids(
    tmp_path, policy, says, much
):
    (tmp_path / "pay roll.csv").write_text(SECRET, encoding="utf-8")
    asked = []
    with Agent(
        ScriptedModel([]),
        ["shell_command"],
        cwd=tmp_path,
        approval=policy,
        on_question=lambda question: asked.append(question) or "deny",
    ) as agent:
        numbers = " ".join(f"w{number}" for number in range(6_000))
        line = f"true {numbers}; " if much == "words" else ":\n" * 50_000
        line += "cat 'pay roll.csv'"
        assert SECRET in agent.call_sync("shell_command", {"command": line}).text
        rule_for(tmp_path, "*.txt", "prompt")
        assert SECRET in agent.call_sync("shell_command", {"command": line}).text
        rule_for(tmp_path, "pay roll.csv")
        output = agent.call_sync("shell_command", {"command": line})
    assert says in output.text and SECRET not in output.text
    assert all("too many words" in each.reason and each.scopes == () for each in asked)
    assert len(asked) == (policy == "on-request")


def test_an_allowing_rule_lets_a_protected_file_be_read_by_its_name_alone(tmp_path):
    (tmp_path / ".env").write_text(f"KEY={SECRET}\n", encoding="utf-8")
    with Agent(tools=TOOLS, cwd=tmp_path, approval="never") as agent:
        assert SECRET not in agent.call_sync("read_file", {"path": ".env"}).text


def test_a_sandbox_that_cannot_hold_the_rule_says_so(tmp_path, monkeypatch, picture):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "1")
    require("tier 1")
    furnish(tmp_path, "secret/payroll.txt", picture)
    rule_for(tmp_path, "secret/**")
    with Agent(tools=TOOLS, cwd=tmp_path) as agent:
        result = agent.call_sync("shell", {"command": ["bash", "-c", "python3 -c 'print(1)'"]})
        assert "secret/**" in result.text and "cannot" in result.text
        refused = agent.call_sync("shell", {"command": ["cat", "secret/payroll.txt"]}).text
        assert SECRET not in refused and "rule forbids" in refused


# What says by a name, or by an inode, what it will read: all but what needs a kind of file.
NAMED = [case for case in CALLS if not case.endswith(("misspelt", "csv", "ipynb", "py", "image"))]
SECRETS = [".env", "deep/down/.env.local", "id_rsa", "../home/.netrc"]


@pytest.mark.parametrize("policy", ["untrusted", "on-request", "never"])
@pytest.mark.parametrize("secret", SECRETS)
def test_a_second_name_of_a_secret_is_the_secret(tmp_path, monkeypatch, secret, policy):
    """Hard links: the model sees neither text nor diff of one, and changes none, unasked."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cwd, place = tmp_path / "work", "notes/innocent.txt"
    (cwd / "notes").mkdir(parents=True)
    file = cwd / secret
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    os.link(file, cwd / place)
    (cwd / "link").symlink_to(cwd / place)
    tier = shared_launcher().capabilities().tier
    told = {}
    with Agent(tools=TOOLS, cwd=cwd, approval=policy, on_question=lambda q: "deny") as agent:
        for case in NAMED:
            if tier < 2 and case.startswith(("shell", "exec", "python")):
                continue
            given = filled(CALLS[case], cwd, place)
            told[case] = str(agent.call_sync(case.partition(" ")[0], given).content)
    assert {case: text for case, text in told.items() if SECRET in text} == {}
    assert file.read_text(encoding="utf-8") == f"{SECRET}\n"
    assert os.path.samefile(file, cwd / place)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_second_name_of_what_a_rule_forbids_is_forbidden(tmp_path, picture, pattern):
    place, second = PATTERNS[pattern], "notes/innocent.txt"
    furnish(tmp_path, place, picture)
    rule_for(tmp_path, pattern)
    (tmp_path / "notes").mkdir()
    (tmp_path / "link").unlink()
    os.link(tmp_path / place, tmp_path / second)
    (tmp_path / "link").symlink_to(tmp_path / second)
    tier = shared_launcher().capabilities().tier
    told = {}
    with Agent(tools=TOOLS, cwd=tmp_path, on_question=lambda q: "approve") as agent:
        for case in NAMED:
            if tier < 2 and case in SANDBOXED:
                continue
            given = filled(CALLS[case], tmp_path, second)
            told[case] = str(agent.call_sync(case.partition(" ")[0], given).content)
    assert {case: text for case, text in told.items() if SECRET in text} == {}
    assert os.path.samefile(tmp_path / place, tmp_path / second)
    assert (tmp_path / second).read_text(encoding="utf-8") == f"{SECRET}\n"


def test_a_second_name_that_a_command_makes_shows_no_secret_in_the_diff(tmp_path):
    require("tier 1")
    (tmp_path / ".env").write_text(f"{SECRET}\n", encoding="utf-8")
    (tmp_path / "plain").write_text("plain\n", encoding="utf-8")
    play = [Call("shell", {"command": ["bash", "-c", "ln .env x; ln plain y"]}), "Done."]
    with Agent(ScriptedModel(play), tools=["shell"], cwd=tmp_path, approval="never") as agent:
        diff = agent.run_sync("Go.").diff
        assert "+plain" in diff and SECRET not in diff
        if os.path.lexists(tmp_path / "x"):  # tier 1 lets it be made
            assert SECRET not in agent.call_sync("read_file", {"path": "x"}).text


def zipped(cwd, place):
    """Pack the file into an archive beside it; return its address there."""
    archive = (cwd / place).with_name("x.zip")
    with zipfile.ZipFile(archive, "w") as file:
        file.write(cwd / place, "a.csv")
    return f"zip://a.csv::{archive}"


def referred(cwd, place):
    """Write a list of references that names the file; return an address in it."""
    (cwd / "refs.json").write_text(
        json.dumps({"version": 1, "refs": {"a.csv": [f"file://{cwd / place}"]}}), encoding="utf-8"
    )
    return f"reference://a.csv::file://{cwd}/refs.json"


# How the rows of a map may name a file.
MAPS = {
    "a reference": ("{{key}}", referred),
    "a cache of a reference": ("{{key}}", lambda cwd, p: f"filecache::{referred(cwd, p)}"),
    "a link in a folder": ("{{key}}", lambda cwd, _: f"dir://links/a.csv::file://{cwd}"),
    "an archive": ("{{key}}", zipped),
    "a path": ("{{key}}", lambda cwd, place: cwd / place),
    "text": ("{{key}}", lambda cwd, place: str(cwd / place)),
    "a file:// address": ("{{key}}", lambda cwd, place: f"file://{cwd / place}"),
    "a local:// address": ("{{key}}", lambda cwd, place: f"local://{cwd / place}"),
    "a cache": ("{{key}}", lambda cwd, place: f"simplecache::file://{cwd / place}"),
    "a cache of a glob": ("{{key}}", lambda cwd, place: f"simplecache::local://{cwd}/**/*.csv"),
    "a cache of a folder": ("{{key}}", lambda cwd, place: f"dir://::file://{(cwd / place).parent}"),
    "a glob": ("{{key}}", lambda cwd, place: str(cwd / "**/*.csv")),
    "its folder": ("{{key}}", lambda cwd, place: str((cwd / place).parent)),
    "a folder with a link": ("{{key}}", lambda cwd, place: str(cwd / "links")),
    "a value": ("{{text}}", lambda cwd, place: [cwd / place]),
    "a value that is a link": ("{{text}}", lambda cwd, place: [cwd / "links/a.csv"]),
    "a value with dots": ("{{text}}", lambda cwd, place: [cwd / "links/.." / place]),
}
# A map follows these to no file, whatever the rules are.
UNFOLLOWED = {"a reference", "a cache of a reference", "a link in a folder", "a cache of a folder"}


@pytest.mark.parametrize("place", ["secret/payroll.csv", ".env/../../home/.ssh/payroll.csv"])
@pytest.mark.parametrize("case", MAPS)
def test_no_map_sends_what_may_not_be_read(tmp_path, monkeypatch, case, place):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cwd = tmp_path / "work"
    for folder in ("secret", "links", ".env", "../home/.ssh"):
        (cwd / folder).mkdir(parents=True)
    (cwd / place).write_text(f"name,key\nx,{SECRET}\n", encoding="utf-8")
    (cwd / "links/a.csv").symlink_to(os.path.relpath(cwd / place, cwd / "links"))
    prompt, rows = MAPS[case]
    if place.startswith("secret") and case not in UNFOLLOWED:
        with Agent(model := Echo(), cwd=cwd) as agent:
            agent.map_sync(prompt, rows(cwd, place), cache=False)
        assert any(SECRET in asked for asked in model.asked), "it is read where no rule forbids it"
    rule_for(cwd, "secret/**")
    model = Echo()
    with Agent(model, cwd=cwd) as agent:
        try:
            errors = list(agent.map_sync(prompt, rows(cwd, place)).frame["error"])
        except FatalError as error:
            errors = [str(error)]
    assert not [asked for asked in model.asked if SECRET in asked]
    assert all("cannot be read" in error for error in errors), errors
