"""Rules, lasting answers, changed commands and repeats outside the sandbox, through real calls."""

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_magics import Call, tool
from agent_magics.approval.commands.prefixes import propose_prefix
from agent_magics.approval.rules import ProposedRule, RuleBook
from agent_magics.config_files.places import user_rules_file
from agent_magics.dispatch.consent.decision import MOST_DENIED, MOST_OPEN
from agent_magics.dispatch.context import ToolContext
from agent_magics.files import locks
from agent_magics.protocol.events import ApprovalDecided, ApprovalRequested, ToolCallChanged
from agent_magics.records.places import rollout_folder
from tests.support.needs import require
from tests.support.turns import PATIENCE, Person, Reply, of_kind, scripted

TOUCH = {"command": ["touch", "made"]}


@pytest.fixture
def without_sandbox(monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")


@pytest.fixture
def with_sandbox():
    require("tier 1")


@pytest.fixture
def rules():
    """Writes the person's own rules."""
    path = user_rules_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    yield lambda text: path.write_text(text, encoding="utf-8")
    path.unlink(missing_ok=True)


def rule(permission, pattern, decision, **more):
    fields = {"permission": permission, "pattern": pattern, "decision": decision, **more}
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    return "\n".join(["[[rule]]", *lines, ""])


def agent_with(person, *turns, policy="untrusted", tools=("shell",), **options):
    return scripted(*turns, tools=tools, approval=policy, on_question=person, **options)


def decided(result):
    return [(e.decision, e.by, e.scope, e.sandbox) for e in of_kind(result, ApprovalDecided)]


# -- rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["untrusted", "on-request", "on-failure", "never"])
def test_an_allowing_rule_asks_nobody_under_any_policy(rules, tmp_path, policy, without_sandbox):
    rules(rule("command", ["touch"], "allow"))
    person = Person("deny")
    assert agent_with(person, policy=policy).call_sync("shell", TOUCH).success
    assert person.asked == []
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("policy", ["untrusted", "on-request", "on-failure", "never"])
def test_a_forbidding_rule_refuses_under_any_policy(rules, tmp_path, policy):
    rules(rule("command", ["touch"], "forbid", justification="make files with apply_patch"))
    person = Person("approve")
    output = agent_with(person, policy=policy).call_sync("shell", TOUCH)
    assert not output.success
    assert "a rule forbids touch …: make files with apply_patch" in output.text
    assert person.asked == []
    assert not (tmp_path / "made").exists()


def test_a_rule_that_prompts_asks_where_the_policy_would_not(rules, with_sandbox):
    rules(rule("command", ["touch"], "prompt", justification="look at it"))
    person = Person("approve")
    assert agent_with(person, policy="on-request").call_sync("shell", TOUCH).success
    [question] = person.asked
    assert question.reason == "a rule asks about touch …: look at it"
    assert "approve_for_project" not in question.scopes
    refused = agent_with(person, policy="never").call_sync("shell", TOUCH)
    assert "asks nobody" in refused.text
    assert len(person.asked) == 1


@pytest.mark.parametrize(
    ("permission", "pattern", "name", "arguments"),
    [
        ("read", "secret/**", "read_file", {"path": "secret/a.txt"}),
        ("read", "secret/**", "list_dir", {"path": "secret"}),
        (
            *("write", "secret/**", "apply_patch"),
            {"patch": "*** Begin Patch\n*** Add File: secret/b\n+x\n*** End Patch"},
        ),
        ("tool", "act*", "act", {}),
    ],
)
def test_rules_are_about_everything_that_is_called(
    rules, tmp_path, permission, pattern, name, arguments
):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/a.txt").write_text("x", encoding="utf-8")

    @tool
    def act() -> str:
        """Act."""
        return "done"

    rules(rule(permission, pattern, "forbid"))
    tools = [act, "read_file", "list_dir", "apply_patch"]
    output = scripted(tools=tools).call_sync(name, arguments)
    assert output.text.startswith("Refused: a rule forbids")
    rules("")
    assert scripted(tools=tools).call_sync(name, arguments).success


def test_an_allowed_prefix_does_not_allow_what_is_dangerous(rules, tmp_path):
    rules(rule("command", ["chmod"], "allow"))
    person = Person("deny")
    everything = {"command": ["chmod", "-R", "u+rwx", "."]}
    assert not agent_with(person).call_sync("shell", everything).success
    assert person.asked[0].reason.startswith("it changes rights")
    rules(rule("command", ["chmod", "-R", "u+rwx", "."], "allow"))
    assert agent_with(person).call_sync("shell", everything).success
    assert len(person.asked) == 1


def test_a_broken_file_fails_the_run_with_one_sentence(rules, tmp_path):
    rules(rule("command", ["touch"], "allow") + "colour = 1\n")
    result = agent_with(Person("approve"), Call("shell", TOUCH), "Ok.").run_sync("Go")
    assert result.status == "failed"
    assert result.error.startswith(f"{user_rules_file()}, line 5: 'colour' is not a key of a rule")
    assert not (tmp_path / "made").exists()
    rules("")
    assert agent_with(Person("approve"), "Ok.").run_sync("Go").status == "completed"


def test_rules_that_break_during_a_run_end_it(rules, tmp_path):
    @tool(mutating=False)
    def spoil() -> str:
        """Break the rules."""
        rules("nonsense\n")
        return "done"

    agent = agent_with(
        Person("approve"), Call("spoil"), Call("shell", TOUCH), "Ok.", tools=["shell", spoil]
    )
    result = agent.run_sync("Go")
    assert result.status == "failed"
    assert "line 1: this is not TOML" in result.error
    assert not (tmp_path / "made").exists()


def test_what_a_project_allows_holds_only_when_it_is_trusted(tmp_path):
    (tmp_path / ".agent_magics").mkdir()
    (tmp_path / ".agent_magics/rules.toml").write_text(
        rule("command", ["touch"], "allow") + rule("command", ["mkdir"], "forbid"), "utf-8"
    )
    person = Person("deny")
    agent = agent_with(person)
    assert not agent.call_sync("shell", TOUCH).success
    assert len(person.asked) == 1
    assert "approve_for_project" not in person.asked[0].scopes
    assert "forbids" in agent.call_sync("shell", {"command": ["mkdir", "x"]}).text
    RuleBook(tmp_path).trust()
    assert agent.call_sync("shell", TOUCH).success
    assert len(person.asked) == 1


# -- lasting answers -----------------------------------------------------------------------------


def test_an_answer_for_the_project_becomes_a_rule(tmp_path):
    person = Person("approve_for_project", "deny")
    agent = agent_with(person, Call("shell", {"command": ["git", "add", "x"]}), "Ok.")
    result = agent.run_sync("Go")
    [question] = person.asked
    assert question.scopes == (
        "approve_for_cell",
        "approve_for_session",
        "approve_for_project",
        "approve_for_project_exact",
    )
    assert question.covers["approve_for_project_exact"].startswith("git add x (this very command")
    assert question.covers["approve_for_project"].startswith("git add … (every command that begins")
    assert question.covers["approve_for_project"].endswith("written to .agent_magics/rules.toml")
    assert decided(result)[0][:3] == ("approve_for_project", "program", "project")
    text = (tmp_path / ".agent_magics/rules.toml").read_text(encoding="utf-8")
    assert 'pattern = ["git", "add"]' in text
    other = agent_with(person, Call("shell", {"command": ["git", "add", "y"]}), "Ok.")
    result = other.run_sync("Go")
    assert len(person.asked) == 1, "another agent of this project is not asked again"
    assert decided(result)[0][:2] == ("run", "rule")
    assert of_kind(result, ApprovalDecided)[0].basis.startswith("git add … (")


def test_a_rule_that_cannot_be_written_is_told_and_holds_for_the_session(tmp_path):
    (tmp_path / ".agent_magics").write_text("in the way", encoding="utf-8")
    person = Person("approve_for_project")
    agent = agent_with(person, Call("shell", TOUCH), Call("shell", TOUCH), "Ok.")
    result = agent.run_sync("Go")
    assert len(person.asked) == 1
    [warning] = [e.message for e in result.events if type(e).__name__ == "Warned"]
    assert warning.startswith("The rule was not saved, the answer holds for this session: ")


@pytest.mark.parametrize(
    "command",
    [
        ["python3", "-c", "print(1)"],
        ["bash", "-c", "touch a > b"],
        ["bash", "-c", "touch a && mkdir b"],
        ["env", "touch", "a"],
        ["rm", "-f", "a"],
        ["sudo", "touch", "a"],
    ],
)
def test_for_what_may_run_anything_no_rule_is_offered(command):
    person = Person("deny")
    agent_with(person).call_sync("shell", {"command": command})
    assert person.asked[0].scopes == ("approve_for_cell", "approve_for_session")


def test_of_a_script_the_one_command_that_needs_it_is_offered():
    person = Person("deny")
    agent_with(person).call_sync(
        "shell", {"command": ["bash", "-c", "ls | head -3 && git add x && cat x"]}
    )
    assert person.asked[0].covers["approve_for_project"].startswith("git add … ")


@pytest.mark.parametrize(
    ("answer", "text", "also"),
    [
        ("approve_for_project", "mkdir -p …", ["mkdir", "-p", "d2"]),
        ("approve_for_project_exact", "mkdir -p d1", ["mkdir", "-p", "d1"]),
    ],
)
def test_the_prefix_that_the_model_wishes_for_and_the_very_command_may_be_chosen(
    with_sandbox, answer, text, also
):
    person = Person(answer, "deny")
    agent = agent_with(person, tools=["exec_command", "shell"])
    agent.call_sync("exec_command", {"cmd": "mkdir -p d1", "prefix_rule": ["mkdir", "-p"]})
    assert person.asked[0].covers[answer].startswith(f"{text} (")
    assert agent.call_sync("shell", {"command": also}).success
    assert len(person.asked) == 1
    for more in (["mkdir", "-p", "d1", "../x"], ["mkdir", "d1"], ["mkdir", "-p", "-Z", "d"]):
        assert not agent.call_sync("shell", {"command": more}).success
    assert len(person.asked) == 4


# What was allowed for good, and what does more than that: none of it runs unasked.
FOLLOW_UPS = {
    "coverage report": ["coverage run evil.py", "coverage report --rcfile=evil"],
    "pylint src": ["pylint --init-hook=x src", "pylint src --load-plugins=evil"],
    "cmake .": ["cmake -E rm -rf .", "cmake . -P evil.cmake"],
    "eslint .": ["eslint . -c evil.js", "eslint . --rulesdir evil"],
    "jupyter nbconvert a.ipynb": ["jupyter nbconvert a.ipynb --execute"],
    "pip install numpy": ["pip install ./evil", "pip install numpy ./evil"],
    "npm test": ["npm test --script-shell=evil", "npm test -- evil"],
    "make test": ["make test SHELL=./evil", "make test evil"],
    "pytest tests": ["pytest tests evil", "pytest tests --rootdir=evil"],
    "git diff": ["git diff --no-index /etc/shadow /dev/null", "git diff /etc/shadow /dev/null"],
    "git log -p": ["git log --output=evil", "git log --format=%G?"],
    "git add src": ["git add --pathspec-from-file=/etc/passwd", "git add ../other"],
    "mkdir d": ["mkdir /etc/evil", "mkdir -p ../evil"],
    "touch a": ["touch ~/.bashrc", "touch -r /etc/shadow a"],
    "ruff check .": ["ruff check --config=evil .", "ruff check /etc"],
}


@pytest.mark.parametrize("allowed", FOLLOW_UPS)
def test_an_answer_for_the_project_covers_no_more_than_it_says(allowed, tmp_path, without_sandbox):
    book = RuleBook(tmp_path)
    words = tuple(allowed.split())
    prefix = propose_prefix(words)
    book.add(ProposedRule("command", prefix or words, exact=not prefix), allowed)
    assert book.decide("command", words).decision == "allow"
    for more in FOLLOW_UPS[allowed]:
        assert book.decide("command", more.split()) is None, more


def test_what_an_older_answer_wrote_covers_no_more_either(tmp_path):
    file = tmp_path / ".agent_magics/rules.toml"
    file.parent.mkdir()
    text = "# Approved on 2026-01-01: x\n" + rule("command", ["coverage"], "allow")
    file.write_text(text, encoding="utf-8")
    book = RuleBook(tmp_path)
    book.trust()
    assert book.decide("command", ["coverage", "run", "evil.py"]) is None
    assert book.decide("command", ["coverage"]).decision == "allow"


# -- what an approval is bound to ----------------------------------------------------------------


def write_program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "command", [["sh", "x.sh"], ["./x.sh"], ["bash", "-c", "sh x.sh"], ["bash", "-c", "./x.sh >&2"]]
)
def test_a_script_with_another_content_is_asked_about_again(tmp_path, command):
    write_program(tmp_path / "x.sh", "echo one")
    person = Person("approve_for_session")
    agent = agent_with(person)
    for _ in range(2):
        assert "one" in agent.call_sync("shell", {"command": command}).text
    assert len(person.asked) == 1
    write_program(tmp_path / "x.sh", "echo two")
    assert "two" in agent.call_sync("shell", {"command": command}).text
    assert len(person.asked) == 2
    write_program(tmp_path / "x.sh", "echo one")
    agent.call_sync("shell", {"command": command})
    assert len(person.asked) == 2, "the content that was approved is back"


def test_a_program_that_appears_earlier_in_the_path_is_asked_about_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    person = Person("approve_for_session")
    agent = agent_with(person)
    agent.call_sync("shell", TOUCH)
    agent.call_sync("shell", TOUCH)
    assert len(person.asked) == 1
    write_program(tmp_path / "bin/touch", "echo evil")
    agent.call_sync("shell", TOUCH)
    assert len(person.asked) == 2


@pytest.mark.parametrize("change", ["folder", "environment", "rights"])
def test_other_circumstances_are_asked_about_again(tmp_path, monkeypatch, change):
    (tmp_path / "sub").mkdir()
    person = Person("approve_for_session")
    agent = agent_with(person)
    agent.call_sync("shell", TOUCH)
    arguments = dict(TOUCH)
    if change == "folder":
        arguments["workdir"] = "sub"
    elif change == "environment":
        monkeypatch.setenv("LC_ALL", "C")
    else:
        arguments |= {"sandbox_permissions": "require_escalated", "justification": "it must be"}
    agent.call_sync("shell", arguments)
    assert len(person.asked) == 2
    agent.call_sync("shell", arguments)
    assert len(person.asked) == 2


# What a lasting answer for the sandbox is not given for: settings by which it allows more.
WIDENED = [
    ({"network": False}, {"network": True}),
    ({"writable_roots": []}, {"writable_roots": ["../wide"]}),
    ({"sandbox": "read-only"}, {"sandbox": "workspace-write"}),
    ({"sandbox": "workspace-write"}, {"sandbox": "danger-full-access"}),
]


@pytest.mark.parametrize("tool_name", ["shell", "python"])
@pytest.mark.parametrize(("before", "after"), WIDENED, ids=range(len(WIDENED)))
def test_a_lasting_answer_does_not_hold_where_the_sandbox_allows_more(
    with_sandbox, tmp_path, tool_name, before, after
):
    (tmp_path.parent / "wide").mkdir(exist_ok=True)
    person = Person("approve_for_session")
    agent = agent_with(person, tools=(tool_name,), python="scratch", **before)
    arguments = {"shell": TOUCH, "python": {"code": "1 + 1"}}[tool_name]
    for settings, asked in (({}, 1), ({}, 1), (after, 2), ({}, 2), (before, 2)):
        agent.configure(**settings)
        agent.call_sync(tool_name, arguments)
        assert len(person.asked) == asked


@pytest.mark.parametrize(("before", "after"), WIDENED, ids=range(len(WIDENED)))
def test_a_grant_for_all_python_in_scratch_does_not_hold_where_the_sandbox_allows_more(
    with_sandbox, tmp_path, before, after
):
    (tmp_path.parent / "wide").mkdir(exist_ok=True)
    person = Person("approve_kind_for_session")
    agent = agent_with(person, tools=("python",), python="scratch", **before)
    for code, settings, asked in (("1", {}, 1), ("2", {}, 1), ("3", after, 2), ("4", before, 2)):
        agent.configure(**settings)
        agent.call_sync("python", {"code": code})
        assert len(person.asked) == asked


def test_a_script_that_changes_while_the_person_thinks_is_asked_about_again(tmp_path):
    write_program(tmp_path / "x.sh", "echo one")

    def on_question(question):
        asked.append(question.reason)
        write_program(tmp_path / "x.sh", "echo two")
        return "approve"

    asked = []
    agent = agent_with(on_question)
    output = agent.call_sync("shell", {"command": ["sh", "x.sh"]})
    assert len(asked) == 2
    assert asked[1].startswith("it has changed since it was checked; ")
    assert "two" in output.text


def test_a_dangerous_command_that_changes_is_asked_about_again(tmp_path):
    write_program(tmp_path / "x.sh", "echo one")

    def on_question(question):
        asked.append(question.reason)
        write_program(tmp_path / "x.sh", f"echo {len(asked)}")
        return "deny" if len(asked) == 2 else "approve"

    asked = []
    agent_with(on_question).call_sync(
        "shell", {"command": ["bash", "-c", "sh x.sh && chmod -R u+rwx ."]}
    )
    assert len(asked) == 2


# -- changed by the person -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shell", TOUCH),
        ("exec_command", {"cmd": "touch made"}),
        ("shell_command", {"command": "touch made"}),
    ],
)
def test_the_person_changes_the_command_and_the_model_is_told(tmp_path, name, arguments):
    person = Person(Reply("approve", edited_text="touch 'other file'"))
    output = agent_with(person, tools=[name]).call_sync(name, arguments)
    assert person.asked[0].editable == "touch made"
    assert output.success
    assert output.text.startswith("The person changed the command to: touch 'other file'\n")
    assert (tmp_path / "other file").exists()
    assert not (tmp_path / "made").exists()


def test_everybody_is_told_what_runs_in_place_of_what_the_model_wrote():
    person = Person(Reply("approve", edited_text="touch other"))
    result = agent_with(person, [Call("shell", TOUCH)], "Done.").run_sync("go")
    [change] = of_kind(result, ToolCallChanged)
    assert (json.loads(change.arguments)["command"], change.by) == (["touch", "other"], "approver")


def test_a_text_that_was_not_changed_is_no_change():
    person = Person(Reply("approve", edited_text="touch made"))
    assert "changed" not in agent_with(person).call_sync("shell", TOUCH).text


def test_what_the_person_types_is_judged_again(tmp_path, rules):
    rules(rule("command", ["mkdir"], "forbid"))
    person = Person(
        Reply("approve", edited_text="touch 'unfinished"),
        Reply("approve", edited_text="chmod -R u+rwx ."),
        "approve",
        Reply("approve", edited_text="mkdir x"),
    )
    agent = agent_with(person)
    output = agent.call_sync("shell", TOUCH)
    assert len(person.asked) == 3
    assert "what you typed is no command line" in person.asked[1].reason
    assert person.asked[2].reason.startswith("it changes rights")
    assert output.text.startswith("The person changed the command to: chmod -R u+rwx .")
    output = agent.call_sync("shell", TOUCH)
    assert "The person changed the command to: mkdir x\nRefused: a rule forbids" in output.text
    assert not (tmp_path / "x").exists()


# -- more rights ---------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path_factory):
    return tmp_path_factory.mktemp("outside")


def escalated(*command, permissions="require_escalated"):
    return {
        "command": list(command),
        "sandbox_permissions": permissions,
        "justification": "it must be",
    }


def test_an_approved_escalation_leaves_the_sandbox_for_this_call_alone(with_sandbox, outside):
    person = Person("approve")
    made = str(outside / "made")
    agent = agent_with(person, Call("shell", escalated("touch", made)), "Ok.", policy="on-request")
    result = agent.run_sync("Go")
    assert (outside / "made").exists()
    assert decided(result) == [("approve", "program", "once", "outside")]
    agent.call_sync("shell", {"command": ["touch", str(outside / "second")]})
    assert not (outside / "second").exists()
    assert len(person.asked) == 1


def test_more_paths_to_write_are_named_and_nothing_else_is_opened(with_sandbox, outside, tmp_path):
    person = Person("approve")
    (outside / "a").mkdir()
    agent = agent_with(person, policy="on-request")
    script = f"touch '{outside}/a/made'; touch '{outside}/other'"
    arguments = escalated("bash", "-c", script, permissions={"write": [str(outside / "a")]})
    agent.call_sync("shell", arguments)
    assert person.asked[0].reason == f"asks to write {outside}/a: it must be"
    assert (outside / "a/made").exists()
    assert not (outside / "other").exists()


def test_an_approval_to_write_is_bound_to_where_a_link_leads(with_sandbox, outside, tmp_path):
    write_program(tmp_path / "x.sh", "f=data; touch ${f}/made")  # no word of the call names it
    for name in ("data", "secret"):
        (outside / name).mkdir()
    link = tmp_path / "data"

    def lead_to(name):
        link.unlink(missing_ok=True)
        link.symlink_to(outside / name)

    def on_question(question):
        asked.append(question.reason)
        lead_to("secret")
        return "approve" if len(asked) == 1 else "deny"

    asked = []
    agent = agent_with(on_question, policy="on-request")
    lead_to("data")
    agent.call_sync("shell", escalated("sh", "x.sh", permissions={"write": ["data"]}))
    assert asked[0].startswith(f"asks to write {outside}/data: it must be")
    assert f"; asks to write {outside}/secret: it must be" in asked[1]
    assert not os.listdir(outside / "secret")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("new/out.csv", "new/out.csv is not there, so the sandbox cannot open it for writing: ask"),
        (".agent_magics", "is not there, so the sandbox cannot open it for writing: write it with"),
        (".agent_magics/rules.toml", "is protected together with all of .agent_magics: ask to"),
        (".git/hooks/README", "is protected together with all of .git/hooks: ask to write that"),
    ],
)
def test_what_cannot_be_opened_alone_is_refused_before_anybody_is_asked(
    with_sandbox, tmp_path, path, sentence
):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git/hooks/README").touch()
    person = Person("approve")
    agent = agent_with(person, policy="on-request")
    output = agent.call_sync("shell", escalated("touch", path, permissions={"write": [path]}))
    assert not output.success and sentence in output.text and not person.asked


def test_the_network_is_a_question_of_its_own(with_sandbox):
    person = Person("approve_for_session")
    agent = agent_with(person, policy="on-request")
    for _ in range(2):
        agent.call_sync("shell", escalated("touch", "made", permissions="require_network"))
    [question] = person.asked
    assert question.reason == "asks for network rights: it must be"
    assert question.covers["approve_for_project"].startswith("touch … (the network for")
    agent.call_sync("shell", escalated("touch", "made"))
    assert len(person.asked) == 2, "the network is not the way out of the sandbox"


def test_rules_for_the_network_and_for_the_way_out(rules, with_sandbox, outside):
    rules(
        rule("network", ["touch"], "allow")
        + rule("command", ["mkdir"], "allow", sandbox="bypass")
        + rule("command", ["cp"], "allow")
    )
    person = Person("deny")
    agent = agent_with(person, policy="on-request")
    network = escalated("touch", "made", permissions="require_network")
    assert agent.call_sync("shell", network).success
    assert agent.call_sync("shell", {"command": ["mkdir", str(outside / "a")]}).success
    assert agent.call_sync("shell", escalated("mkdir", str(outside / "b"))).success
    assert person.asked == []
    assert not agent.call_sync("shell", escalated("cp", "made", str(outside))).success
    assert len(person.asked) == 1, "a rule of the default says nothing of leaving the sandbox"


def test_a_program_of_the_workspace_never_leaves_by_a_rule(
    rules, with_sandbox, outside, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    rules(rule("command", ["mkdir"], "allow", sandbox="bypass"))
    write_program(tmp_path / "bin/mkdir", f"touch '{outside}/evil' '{tmp_path}/ran'")
    person = Person("deny")
    agent_with(person, policy="on-request").call_sync("shell", {"command": ["mkdir", "x"]})
    assert (tmp_path / "ran").exists()
    assert not (outside / "evil").exists()


COMMIT = "git -c user.name=a -c user.email=a@b commit -qm x --allow-empty"
PLANTED = {
    "in another folder": ("", "git status -s", "sub"),
    "by -C": ("", "git -C sub status -s", "."),
    "a submodule": (f"cd sub; {COMMIT}; cd ..; git add sub", "git status", "."),
    "a remote": ("git init -q --bare x; cp y x/hooks/post-receive", "git push x a:b", "."),
}


@pytest.mark.parametrize(("planted", "line", "folder"), PLANTED.values(), ids=PLANTED)
def test_git_never_leaves_by_a_rule_where_a_command_has_planted_what_it_runs(
    rules, with_sandbox, outside, tmp_path, planted, line, folder
):
    write_program(tmp_path / "y", f"touch '{outside}/evil'")
    subprocess.run(["git", "init", "-q", "-b", "a"], check=True, timeout=20)
    subprocess.run(COMMIT.split(), check=True, timeout=20)
    own = write_program(tmp_path / "own", f"touch '{outside}/own'; exit 1")
    subprocess.run(["git", "config", "core.fsmonitor", own], check=True, timeout=20)
    rules(rule("command", ["git"], "allow", sandbox="bypass"))
    person = Person("deny")
    agent = agent_with(person, policy="on-request")
    script = f'git init -q sub; git -C sub config core.fsmonitor "$PWD/y"; {planted}'
    agent.call_sync("shell", {"command": ["bash", "-c", script]})
    agent.call_sync("shell", {"command": line.split(), "workdir": folder})
    agent.call_sync("shell", {"command": ["git", "status"]})
    assert list(outside.iterdir()) == []
    assert person.asked == []
    agent.call_sync("shell", escalated(*line.split()))
    assert f"{tmp_path}/sub/.git is new: its conf" in person.asked[0].reason
    subprocess.run(line.replace(":b", ":c").split(), cwd=folder, check=True, timeout=20)
    assert (outside / "evil").exists(), "outside, it does what it says"
    for each in ("sub", "x"):
        shutil.rmtree(tmp_path / each, ignore_errors=True)
    agent.call_sync("shell", {"command": ["git", "status"]})
    assert (outside / "own").exists(), "what the person has git run is in nobody's way"


def test_a_rule_lets_nothing_leave_that_works_in_a_folder_elsewhere(rules, with_sandbox, outside):
    person = Person("approve_for_project")
    agent = agent_with(person, policy="on-request")
    agent.call_sync("shell", escalated("mkdir", "here"))
    elsewhere = escalated("mkdir", "-p", "there") | {"workdir": str(outside)}
    agent.call_sync("shell", escalated("mkdir", "-p", "here"))
    assert len(person.asked) == 1
    for _ in range(2):
        agent.call_sync("shell", elsewhere)
    assert len(person.asked) == 2, "the exact command in this folder has its answer"
    assert (outside / "there").exists()
    assert "approve_for_project" not in person.asked[1].scopes
    agent.call_sync("shell", elsewhere | {"command": ["mkdir", "other"]})
    assert len(person.asked) == 3


def patched(*lines):
    return {"patch": "\n".join(["*** Begin Patch", *lines, "*** End Patch"])}


# Changes of files by paths that lead through a link, and of what stands there.
THROUGH_LINK = {
    "write": ("write_file", {"path": "src/made/a", "content": "2"}),
    "edit": ("edit_file", {"path": "./src/made/a", "old": "1", "new": "2"}),
    "add": ("apply_patch", patched("*** Add File: src/made/new", "+2")),
    "move": ("apply_patch", patched("*** Update File: b", "*** Move to: src/made/b")),
    "delete": ("apply_patch", patched("*** Delete File: src/../src/made/a")),
    "as a command": (
        "shell",
        {
            "command": ["apply_patch", *patched("*** Delete File: made/a").values()],
            "workdir": "src",
        },
    ),
}


@pytest.mark.parametrize("decision", ["forbid", "prompt"])
@pytest.mark.parametrize("change", THROUGH_LINK)
def test_a_strict_rule_about_writing_holds_for_a_path_as_it_is_written(
    rules, tmp_path, change, decision
):
    for folder in ("src", "build"):
        (tmp_path / folder).mkdir()
    for name in ("build/a", "b"):
        (tmp_path / name).write_text("1\n", encoding="utf-8")
    (tmp_path / "src/made").symlink_to("../build")
    rules(rule("write", "**/made/**", decision))
    person = Person("deny")
    tool_name, arguments = THROUGH_LINK[change]
    agent = agent_with(person, policy="on-request", tools=[tool_name])
    output = agent.call_sync(tool_name, arguments)
    assert not output.success and "rule" in (
        output.text if decision == "forbid" else person.asked[0].reason
    )
    assert [each.read_text() for each in (tmp_path / "build").iterdir()] == ["1\n"]
    rules(rule("write", "elsewhere/**", decision))
    assert agent.call_sync(tool_name, arguments).success


OPENED = {
    "write": ("write_file", "a", {"content": "x"}),
    "read": ("read_file", ".env", {}),
}


@pytest.mark.parametrize("permission", OPENED)
def test_a_rule_that_allows_is_needed_for_a_path_and_for_where_it_leads(
    rules, tmp_path, tmp_path_factory, permission
):
    outside = tmp_path_factory.mktemp("outside")
    (tmp_path / "data").symlink_to(outside)
    tool_name, name, more = OPENED[permission]
    (outside / name).write_text("y", encoding="utf-8")
    person = Person(*["deny"] * 9)
    agent = agent_with(person, policy="on-request", tools=[tool_name])
    there = rule(permission, f"{outside}/**", "allow")
    for held in ("", there, rule(permission, "data/**", "allow")):
        rules(held)
        assert not agent.call_sync(tool_name, {"path": f"data/{name}", **more}).success
    assert [each.target for each in person.asked] == [f"{outside}/{name}"] * 3
    rules(there + rule(permission, "data/**", "allow"))
    assert agent.call_sync(tool_name, {"path": f"data/{name}", **more}).success
    rules(there)
    assert agent.call_sync(tool_name, {"path": f"{outside}/{name}", **more}).success
    assert len(person.asked) == 3


# -- on failure ----------------------------------------------------------------------------------


def test_on_failure_what_the_sandbox_refused_may_be_repeated_outside(with_sandbox, outside):
    person = Person("approve_for_session")
    target = str(outside / "made")
    agent = agent_with(
        person, Call("shell", {"command": ["touch", target]}), "Ok.", policy="on-failure"
    )
    result = agent.run_sync("Go")
    [question] = person.asked
    assert "The sandbox may have refused" in question.reason
    assert question.reason.endswith("Repeat it outside the sandbox?")
    assert (outside / "made").exists()
    assert result.calls[0].success
    assert "it was repeated outside of it" in result.calls[0].output
    assert decided(result)[-1] == ("approve_for_session", "program", "session", "outside")
    agent.call_sync("shell", {"command": ["touch", target]})
    assert len(person.asked) == 1
    agent.call_sync("shell", {"command": ["touch", str(outside / "other")]})
    assert len(person.asked) == 2


def test_on_failure_a_denial_is_told_with_what_the_command_said(with_sandbox, outside):
    person = Person(Reply("deny", "use the workspace"))
    agent = agent_with(person, policy="on-failure")
    output = agent.call_sync("shell", {"command": ["touch", str(outside / "made")]})
    assert "The sandbox may have refused" in output.text
    assert "It was not repeated outside the sandbox. use the workspace" in output.text
    assert not (outside / "made").exists()


@pytest.mark.parametrize("policy", ["on-request", "never"])
def test_under_other_policies_the_refusal_goes_to_the_model(with_sandbox, outside, policy):
    person = Person("approve")
    output = agent_with(person, policy=policy).call_sync(
        "shell", {"command": ["touch", str(outside / "made")]}
    )
    assert "The sandbox may have refused" in output.text
    assert person.asked == []
    assert not (outside / "made").exists()


# -- reading without a question ------------------------------------------------------------------


def test_what_git_is_told_to_run_can_write_nothing_when_nobody_is_asked(with_sandbox, tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    evil = tmp_path / "evil"
    (tmp_path / "x").write_text("one\n", encoding="utf-8")
    (tmp_path / ".gitattributes").write_text("x diff=odd\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True, timeout=20)
    (tmp_path / "x").write_text("two\n", encoding="utf-8")
    for name in ("core.fsmonitor", "diff.odd.textconv", "core.pager", "diff.external"):
        subprocess.run([*git, "config", name, f"touch '{evil}'; true"], check=True, timeout=20)
    person = Person("deny")
    agent = agent_with(person)
    for words in (["status"], ["diff", "--", "x"], ["log", "-p", "--", "x"], ["show", "HEAD:x"]):
        agent.call_sync("shell", {"command": ["git", *words]})
        assert not evil.exists(), words
    assert person.asked == []
    subprocess.run(["git", "status"], check=True, timeout=20, capture_output=True)
    assert evil.exists(), "outside, it does what it says"


def test_a_safe_command_may_write_nothing(with_sandbox, tmp_path, rules):
    rules(rule("command", ["touch"], "allow"))
    agent = agent_with(Person("deny"))
    assert agent.call_sync("shell", TOUCH).success, "what a rule allows may write"
    assert (tmp_path / "made").exists()


# -- too many questions --------------------------------------------------------------------------


@pytest.mark.soak
def test_a_thousand_questions_are_not_asked_at_once(tmp_path):
    @tool(parallel=True)
    def act(what: int) -> str:
        """Act."""
        return "done"

    open_now, most = [], []

    async def on_question(question):
        open_now.append(question)
        most.append(len(open_now))
        for _ in range(3):
            await asyncio.sleep(0)
        open_now.remove(question)
        return "deny"

    calls = [Call("act", {"what": n}) for n in range(1_000)]
    agent = agent_with(on_question, calls, "Ok.", tools=[act])
    result = agent.run_sync("Go")
    assert max(most) <= MOST_OPEN
    assert MOST_DENIED <= len(most) <= MOST_DENIED + MOST_OPEN
    assert result.status == "completed"
    # In the order in which they ended: an answer on its way comes behind what was not asked.
    unasked = f"{MOST_DENIED} questions in a row were denied"
    assert sum(unasked in call.output for call in result.calls) == len(calls) - len(most)


def test_an_approval_lets_questions_be_asked_again(tmp_path):
    @tool
    def act(what: int) -> str:
        """Act."""
        return "done"

    person = Person(*["deny"] * (MOST_DENIED - 1), "approve", "deny")
    calls = [Call("act", {"what": n}) for n in range(MOST_DENIED + 2)]
    result = agent_with(person, calls, "Ok.", tools=[act]).run_sync("Go")
    assert len(person.asked) == len(calls)
    assert [call.success for call in result.calls].count(True) == 1


@pytest.mark.soak
def test_a_command_that_no_program_can_be_given_is_not_asked_about():
    person = Person("approve")
    agent = agent_with(person)
    for command in (["echo", "a" * 10_000_000], ["rm", *["a" * 1_000] * 600]):
        output = agent.call_sync("shell", {"command": command})
        assert "too long to be run" in output.text
    assert person.asked == []


# -- tools that ask for themselves ---------------------------------------------------------------


@pytest.fixture
def deploying():
    done = []

    @tool(mutating=False)
    async def deploy(to: str, ctx: ToolContext = None) -> str:
        """Deploy."""
        await ctx.ask(
            permission="write", patterns=[f"/srv/{to}"], always=["/srv/**"], metadata={"to": to}
        )
        done.append(to)
        return "deployed"

    return deploy, done


def test_a_tool_asks_for_itself_and_always_is_its_pattern(deploying):
    deploy, done = deploying
    person = Person("deny", "approve_for_session")
    agent = agent_with(person, policy="on-request", tools=[deploy])
    assert "the person denied it" in agent.call_sync("deploy", {"to": "a"}).text
    question = person.asked[0]
    assert (question.target, done) == ("/srv/a", [])
    assert question.reason == "deploy asks for it (write) (to: a)"
    assert question.covers["approve_for_session"].startswith("/srv/**, until")
    assert agent.call_sync("deploy", {"to": "a"}).success
    assert agent.call_sync("deploy", {"to": "b"}).success
    assert (len(person.asked), done) == (2, ["a", "b"])


COVERED = ["a", "a/x", "./a", "a/../b", "a//b", "new/x", "in/a", "in/../a"]
NOT_COVERED = [
    "../etc/cron.d/x",
    "a/../../x",
    "..",
    "../srv2/a",
    "out/a",
    "out/../b",
    "in/../out/x",
]


@pytest.fixture
def served(tmp_path):
    """A folder with links that stay in it and lead out of it, under the name that a link has."""
    for name in ("srv/real", "elsewhere/deep", "etc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "srv/in").symlink_to("real")
    (tmp_path / "srv/out").symlink_to(tmp_path / "elsewhere/deep")
    (tmp_path / "named").symlink_to("srv")
    return tmp_path


def asking(person, always, folder, names, then=lambda: None):
    """Return which of the names, below a folder, a tool asks the person about after an answer."""

    @tool(mutating=False)
    async def act(to: str, ctx: ToolContext = None) -> str:
        """Act."""
        await ctx.ask(permission="write", patterns=[f"{folder}/{to}"], always=[always])
        return "done"

    agent = agent_with(person, policy="on-request", tools=[act])
    assert agent.call_sync("act", {"to": "first"}).success
    then()
    asked = []
    for name in names:
        before = len(person.asked)
        agent.call_sync("act", {"to": name})
        asked += [name] if len(person.asked) > before else []
    return asked


@pytest.mark.parametrize("decision", ["approve_for_session", "approve_for_project"])
def test_a_lasting_answer_covers_paths_by_where_they_lead(served, decision):
    person = Person(decision, *["deny"] * 20)
    always, names = f"{served}/srv/**", [*COVERED, *NOT_COVERED]
    assert asking(person, always, f"{served}/srv", names) == NOT_COVERED


@pytest.mark.parametrize("decision", ["approve_for_session", "approve_for_project"])
def test_a_lasting_answer_holds_for_the_folder_to_which_its_link_led(served, decision):
    person = Person(decision, *["deny"] * 20)
    always, names = f"{served}/named/**", [*COVERED, *NOT_COVERED]
    assert asking(person, always, f"{served}/named", names) == NOT_COVERED

    (served / ".agent_magics/rules.toml").unlink(missing_ok=True)

    def move():
        (served / "named").unlink()
        (served / "named").symlink_to("etc")

    person = Person(decision, "deny")
    assert asking(person, always, f"{served}/named", ["a"], move) == ["a"]


@pytest.mark.parametrize(
    ("always", "folder"), [("out/**", "out"), ("./out/**", "out"), ("~/out/**", "~/out")]
)
def test_a_lasting_answer_may_be_relative(always, folder):
    person = Person("approve_for_session", *["deny"] * 9)
    assert asking(person, always, folder, ["a", "../a", "../out/a", "a\0b"]) == ["../a", "a\0b"]


def test_what_is_forbidden_is_so_by_each_path_that_leads_there(served, rules):
    rules(rule("write", f"{served}/elsewhere/**", "forbid"))
    person = Person("approve_for_session", *["approve"] * 9)
    assert asking(person, f"{served}/**", f"{served}/srv", ["out/a", "../elsewhere/a"]) == []

    @tool(mutating=False)
    async def act(ctx: ToolContext = None) -> str:
        """Act."""
        await ctx.ask(permission="write", patterns=[f"{served}/srv/out/a"])
        return "done"

    output = agent_with(person, tools=[act]).call_sync("act", {})
    assert "a rule forbids" in output.text


def test_rules_and_policy_answer_a_tool_that_asks(deploying, rules):
    deploy, _ = deploying
    person = Person("approve_for_project")
    rules(rule("write", "/srv/a", "forbid") + rule("write", "/srv/b", "allow"))
    agent = agent_with(person, policy="never", tools=[deploy])
    assert "a rule forbids /srv/a" in agent.call_sync("deploy", {"to": "a"}).text
    assert agent.call_sync("deploy", {"to": "b"}).success
    assert "asks nobody" in agent.call_sync("deploy", {"to": "c"}).text
    assert person.asked == []
    agent = agent_with(person, policy="on-request", tools=[deploy])
    assert agent.call_sync("deploy", {"to": "c"}).success
    assert agent.call_sync("deploy", {"to": "d"}).success
    assert len(person.asked) == 1, "it is a rule of the project now"


@pytest.mark.parametrize(
    "arguments", [{"permission": "fly", "patterns": ["a"]}, {"permission": "read", "patterns": []}]
)
def test_a_tool_that_asks_for_nonsense_is_told(arguments):
    @tool(mutating=False)
    async def act(ctx: ToolContext = None) -> str:
        """Act."""
        await ctx.ask(**arguments)
        return "done"

    output = agent_with(Person("approve"), tools=[act]).call_sync("act", {})
    assert "ValueError" in output.text


# -- the audit -----------------------------------------------------------------------------------


def test_every_decision_is_a_line_of_the_record(rules, tmp_path, without_sandbox):
    rules(rule("command", ["mkdir"], "forbid") + rule("command", ["cp"], "allow"))
    commands = [["ls"], ["touch", "a"], ["touch", "b"], ["mkdir", "x"], ["cp", "a", "b"]]
    person = Person("approve", "deny")
    agent = agent_with(
        person, [Call("shell", {"command": words}) for words in commands], "Ok.", policy="untrusted"
    )
    agent.run_sync("Go")
    agent.close()
    written = [json.loads(line) for line in record_of(agent)]
    audit = {line["target"]: line for line in written if line["type"] == "ApprovalDecided"}
    assert {target: (line["decision"], line["by"]) for target, line in audit.items()} == {
        "ls": ("run", "policy"),
        "touch a": ("approve", "program"),
        "touch b": ("deny", "program"),
        "mkdir x": ("refuse", "rule"),
        "cp a b": ("run", "rule"),
    }
    assert all(line["fingerprints"] and line["sandbox"] == "outside" for line in audit.values())
    assert str(user_rules_file()) in audit["cp a b"]["basis"]


def record_of(agent):
    [path] = rollout_folder().rglob(f"{agent.session.conversation.id}.jsonl")
    return path.read_text(encoding="utf-8").splitlines()


def test_reading_files_is_no_decision(tmp_path):
    (tmp_path / "a").write_text("x", encoding="utf-8")
    agent = agent_with(Person("deny"), Call("read_file", {"path": "a"}), "Ok.", tools=["read_file"])
    assert of_kind(agent.run_sync("Go"), ApprovalDecided) == []


def test_two_questions_about_the_same_thing_are_two(tmp_path):
    person = Person("approve")
    calls = [Call("shell", TOUCH), Call("shell", TOUCH)]
    result = agent_with(person, calls, "Ok.").run_sync("Go")
    assert len(of_kind(result, ApprovalRequested)) == 2
    assert len({question.question_id for question in person.asked}) == 2


def test_a_question_about_files_shows_one_diff_and_the_arguments_can_be_changed(tmp_path):
    (tmp_path / "a").write_text("one\n")
    patch = (
        "*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n*** Add File: b\n+new\n*** End Patch"
    )
    typed = patch.replace("+two", "+three")
    person = Person(Reply("approve", edited_text=json.dumps({"patch": typed})))
    agent = agent_with(person, tools=("apply_patch",))
    assert agent.call_sync("apply_patch", {"patch": patch}).success
    [question] = person.asked
    assert question.arguments == (
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+new\n"
    )
    assert json.loads(question.editable) == {"patch": patch}
    assert (tmp_path / "a").read_text() == "three\n"


# -- grants for kinds ------------------------------------------------------------------------------


def test_a_tool_that_was_granted_is_not_asked_about_again():
    @tool
    def note(n: int) -> str:
        """Take a note."""
        return f"noted {n}"

    person = Person("approve_kind_for_session", "deny")
    calls = [Call("note", {"n": 1}), Call("note", {"n": 2})]
    agent = agent_with(person, *calls, "Ok.", Call("note", {"n": 3}), "Ok.", tools=[note])
    first, second = agent.run_sync("Go"), agent.run_sync("Go")
    [question] = person.asked
    assert question.covers["approve_kind_for_session"].startswith("every call of note, with any")
    words = "every call of note, with any arguments"
    audit = [(e.decision, e.by, e.scope, e.basis) for e in of_kind(first, ApprovalDecided)]
    assert audit[1] == ("run", "grant", "once", words)
    assert audit[0][2] == "session"
    assert of_kind(second, ApprovalDecided)[0].basis == words
    [grant] = agent.session.conversation.store.grants
    assert grant.target == words
    agent.session.conversation.store.revoke(grant.fingerprint)
    assert not agent.call_sync("note", {"n": 4}).success


def test_for_a_cell_it_ends_with_the_cell():
    person = Person("approve_kind_for_cell", "deny")
    write = {"path": "data/a.txt", "content": "a"}
    calls = [Call("write_file", {**write, "path": f"data/{n}.txt"}) for n in "abc"]
    agent = agent_with(person, *calls, "Ok.", *calls[:1], "Ok.", tools=["write_file"])
    assert agent.run_sync("Go").status == "completed"
    [question] = person.asked
    assert question.covers["approve_kind_for_cell"].endswith("data, until this cell ends")
    agent.run_sync("Go")
    assert len(person.asked) == 2


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".agent_magics/rules.toml", "../elsewhere.txt", "a.txt"]
)
def test_what_is_protected_or_elsewhere_asks_all_the_same(path):
    person = Person("approve_kind_for_session", "deny")
    agent = agent_with(person, tools=["write_file"])
    assert agent.call_sync("write_file", {"path": "data/a.txt", "content": "a"}).success
    assert not agent.call_sync("write_file", {"path": path, "content": "b"}).success
    assert len(person.asked) == 2
    is_inside = path == "a.txt"
    assert ("approve_kind_for_session" in person.asked[1].scopes) == is_inside


def test_what_a_rule_asks_about_asks_all_the_same(rules):
    @tool
    def note(n: int) -> str:
        """Take a note."""
        return f"noted {n}"

    person = Person("approve_kind_for_session", "deny")
    agent = agent_with(person, tools=[note])
    assert agent.call_sync("note", {"n": 1}).success
    rules(rule("tool", "note", "prompt"))
    assert not agent.call_sync("note", {"n": 2}).success
    assert len(person.asked) == 2
    assert "approve_kind_for_session" not in person.asked[1].scopes


@pytest.mark.parametrize("decision", ["approve_kind_for_cell", "approve_kind_for_session"])
@pytest.mark.parametrize("policy", ["untrusted", "on-request", "on-failure"])
def test_a_dangerous_command_is_allowed_once_whatever_the_answer(decision, policy):
    person = Person(decision, "deny")
    calls = [Call("shell", {"command": ["git", "reset", "--hard"]})] * 2
    agent = agent_with(person, *calls, "Ok.", policy=policy)
    agent.run_sync("Go")
    assert len(person.asked) == 2
    assert all(question.dangerous for question in person.asked)
    assert not any("kind" in scope for question in person.asked for scope in question.scopes)
    assert agent.session.conversation.store.grants == ()


def test_a_command_that_holds_the_lock_of_the_rules_holds_up_no_other_turn(tmp_path, monkeypatch):
    """A command in the sandbox can lock a folder that it can read, such as the project's own."""
    begun = threading.Event()
    waited = locks.hold

    def lock(folder, wait):
        begun.set()
        return waited(folder, wait)

    monkeypatch.setattr(locks, "hold", lock)
    (tmp_path / ".agent_magics").mkdir()
    held = os.open(tmp_path / ".agent_magics", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    agent = scripted(
        tools=["shell"],
        approval="untrusted",
        on_question=lambda question: "approve_for_project",
        cwd=tmp_path,
    )
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(agent.call_sync, "shell", TOUCH)
        assert begun.wait(PATIENCE)
        try:
            agent.session.engine.spawn(asyncio.sleep(0)).result(locks.LONGEST_WAIT / 2)
        finally:
            os.close(held)
        assert called.result(PATIENCE).details["exit_code"] == 0
    assert len(RuleBook(tmp_path).project.rules) == 1
