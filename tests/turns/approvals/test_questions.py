"""Questions to the person, as a program answers them."""

import asyncio
import threading

import pytest

from agent_magics import Agent, Call, tool
from agent_magics.approval.actions import Action, ActionKind
from agent_magics.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    QuestionResolved,
    ToolCallRunning,
)
from agent_magics.protocol.ops import Answer
from tests.support.turns import Reply, assert_valid, of_kind, outputs, scripted


@pytest.fixture(autouse=True)
def _without_sandbox(monkeypatch):
    """Where there is no sandbox, every command but a safe one is asked about."""
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")


@pytest.fixture
def acts() -> list[str]:
    return []


@pytest.fixture
def act(acts):
    @tool
    def act(what: str, times: int = 1) -> str:
        """Act."""
        acts.append(what * times)
        return f"did {what}"

    return act


def asking(act, on_question, *turns, **options):
    """Return an agent that asks about every call."""
    turns = turns or (Call("act", {"what": "x"}), "Ok.")
    return scripted(*turns, tools=[act], approval="untrusted", on_question=on_question, **options)


def test_a_question_says_which_call_and_all_its_arguments(act):
    seen = []

    def on_question(question):
        seen.append(question)
        return "approve"

    result = asking(act, on_question).run_sync("Go")
    [question] = seen
    assert isinstance(question, ApprovalRequested)
    assert question.tool == "act"
    assert question.call_id == "call_1"
    assert '"x"' in question.arguments
    very_call, kind = ("approve_for_cell", "approve_for_session"), "approve_kind_for_"
    assert question.scopes == (*very_call, f"{kind}cell", f"{kind}session")
    [resolved] = of_kind(result, QuestionResolved)
    assert (resolved.question_id, resolved.decision, resolved.by) == (
        question.question_id,
        "approve",
        "program",
    )


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_plain_and_an_async_function_answer(act, acts, is_async, blocking):
    def plain(question):
        return "approve"

    async def awaited(question):
        await asyncio.sleep(0)
        return "approve"

    agent = asking(act, awaited if is_async else plain)

    async def inside_a_loop():
        return agent.run_sync("Go")

    result = asyncio.run(inside_a_loop()) if blocking else agent.run_sync("Go")
    assert result.calls[0].success
    assert acts == ["x"]


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_raises_denies_and_says_so(act, acts, is_async, blocking):
    def plain(question):
        raise LookupError("no idea")

    async def awaited(question):
        raise LookupError("no idea")

    agent = asking(act, awaited if is_async else plain)

    async def inside_a_loop():
        return agent.run_sync("Go")

    result = asyncio.run(inside_a_loop()) if blocking else agent.run_sync("Go")
    assert result.status == "completed"
    assert acts == []
    assert "on_question raised LookupError: no idea" in result.calls[0].output


@pytest.mark.parametrize(
    "garbage", [None, 42, True, "yes please", "approve!", "approved", {}, Reply("")]
)
def test_garbage_is_no_approval(act, acts, garbage):
    result = asking(act, lambda question: garbage).run_sync("Go")
    assert acts == []
    assert "which is no decision" in result.calls[0].output
    assert "approve_for_session" in result.calls[0].output


def test_a_denial_is_told_with_the_person_s_words(act, acts):
    result = asking(act, lambda q: Reply("deny", "use y instead")).run_sync("Go")
    assert acts == []
    assert result.text == "Ok."
    assert "the person denied it and says: use y instead" in result.calls[0].output
    assert not of_kind(result, ToolCallRunning)
    assert of_kind(result, QuestionResolved)[0].feedback == "use y instead"


def test_a_denial_without_words_says_not_to_try_again(act):
    result = asking(act, lambda q: "deny").run_sync("Go")
    assert "Do not try the same again" in result.calls[0].output


@pytest.mark.parametrize("edited", ['{"what": "y", "times": "3"}', {"what": "y", "times": 3}])
def test_edited_arguments_are_checked_and_run(act, acts, edited):
    result = asking(act, lambda q: Reply("approve", edited_arguments=edited)).run_sync("Go")
    assert acts == ["yyy"]
    told, _, output = result.calls[0].output.partition("\n")
    assert told.startswith("The person changed the arguments to: ")
    assert output == "did y"


def test_edited_arguments_that_do_not_fit_are_told(act, acts):
    result = asking(act, lambda q: Reply("approve", edited_arguments='{"what": []}')).run_sync("Go")
    assert acts == []
    assert "what: expected a string" in result.calls[0].output


def test_an_edited_patch_is_what_is_applied(tmp_path):
    patch = "*** Begin Patch\n*** Add File: {}.txt\n+made\n*** End Patch"
    agent = scripted(
        Call("apply_patch", {"patch": patch.format("a")}),
        "Ok.",
        tools=["apply_patch"],
        approval="untrusted",
        on_question=lambda q: Reply("approve", edited_arguments={"patch": patch.format("b")}),
    )
    agent.run_sync("Go")
    assert not (tmp_path / "a.txt").exists()
    assert (tmp_path / "b.txt").exists()


def test_two_questions_at_once_are_asked_in_order_and_answered_in_reverse():
    done = []

    @tool(parallel=True)
    def act(what: str) -> str:
        """Act."""
        done.append(what)
        return f"did {what}"

    asked, second_resolved = [], asyncio.Event()

    async def on_question(question):
        asked.append(question.call_id)
        if question.call_id == "call_1":
            await second_resolved.wait()
            return "approve"
        second_resolved.set()
        return Reply("deny", "not this one")

    calls = [Call("act", {"what": "a"}), Call("act", {"what": "b"})]
    agent = asking(act, on_question, calls, "Ok.")
    result = agent.run_sync("Go")
    assert asked == ["call_1", "call_2"]
    assert [event.decision for event in of_kind(result, QuestionResolved)] == ["deny", "approve"]
    assert done == ["a"]
    assert [call_id for call_id, _ in outputs(agent)] == ["call_1", "call_2"]
    assert outputs(agent)[0][1] == "did a"
    assert "not this one" in outputs(agent)[1][1]


def test_an_exclusive_call_answered_first_still_runs_second():
    order = []

    @tool
    def act(what: str) -> str:
        """Act."""
        order.append(what)
        return what

    second_answered = asyncio.Event()

    async def on_question(question):
        if question.call_id == "call_1":
            await second_answered.wait()
        second_answered.set()
        return "approve"

    calls = [Call("act", {"what": "a"}), Call("act", {"what": "b"})]
    asking(act, on_question, calls, "Ok.").run_sync("Go")
    assert order == ["a", "b"]


def test_abort_ends_the_turn_and_leaves_a_valid_history(act, acts):
    calls = [Call("act", {"what": "a"}), Call("act", {"what": "b"})]
    agent = asking(act, lambda q: "abort" if q.call_id == "call_1" else "approve", calls, "Again.")
    result = agent.run_sync("Go")
    assert result.status == "aborted"
    assert "question about act" in result.error
    assert acts == []
    assert_valid(agent)
    assert agent.run_sync("Go on").text == "Again."


def test_always_for_the_session_is_not_asked_again(act, acts):
    asked = []

    def on_question(question):
        asked.append(question.call_id)
        return "approve_for_session"

    again = [Call("act", {"what": "a"}), "Ok."]
    agent = asking(act, on_question, *again, *again, Call("act", {"what": "b"}), "Ok.")
    agent.run_sync("Go")
    agent.run_sync("Go")
    assert asked == ["call_1"]
    assert acts == ["a", "a"]
    (fingerprint,) = agent.session.conversation.store.session_grants
    agent.run_sync("Go")  # other arguments are another call
    assert asked == ["call_1", "call_3"]
    agent.session.conversation.store.revoke(fingerprint)
    agent.call_sync("act", {"what": "a"})
    assert len(asked) == 3


def test_always_for_the_cell_ends_with_the_turn(act, acts):
    asked = []

    def on_question(question):
        asked.append(question.call_id)
        return "approve_for_cell"

    two = [Call("act", {"what": "a"}), "Ok."]
    agent = asking(act, on_question, Call("act", {"what": "a"}), *two, *two)
    agent.run_sync("Go")
    assert asked == ["call_1"]
    assert acts == ["a", "a"]
    agent.run_sync("Go")
    assert asked == ["call_1", "call_3"]


def test_a_cell_s_grant_survives_a_call_made_inside_the_turn(acts):
    asked = []

    def on_question(question):
        asked.append(question.tool)
        return "approve_for_cell"

    @tool
    def act(what: str) -> str:
        """Act."""
        acts.append(what)
        return what

    @tool(mutating=False)
    def outer() -> str:
        """Call another tool."""
        return agent.call_sync("act", {"what": "b"}).text

    agent = scripted(
        *(Call("act", {"what": "a"}), Call("outer")),
        *(Call("act", {"what": "a"}), Call("act", {"what": "b"}), "Ok."),
        tools=[act, outer],
        approval="untrusted",
        on_question=on_question,
    )
    agent.run_sync("Go")
    assert acts == ["a", "b", "a", "b"]
    assert asked == ["act", "act"]  # about each of the two once


def test_reset_takes_the_grants_back(act):
    asked = []

    def on_question(question):
        asked.append(question.call_id)
        return "approve_for_session"

    agent = asking(act, on_question, Call("act", {"what": "a"}), "Ok.")
    agent.run_sync("Go")
    agent.reset()
    agent.call_sync("act", {"what": "b"})
    assert len(asked) == 2


def test_with_nobody_to_ask_it_is_denied_with_a_way_out(act, acts):
    result = asking(act, None).run_sync("Go")
    assert acts == []
    assert "nobody can be asked here" in result.calls[0].output
    assert "approval='never'" in result.calls[0].output
    assert of_kind(result, QuestionResolved)[0].by == "policy"


def test_an_answer_that_comes_twice_or_late_is_dropped(act, acts):
    def on_question(question):
        agent.session.submit(Answer(question_id=question.question_id, decision="deny"))
        return "approve"

    agent = asking(act, on_question)
    result = agent.run_sync("Go")
    assert acts == []
    assert [event.decision for event in of_kind(result, QuestionResolved)] == ["deny"]


def test_an_answer_from_another_thread_arrives(act, acts):
    def on_question(question):
        answers.append(question)
        raised.set()
        return later()

    async def later():
        await asyncio.Event().wait()

    answers, raised = [], threading.Event()
    agent = asking(act, on_question)

    def click():
        assert raised.wait(20)
        agent.session.submit(Answer(question_id=answers[0].question_id, decision="approve"))

    thread = threading.Thread(target=click)
    thread.start()
    result = agent.run_sync("Go")
    thread.join()
    assert acts == ["x"]
    assert of_kind(result, QuestionResolved)[0].by == "person"


async def exits_later(question):
    raise SystemExit(2)


def exits(question):
    raise SystemExit(2)


@pytest.mark.parametrize("on_question", [exits, exits_later])
@pytest.mark.parametrize("in_loop", [False, True])
def test_an_answer_that_exits_ends_the_turn_and_reaches_the_program(
    act, acts, on_question, in_loop
):
    agent = asking(act, on_question)

    async def main():
        with pytest.raises(SystemExit):
            agent.run_sync("Go")

    if in_loop:
        asyncio.run(main())
    else:
        with pytest.raises(SystemExit):
            agent.run_sync("Go")
    assert acts == []
    assert not agent.session.busy
    assert agent.run_sync("Go").text == "Ok."
    assert_valid(agent)


def test_after_abort_no_call_that_waited_in_line_begins(acts):
    @tool
    def act(what: str) -> str:
        """Act."""
        acts.append(what)
        return what

    second_answered = asyncio.Event()

    async def on_question(question):
        if question.call_id == "call_1":
            await second_answered.wait()
            return "abort"
        second_answered.set()
        return "approve"

    for _ in range(20):
        second_answered = asyncio.Event()
        calls = [Call("act", {"what": "a"}), Call("act", {"what": "b"})]
        assert asking(act, on_question, calls).run_sync("Go").status == "aborted"
    assert acts == []


# -- what changes between the question and the run -----------------------------------------------

EVIL = "*** Begin Patch\n*** Add File: data/new\n+x\n*** End Patch"


@pytest.fixture
def relink(tmp_path):
    """A tool that lets data/ lead to keys; before it runs, data/ is a plain folder."""
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/config").write_text("SECRET", encoding="utf-8")
    (tmp_path / "work/data").mkdir(parents=True)
    (tmp_path / "work/data/config").write_text("harmless", encoding="utf-8")

    @tool(mutating=False)
    def relink() -> str:
        """Put a link there."""
        (tmp_path / "work/data").rename(tmp_path / "work/old")
        (tmp_path / "work/data").symlink_to(tmp_path / "home/.ssh")
        return "done"

    return relink


def test_a_command_is_judged_again_where_it_has_waited(tmp_path):
    judged = []

    def assess(arguments, ctx):
        judged.append(arguments["name"])
        return [Action(ActionKind.COMMAND_SAFE, arguments["name"])]

    @tool(mutating=True, assess=assess)
    def run(name: str) -> str:
        """Run something."""
        return name

    calls = [Call("run", {"name": "first"}), Call("run", {"name": "second"})]
    agent = scripted(calls, "Ok.", tools=[run], approval="never", cwd=tmp_path)
    assert agent.run_sync("Go").status == "completed"
    assert sorted(judged) == ["first", "second", "second"]


READING = Call("shell", {"command": ["cat", "data/config"]})


TOUCHING = [
    READING,
    Call("read_file", {"path": "data/config"}),
    Call("list_dir", {"path": "data"}),
    Call("grep_files", {"path": "data", "pattern": "."}),
    Call("apply_patch", {"patch": EVIL}),
]


@pytest.mark.parametrize("call", TOUCHING)
def test_a_call_behind_one_that_changes_what_it_touches_is_refused(relink, tmp_path, call):
    agent = scripted(
        [Call("relink"), call],
        "Ok.",
        tools=["coding", relink],
        approval="never",
        cwd=tmp_path / "work",
    )
    result = agent.run_sync("Go")
    assert result.calls[0].success
    assert "what it would touch has changed since it was checked" in result.calls[1].output
    assert not of_kind(result, ApprovalRequested)
    assert not (tmp_path / "home/.ssh/new").exists()


@pytest.mark.parametrize("call", TOUCHING)
def test_a_call_behind_one_that_changes_what_it_touches_is_asked_about(relink, tmp_path, call):
    agent = scripted(
        [Call("relink"), call],
        "Ok.",
        tools=["coding", relink],
        approval="on-request",
        cwd=tmp_path / "work",
        on_question=lambda q: "deny",
    )
    result = agent.run_sync("Go")
    [question] = of_kind(result, ApprovalRequested)
    assert question.reason.startswith("it has changed since it was checked; ")
    assert "denied" in result.calls[1].output
    assert not (tmp_path / "home/.ssh/new").exists()


@pytest.mark.parametrize("decision", ["approve", "approve_for_session"])
@pytest.mark.parametrize("again", ["approve", "deny"])
def test_what_was_approved_is_asked_about_again_when_it_leads_elsewhere(
    relink, tmp_path, decision, again
):
    answers = iter([decision, again])

    def on_question(question):
        if (tmp_path / "work/old").exists():
            assert "has changed" in question.reason
        else:
            relink()
        return next(answers)

    agent = scripted(
        Call("apply_patch", {"patch": EVIL}),
        "Ok.",
        tools=["coding"],
        approval="untrusted",
        cwd=tmp_path / "work",
        on_question=on_question,
    )
    result = agent.run_sync("Go")
    assert len(of_kind(result, ApprovalRequested)) == 2
    assert (tmp_path / "home/.ssh/new").exists() is (again == "approve")


def test_what_changes_at_every_question_is_not_run(tmp_path):
    asked = []

    def on_question(question):
        asked.append(question.target)
        (tmp_path / "script.sh").write_text(f"echo {len(asked)} > out", encoding="utf-8")
        return "approve"

    (tmp_path / "script.sh").write_text("echo 0 > out", encoding="utf-8")
    agent = scripted(
        Call("shell", {"command": ["sh", "script.sh"]}),
        "Ok.",
        tools=["shell"],
        approval="untrusted",
        cwd=tmp_path,
        on_question=on_question,
    )
    result = agent.run_sync("Go")
    assert len(asked) == 2
    assert "Call again, so that it is checked anew" in result.calls[0].output
    assert not (tmp_path / "out").exists()
    decided = [event.decision for event in of_kind(result, ApprovalDecided)]
    assert decided == ["approve", "approve", "refuse"]


@pytest.mark.parametrize("call", [READING, Call("read_file", {"path": "data/config"})])
def test_what_was_approved_and_is_harmless_now_is_judged_as_it_is_now(relink, tmp_path, call):
    relink()

    def on_question(question):
        (tmp_path / "work/data").unlink()
        (tmp_path / "work/old").rename(tmp_path / "work/data")
        return "approve"

    agent = scripted(
        call,
        "Ok.",
        tools=["coding"],
        approval="on-request",
        cwd=tmp_path / "work",
        on_question=on_question,
    )
    result = agent.run_sync("Go")
    assert len(of_kind(result, ApprovalRequested)) == 1
    assert "harmless" in result.calls[0].output
    assert "SECRET" not in result.calls[0].output


def test_calls_that_wait_for_others_run_where_nothing_changed(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/config").write_text("harmless", encoding="utf-8")
    second = EVIL.replace("Add File: data/new", "Update File: data/new").replace("+x", "-x\n+y")
    agent = scripted(
        [Call("apply_patch", {"patch": EVIL}), READING, Call("apply_patch", {"patch": second})],
        "Ok.",
        tools=["coding"],
        approval="untrusted",
        cwd=tmp_path,
        on_question=lambda q: "approve",
    )
    assert [call.success for call in agent.run_sync("Go").calls] == [True, True, True]
    assert (tmp_path / "data/new").read_text(encoding="utf-8") == "y\n"


def test_a_question_names_everything_it_is_about(tmp_path):
    (tmp_path / "work").mkdir()
    asked = []

    def on_question(question):
        asked.append((question.target, question.reason))
        return "deny"

    files = "".join(f"*** Add File: {name}\n+x\n" for name in ("in", "../a", "../b", ".git/c"))
    agent = scripted(
        Call("apply_patch", {"patch": f"*** Begin Patch\n{files}*** End Patch"}),
        "Ok.",
        tools=["coding"],
        approval="on-request",
        cwd=tmp_path / "work",
        on_question=on_question,
    )
    agent.run_sync("Go")
    assert asked == [
        (
            f"{tmp_path}/a, {tmp_path}/b, .git/c",
            "outside the workspace; protected: git's own folder",
        )
    ]


def test_the_ways_out_that_a_denial_names_are_ways_out(tmp_path):
    """Under "never" a command without a sandbox is refused: no denial may send people there."""
    command = {"command": ["mkdir", "made"]}
    told = Agent(cwd=tmp_path).call_sync("shell", command)
    assert not told.success
    assert "sandbox='danger-full-access' lets commands run" in told.text
    assert not Agent(cwd=tmp_path, approval="never").call_sync("shell", command).success
    assert Agent(cwd=tmp_path, sandbox="danger-full-access").call_sync("shell", command).success
    assert (tmp_path / "made").is_dir()
