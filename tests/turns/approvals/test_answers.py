"""What an answer holds is taken where its question offers it, and nowhere left out in silence."""

from dataclasses import replace

import pytest

from agent_magics import Call, ToolContext, tool
from agent_magics.config_files.places import user_rules_file
from agent_magics.protocol.events import ApprovalDecided, ToolCallFailed
from tests.support.needs import require
from tests.support.turns import Person, Reply, of_kind, scripted


@pytest.fixture
def rules():
    """Writes the person's own rules."""
    path = user_rules_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    yield lambda text: path.write_text(text, encoding="utf-8")
    path.unlink(missing_ok=True)


def rule(pattern, decision):
    return f'[[rule]]\npermission = "tool"\npattern = "{pattern}"\ndecision = "{decision}"\n'


# -- an edit -------------------------------------------------------------------------------------

EDITS = {
    "text": Reply("approve", edited_text="true"),
    "arguments": Reply("approve", edited_arguments={"command": ["true"]}),
    "lasting": Reply("approve_for_session", edited_text="true"),
}


@pytest.fixture(params=EDITS.values(), ids=EDITS)
def edit(request):
    return request.param


@pytest.fixture
def deploying():
    ran = []

    @tool
    async def deploy(command: str, ctx: ToolContext) -> str:
        """Deploy."""
        await ctx.ask(permission="tool", patterns=["deploy"], always=["deploy"])
        ran.append(command)
        return f"ran {command}"

    return deploy, ran


def deployed(deploy, *answers, command="production", policy="on-request"):
    person = Person(*answers)
    agent = scripted(
        Call("deploy", {"command": command}),
        "Ok.",
        tools=[deploy],
        approval=policy,
        on_question=person,
    )
    return agent.run_sync("Go."), person


def test_an_edit_is_no_approval_of_what_a_tool_asks_for(deploying, edit):
    deploy, ran = deploying
    result, person = deployed(deploy, edit)
    assert (ran, [question.editable for question in person.asked]) == ([], [""])
    assert "cannot be changed" in result.calls[0].output
    assert of_kind(result, ApprovalDecided)[-1].decision == "deny"


@pytest.mark.parametrize("unchanged", [None, ""])
def test_an_answer_that_gives_the_text_back_is_no_edit(deploying, unchanged):
    deploy, ran = deploying
    deployed(deploy, Reply("approve", edited_text=unchanged))
    assert ran == ["production"]


def test_an_edit_repeats_nothing_outside_the_sandbox(edit, tmp_path_factory):
    require("tier 1")
    made = tmp_path_factory.mktemp("outside") / "made"
    person = Person(edit)
    agent = scripted(tools=["shell"], approval="on-failure", on_question=person)
    output = agent.call_sync("shell", {"command": ["touch", str(made)]})
    assert [question.editable for question in person.asked] == [""]
    assert not made.exists()
    assert "It was not repeated outside the sandbox." in output.text
    assert "cannot be changed" in output.text


def test_an_edit_lets_no_circle_go_on(edit):
    @tool(mutating=False)
    def peek() -> str:
        """Look."""
        return "as it was"

    agent = scripted(
        *[Call("peek")] * 5, "Ok.", tools=[peek], approval="on-request", on_question=Person(edit)
    )
    [failed] = of_kind(agent.run_sync("Go."), ToolCallFailed)
    assert "it was not allowed to go on (the call cannot be changed" in failed.output


def test_what_on_question_raised_at_a_circle_is_told():
    @tool(mutating=False)
    def peek() -> str:
        """Look."""
        return "as it was"

    def on_question(question):
        raise LookupError("no idea")

    agent = scripted(
        *[Call("peek")] * 5, "Ok.", tools=[peek], approval="on-request", on_question=on_question
    )
    [failed] = of_kind(agent.run_sync("Go."), ToolCallFailed)
    assert "(on_question raised LookupError: no idea)" in failed.output


def test_after_an_edit_a_tool_asks_about_the_call_that_runs(deploying):
    deploy, ran = deploying
    answers = [Reply("approve", edited_text="staging"), "approve"]
    _, person = deployed(deploy, *answers, policy="untrusted")
    assert ran == ["staging"]
    assert [question.arguments for question in person.asked] == [
        '{"command": "production"}',
        '{"command": "staging"}',
    ]


# -- a lasting answer ----------------------------------------------------------------------------

LASTING = [
    f"approve_{kind}"
    for kind in (
        *("for_cell", "for_session", "for_project", "for_project_exact"),
        *("kind_for_cell", "kind_for_session"),
    )
]


@pytest.mark.parametrize("decision", LASTING)
def test_a_lasting_answer_that_is_not_offered_leaves_nothing_behind(decision, rules):
    @tool
    def note(n: int) -> str:
        """Take a note."""
        return f"noted {n}"

    rules(rule("note", "prompt"))
    person = Person(decision, "deny")
    agent = scripted(
        Call("note", {"n": 1}),
        "Ok.",
        Call("note", {"n": 2}),
        "Ok.",
        tools=[note],
        approval="untrusted",
        on_question=person,
    )
    first = agent.run_sync("Go.")
    assert first.calls[0].output == "noted 1"
    rules("")
    is_offered = decision in person.asked[0].scopes
    assert is_offered == (decision in ("approve_for_cell", "approve_for_session"))
    assert all(grant.permission == "" for grant in agent.session.conversation.store.grants)
    [decided] = of_kind(first, ApprovalDecided)
    kept = agent.session.conversation.store.grants
    assert (decided.scope == "session") == bool(kept)
    assert agent.run_sync("Go.").calls[0].success is False, "of another call nothing was said"


def test_no_such_answer_holds_longer_than_the_question_says():
    @tool(mutating=False)
    async def deploy(ctx: ToolContext) -> str:
        """Deploy."""
        await ctx.ask(permission="tool", patterns=["deploy"])
        return "deployed"

    person = Person("approve_for_session")
    agent = scripted(
        Call("deploy"), "Ok.", tools=[deploy], approval="on-request", on_question=person
    )
    [decided] = of_kind(agent.run_sync("Go."), ApprovalDecided)[-1:]
    assert (person.asked[0].scopes, decided.decision, decided.scope) == ((), "approve", "once")


# -- the record ----------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["forbid", "allow"])
def test_what_a_rule_decides_while_a_call_waits_for_its_place_is_recorded(decision, rules):
    before = {"forbid": "", "allow": rule("second", "prompt")}[decision]

    @tool(mutating=False)
    def first() -> str:
        """Change the rules."""
        rules(rule("second", decision))
        return "ok"

    @tool
    def second() -> str:
        """Come second."""
        return "ran"

    rules(before)
    agent = scripted(
        [Call("first"), Call("second")],
        "Ok.",
        tools=[first, second],
        approval="on-request",
        on_question=lambda question: "approve",
    )
    result = agent.run_sync("Go.")
    by_rule = [e.decision for e in of_kind(result, ApprovalDecided) if e.by == "rule"]
    assert result.calls[1].success == (decision == "allow")
    assert by_rule == {"forbid": ["refuse"], "allow": []}[decision]


def test_what_is_not_asked_any_more_is_recorded():
    @tool
    def act(n: int) -> str:
        """Act."""
        return "done"

    calls = [Call("act", {"n": n}) for n in range(40)]
    agent = scripted(
        calls, "Ok.", tools=[act], approval="untrusted", on_question=lambda question: "deny"
    )
    result = agent.run_sync("Go.")
    unasked = [call.call_id for call in result.calls if "25 questions in a row" in call.output]
    decided = of_kind(result, ApprovalDecided)
    assert {e.call_id for e in decided} == {call.call_id for call in result.calls}
    assert {e.call_id for e in decided if e.by == "policy"} == {*unasked} != set()


@pytest.mark.parametrize("decision", ["approve", *LASTING])
def test_of_an_edited_call_the_call_that_runs_is_recorded(decision, tmp_path):
    """The record is the one that the call would have had if the model had written it so."""

    def decided(path, *answers):
        agent = scripted(
            Call("write_file", {"path": path, "content": "x"}),
            "Ok.",
            tools=["write_file"],
            approval="untrusted",
            on_question=Person(*answers),
            cwd=tmp_path,
        )
        result = agent.run_sync("Go.")
        (tmp_path / "b.txt").unlink()
        [event] = of_kind(result, ApprovalDecided)
        return replace(event, seq=0, turn_id="", at=0.0), agent.session.conversation.store.grants

    edited = {"path": "b.txt", "content": "x"}
    assert decided("a.txt", Reply(decision, edited_arguments=edited)) == decided("b.txt", decision)


def test_no_rule_is_named_that_an_edited_answer_does_not_write(tmp_path):
    require("tier 1")
    person = Person(Reply("approve_for_project", edited_text="touch b"), "deny")
    agent = scripted(
        Call("shell", {"command": ["touch", "a"]}),
        "Ok.",
        tools=["shell"],
        approval="untrusted",
        on_question=person,
        cwd=tmp_path,
    )
    result = agent.run_sync("Go.")
    assert "approve_for_project" in person.asked[0].scopes
    assert (tmp_path / "b").exists() and not (tmp_path / ".agent-magics").exists()
    [decided] = of_kind(result, ApprovalDecided)
    assert decided.target.endswith("touch b") and not decided.basis.startswith("rule")


@pytest.mark.parametrize(("path", "edited"), [("sub/a", "b"), ("sub/a", "sub/b"), ("a", "sub/b")])
def test_a_kind_is_granted_as_the_question_says_it_whatever_the_person_edits(
    path, edited, tmp_path
):
    (tmp_path / "sub").mkdir()
    answer = Reply("approve_kind_for_session", edited_arguments={"path": edited, "content": "x"})
    person = Person(answer, "deny")
    agent = scripted(
        Call("write_file", {"path": path, "content": "x"}),
        "Ok.",
        tools=["write_file"],
        approval="untrusted",
        on_question=person,
        cwd=tmp_path,
    )
    agent.run_sync("Go.")
    assert (tmp_path / edited).exists()
    [grant] = agent.session.conversation.store.grants
    assert person.asked[0].covers["approve_kind_for_session"].startswith(f"{grant.target}, until")
