"""Rows of sub-agents: live numbers while they work, words that stay at their end."""

from agent_magics.protocol.events import SubAgentChanged, TurnCompleted
from agent_magics.render.text import to_markdown
from agent_magics.render.view import TurnView


def changed(status, **fields):
    return SubAgentChanged(sub_agent="explore-1", status=status, task="Find it.", **fields)


def test_a_row_follows_a_sub_agent_beyond_the_turn():
    view = TurnView()
    [row] = view.apply(changed("queued"))
    assert (row.item["name"], row.item["title"]) == ("explore-1", "Find it.")
    assert row.item["note"] == "waits for a place"
    view.apply(changed("running", steps=("list_dir .",), seconds=0.2))
    assert row.item["note"] == ""  # no numbers that would stand still
    view.apply(changed("running", seconds=3.2, tokens=1200, cost=0.01))
    assert row.item["note"] == "3 s, 1,200 tokens, 0.010 USD"
    assert "- list_dir ." in row.item["output"]
    view.apply(TurnCompleted(text="Done."))
    assert not row.done
    assert view.apply(changed("completed", text="In a.py.", seconds=4, tokens=2000)) == [row]
    assert row.done and row.item["note"] == ""
    text = to_markdown(row.item)
    assert "explore-1" in text and "In a.py." in text and "2,000" not in text


def test_how_it_ended_is_said_in_words():
    for status, words in (("failed", "failed"), ("stopped", "failed, stopped")):
        view = TurnView()
        view.apply(changed("running"))
        [row] = view.apply(changed(status, text="Its budget is used up."))
        assert f"({words})" in to_markdown(row.item)


def test_one_that_goes_on_gets_a_new_row():
    view = TurnView()
    view.apply(changed("running"))
    [first] = view.apply(changed("completed", text="One."))
    [second] = view.apply(changed("queued"))
    assert first is not second
