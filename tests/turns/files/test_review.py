"""A turn's changes are kept or reverted one by one; what the person wrote since is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_magics import Agent, Call, ToolContext, tool
from agent_magics.kernel.lab.link import LabLink
from agent_magics.kernel.lab.reviews import answer_review
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import ModelInformed
from tests.support.turns import of_kind, scripted

LINES = [f"{number}\n" for number in range(30)]
# Two changes far apart, a new file, one that goes, and one whose mode changes.
SCRIPT = (
    "sed -i -e s/^5$/five/ -e s/^25$/twenty-five/ a.txt; echo new > b.txt; rm c.txt; chmod +x d"
)


@pytest.fixture
def agent() -> Iterator[Agent]:
    Path("a.txt").write_text("".join(LINES))
    Path("c.txt").write_text("c\n")
    Path("d").write_text("d\n")
    command = Call("shell_command", {"command": SCRIPT})
    with scripted(
        command, "Done.", "Next.", sandbox="danger-full-access", tools=["shell_command"]
    ) as agent:
        agent.run_sync("Change it.")
        yield agent


def test_changes_are_reverted_one_by_one_and_the_model_is_told(agent: Agent) -> None:
    review = agent.review()
    assert [change.path for change in review.changes] == ["a.txt", "a.txt", "b.txt", "c.txt", "d"]
    assert "-5\n+five" in review.changes[0].diff
    review.keep(1)
    assert [review.revert(number) for number in (2, 3, 4, 5)] == [""] * 4
    states = [change.state for change in agent.review().changes]
    assert states == ["kept", *["reverted"] * 4]
    assert Path("a.txt").read_text() == "".join(LINES).replace("5\n", "five\n", 1)
    assert not Path("b.txt").exists()
    assert Path("c.txt").read_text() == "c\n"
    assert Path("d").stat().st_mode & 0o111 == 0
    (told, *_) = of_kind(agent.run_sync("Go on."), ModelInformed)
    assert told.message.startswith("The person reverted a change that you made to a.txt.")
    assert not agent.undo().obstacles  # of what is left
    assert Path("a.txt").read_text() == "".join(LINES)


def test_what_a_person_wrote_since_is_named_and_stays(agent: Agent) -> None:
    review = agent.review()
    path = Path("a.txt")
    mine = path.read_text().replace("\nfive\n", "\nmy five\n").replace("28\n", "mine\n28\n")
    path.write_text(f"top\n{mine}")
    Path("b.txt").write_text("mine\n")
    said = "Nothing was reverted, since the agent's line “five” is not in a.txt any more."
    assert review.revert(1) == said
    assert "b.txt is otherwise now: you changed it since" in review.revert(3)
    assert review.revert(2) == ""
    assert path.read_text() == f"top\n{mine}".replace("twenty-five\n", "25\n")
    assert agent.undo().obstacles  # the person has written between
    with pytest.raises(FatalError, match="There is no change 6"):
        review.keep(6)


def test_a_page_is_told_what_undoing_all_leaves_alone() -> None:
    @tool
    def leave(*, ctx: ToolContext) -> str:
        """Make a folder, and write while only a session runs."""
        with ctx.diff_tracker.writing([Path("d/a.txt")]):
            Path("d").mkdir()
            Path("d/a.txt").write_text("1")
        watch = ctx.diff_tracker.watch()
        watch.hand_over()
        Path("new.txt").write_text("1")
        watch.finish()
        return "Ok."

    with scripted(Call("leave"), "Done.", tools=[leave]) as agent:
        ran = agent.run_sync("Go.")
        lab = LabLink(None)
        lab.changing["cell"] = [(agent, ran.events[0].turn_id)]
        Path("d/mine").write_text("mine")
        answer = answer_review(lab, {"cell": "cell", "place": 0, "act": "undo"})
    assert answer["undone"] and not Path("d/a.txt").exists() and Path("new.txt").exists()
    assert answer["said"] == (
        "Left alone, since a session or you changed it: new.txt. "
        "Left alone, since something is in it: d."
    )


def test_a_page_is_told_what_hinders_undoing_all() -> None:
    Path(".env").write_text("KEY=1\n")
    Path("a.txt").write_text("1\n")
    command = Call("shell_command", {"command": "echo KEY=2 > .env; echo 2 > a.txt"})
    tools = {"sandbox": "danger-full-access", "tools": ["shell_command"]}
    with scripted(command, "Done.", **tools) as agent:
        ran = agent.run_sync("Change it.")
        lab = LabLink(None)
        lab.changing["cell"] = [(agent, ran.events[0].turn_id)]
        Path("a.txt").write_text("mine\n")
        answer = answer_review(lab, {"cell": "cell", "place": 0, "act": "undo"})
    assert ".env: what it was is not kept (protected: a file of secrets (.env)); " in answer["said"]
    assert "a.txt: you changed it since" in answer["said"]
    assert Path("a.txt").read_text() == "mine\n"


def test_an_earlier_turn_is_reverted_after_a_later_one() -> None:
    Path("a.txt").write_text("".join(LINES))
    edits = [Call("shell_command", {"command": f"sed -i s/^{n}$/{n}x/ a.txt"}) for n in (5, 25)]
    tools = {"sandbox": "danger-full-access", "tools": ["shell_command"]}
    with scripted(edits[0], "One.", edits[1], "Two.", **tools) as agent:
        agent.run_sync("First.")
        first = agent.review()
        agent.run_sync("Second.")
        assert agent.review() is not first
        assert first.revert(1) == ""
        assert Path("a.txt").read_text() == "".join(LINES).replace("25\n", "25x\n")
        assert not agent.undo(3).obstacles  # the revert is one of them
        assert Path("a.txt").read_text() == "".join(LINES)
        assert first.is_undone
        assert first.revert(1) == ""


def test_an_empty_file_is_said_to_have_no_lines() -> None:
    script = (Call("shell_command", {"command": "touch empty"}), "Done.")
    with scripted(*script, sandbox="danger-full-access", tools=["shell_command"]) as agent:
        agent.run_sync("Make it.")
        (change,) = agent.review().changes
        assert change.diff == "It has no lines."
