"""Who is asked: every cell of the policy table, then its rows driven through real calls."""

import shutil
from pathlib import Path

import pytest

from agent_magics import tool
from agent_magics.approval.actions import ActionKind
from agent_magics.approval.requirement import Verdict, decide
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.events import ApprovalRequested
from tests.support.needs import require
from tests.support.turns import scripted

POLICIES = ("untrusted", "on-request", "on-failure", "never")

# The table of the specification, row by row; columns as in POLICIES.
TABLE = {
    ActionKind.COMMAND_SAFE: "run run run run",
    ActionKind.COMMAND_SANDBOXED: "ask run run run",
    ActionKind.COMMAND_UNSANDBOXED: "ask ask ask refuse",
    ActionKind.COMMAND_FULL_ACCESS: "ask run run run",
    ActionKind.COMMAND_ESCALATED: "ask ask ask refuse",
    ActionKind.COMMAND_NETWORK: "ask ask ask refuse",
    ActionKind.COMMAND_DANGEROUS: "ask ask ask refuse",
    ActionKind.WRITE_INSIDE: "ask run run run",
    ActionKind.WRITE_OUTSIDE: "ask ask ask refuse",
    ActionKind.READ: "run run run run",
    ActionKind.READ_DENIED: "ask ask ask refuse",
    ActionKind.OWN_TOOL_READING: "run run run run",
    ActionKind.OWN_TOOL_MUTATING: "ask run run run",
    ActionKind.DYNAMIC_TOOL: "ask ask run run",
    ActionKind.MCP_READING: "ask run run run",
    ActionKind.MCP_OTHER: "ask ask ask run",
    ActionKind.MCP_ASKING: "ask ask ask refuse",
    ActionKind.MCP_ALLOWED: "run run run run",
    ActionKind.LIVE_PYTHON: "ask ask ask run",
    ActionKind.NOTEBOOK_CHANGE: "ask ask ask run",
    ActionKind.GUARD_RAIL: "ask ask ask run",
    ActionKind.SCRATCH_PYTHON: "ask run run run",
    ActionKind.MEMORY: "ask run run run",
    ActionKind.TOOL_REQUEST: "ask ask ask refuse",
}
CELLS = [
    pytest.param(kind, policy, expected, id=f"{kind.name.lower()}-{policy}")
    for kind, row in TABLE.items()
    for policy, expected in zip(POLICIES, row.split(), strict=True)
]


def test_the_table_has_every_kind_of_action():
    assert set(TABLE) == set(ActionKind)


@pytest.mark.parametrize(("kind", "policy", "expected"), CELLS)
def test_cell(kind, policy, expected):
    assert decide(kind, ApprovalPolicy(policy)) is Verdict(expected)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", list(ActionKind))
def test_allow_dangerous_changes_one_cell_alone(kind, policy):
    plain = decide(kind, ApprovalPolicy(policy))
    allowed = decide(kind, ApprovalPolicy(policy), allow_dangerous=True)
    if kind is ActionKind.COMMAND_DANGEROUS and policy == "never":
        assert (plain, allowed) == (Verdict.REFUSE, Verdict.RUN)
    else:
        assert allowed is plain


# -- the rows, driven for real -------------------------------------------------------------------


@tool
def changes() -> str:
    """Change something."""
    Path("changed").touch()
    return "changed"


@tool(mutating=False)
def looks() -> str:
    """Change nothing."""
    Path("looked").touch()
    return "looked"


def patch(path: str) -> dict[str, str]:
    return {"patch": f"*** Begin Patch\n*** Add File: {path}\n+made\n*** End Patch"}


# (arguments, the effect that shows that it ran, options, the four verdicts)
ROWS = {
    "safe command": ("shell", {"command": ["cat", "a.txt"]}, None, {}, "run run run run"),
    "other command, tier 0": (
        *("shell", {"command": ["touch", "made"]}, "made", {}, "ask ask ask refuse"),
    ),
    "full access": (
        *("shell", {"command": ["touch", "made"]}, "made"),
        *({"sandbox": "danger-full-access"}, "ask run run run"),
    ),
    "escalation": (
        "shell",
        {
            "command": ["touch", "made"],
            "sandbox_permissions": "require_escalated",
            "justification": "it must be",
        },
        "made",
        {"sandbox": "danger-full-access"},
        "ask ask ask refuse",
    ),
    "network": (
        "shell",
        {
            "command": ["touch", "made"],
            "sandbox_permissions": "require_network",
            "justification": "it must be",
        },
        "made",
        {},
        "ask ask ask refuse",
    ),
    "dangerous command": (
        *("shell", {"command": ["chmod", "-R", "u+rwx", "."]}, None),
        *({"sandbox": "danger-full-access"}, "ask ask ask refuse"),
    ),
    "write inside": ("apply_patch", patch("made"), "made", {}, "ask run run run"),
    "write inside, read-only": (
        *("apply_patch", patch("made"), "made", {"sandbox": "read-only"}, "ask ask ask refuse"),
    ),
    "write outside": ("apply_patch", patch("../made"), "../made", {}, "ask ask ask refuse"),
    "write to .git": (
        *("apply_patch", patch(".git/hooks/made"), ".git/hooks/made", {}, "ask ask ask refuse"),
    ),
    "read": ("read_file", {"path": "a.txt"}, None, {}, "run run run run"),
    "read denied": ("read_file", {"path": ".env"}, None, {}, "ask ask ask refuse"),
    "own tool, mutating": ("changes", {}, "changed", {}, "ask run run run"),
    "own tool, reading": ("looks", {}, "looked", {}, "run run run run"),
}
DRIVEN = [
    pytest.param(*row[:-1], policy, expected, id=f"{name}-{policy}")
    for name, row in ROWS.items()
    for policy, expected in zip(POLICIES, row[-1].split(), strict=True)
]


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    folder = tmp_path / "workspace"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.txt").write_text("words\n", encoding="utf-8")
    (folder / ".env").write_text("PLAIN=words\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")  # but for the rows of the sandbox, below
    yield folder
    shutil.rmtree(folder)


def make_agent(policy, decision, asked, **options):
    def on_question(question):
        asked.append(question)
        return decision

    tools = ["shell", "apply_patch", "read_file", changes, looks]
    return scripted(tools=tools, approval=policy, on_question=on_question, **options)


@pytest.mark.parametrize(("name", "arguments", "effect", "options", "policy", "expected"), DRIVEN)
def test_a_call_does_what_the_table_says(
    workspace, name, arguments, effect, options, policy, expected
):
    asked = []
    output = make_agent(policy, "approve", asked, **options).call_sync(name, arguments)
    assert [type(question) for question in asked] == (
        [ApprovalRequested] if expected == "ask" else []
    )
    ran = expected != "refuse"
    assert output.success is ran, output.text
    if effect is not None:
        assert (workspace / effect).exists() is ran
    if not ran:
        assert output.text.startswith("Refused: ")
        assert "'never' asks nobody" in output.text


@pytest.mark.parametrize(
    ("name", "arguments", "effect", "options", "policy", "expected"),
    [param for param in DRIVEN if param.values[-1] == "ask"],
)
def test_what_is_denied_is_not_done(workspace, name, arguments, effect, options, policy, expected):
    asked = []
    output = make_agent(policy, "deny", asked, **options).call_sync(name, arguments)
    assert len(asked) == 1
    assert not output.success
    assert "denied" in output.text
    if effect is not None:
        assert not (workspace / effect).exists()


def asking_for(permissions, *command):
    """The arguments of a command that asks for more than the sandbox's default."""
    return {
        "command": list(command or ("touch", "made")),
        "sandbox_permissions": permissions,
        "justification": "it must be",
    }


SANDBOXED_ROWS = {
    "safe command": ({"command": ["cat", "a.txt"]}, "run run run run"),
    "git that reads": ({"command": ["git", "status"]}, "run run run run"),
    "other command": ({"command": ["touch", "made"]}, "ask run run run"),
    "escalation": (asking_for("require_escalated"), "ask ask ask refuse"),
    "network": (asking_for("require_network"), "ask ask ask refuse"),
    "more roots": (asking_for({"write": [".."]}), "ask ask ask refuse"),
    "alias": (
        {"command": ["touch", "made"], "with_escalated_permissions": True, "justification": "so"},
        "ask ask ask refuse",
    ),
    "dangerous": ({"command": ["git", "clean", "-f"]}, "ask ask ask refuse"),
}


@pytest.mark.parametrize(
    ("arguments", "policy", "expected"),
    [
        pytest.param(arguments, policy, expected, id=f"{name}-{policy}")
        for name, (arguments, row) in SANDBOXED_ROWS.items()
        for policy, expected in zip(POLICIES, row.split(), strict=True)
    ],
)
def test_a_command_in_the_sandbox_does_what_the_table_says(
    workspace, monkeypatch, arguments, policy, expected
):
    monkeypatch.delenv("AGENT_MAGICS_TIER")
    require("tier 1")
    asked = []
    output = make_agent(policy, "approve", asked).call_sync("shell", arguments)
    assert len(asked) == (expected == "ask")
    assert output.text.startswith("Refused: ") is (expected == "refuse"), output.text
    if "made" in arguments["command"]:
        assert (workspace / "made").exists() is (expected != "refuse")


def test_a_dangerous_command_runs_under_never_only_where_that_was_allowed(workspace):
    command = {"command": ["chmod", "-R", "u+rwx", "."]}
    options = {"sandbox": "danger-full-access"}
    assert (
        make_agent("never", "deny", [], allow_dangerous=True, **options)
        .call_sync("shell", command)
        .success
    )
    assert not make_agent("never", "deny", [], **options).call_sync("shell", command).success


def test_a_dangerous_command_offers_no_lasting_answer(workspace):
    asked = []
    agent = make_agent("on-request", "approve_for_session", asked)
    for _ in range(2):
        agent.call_sync("shell", {"command": ["chmod", "-R", "u+rwx", "."]})
    assert len(asked) == 2
    assert asked[0].scopes == ()


def test_an_escalation_without_a_justification_is_not_even_asked_about(workspace):
    asked = []
    output = make_agent("on-request", "approve", asked).call_sync(
        "shell", {"command": ["touch", "made"], "sandbox_permissions": "require_escalated"}
    )
    assert asked == []
    assert "needs a justification" in output.text
    assert not (workspace / "made").exists()


def test_a_grant_for_a_command_does_not_hold_for_the_same_command_with_more_rights(workspace):
    asked = []
    agent = make_agent("on-request", "approve_for_session", asked)
    agent.call_sync("shell", {"command": ["touch", "made"]})
    agent.call_sync("shell", {"command": ["touch", "made"]})
    assert len(asked) == 1
    more = {"sandbox_permissions": "require_escalated", "justification": "it must be"}
    agent.call_sync("shell", {"command": ["touch", "made"], **more})
    assert len(asked) == 2


def test_a_grant_for_one_file_does_not_hold_for_another(workspace):
    asked = []
    agent = make_agent("untrusted", "approve_for_session", asked)
    agent.call_sync("apply_patch", patch("one"))
    agent.call_sync("apply_patch", patch("two"))
    assert len(asked) == 2


def test_the_question_names_the_path_and_why(workspace):
    asked = []
    make_agent("on-request", "deny", asked).call_sync("apply_patch", patch("../made"))
    assert "made" in asked[0].target
    assert asked[0].reason
