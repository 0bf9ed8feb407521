"""A text that is read twice is sent once, as long as the first is still there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.engine.repetition.detector import SAME
from tests.support.turns import assert_valid, outputs

TEXT = "".join(f"line {n} of the file\n" for n in range(40))
SAID = SAME.format(name="read_file")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def read(**window: int) -> Call:
    return Call("read_file", {"path": "notes.txt", **window})


def texts(agent: Agent) -> list[str]:
    assert_valid(agent)
    return [output for _, output in outputs(agent)]


def test_an_unchanged_file_is_sent_once(file: Path) -> None:
    with Agent(ScriptedModel([read(), read(), "Read.", read(), "Again."])) as agent:
        agent.run_sync("Read it twice.")
        result = agent.run_sync("And once more.")
        assert "line 39" in texts(agent)[0]
        assert texts(agent)[1:] == [SAID, SAID]
    assert "line 39" in result.calls[0].output, "the person sees what was read"


def test_a_changed_file_and_another_window_are_read(file: Path) -> None:
    def change(_: object) -> Call:
        file.write_text(TEXT.replace("line 7", "LINE 7"), encoding="utf-8")
        return read()

    script = [read(), change, read(start_line=2, end_line=30), "Read."]
    with Agent(ScriptedModel(script)) as agent:
        agent.run_sync("Read it.")
        first, second, window = texts(agent)
    assert "line 7" in first and "LINE 7" in second
    assert "line 29" in window and SAID not in (second, window)


def test_a_file_that_is_as_it_was_before_the_last_read_is_read(file: Path) -> None:
    def write(text: str) -> Callable[[object], Call]:
        def change(_: object) -> Call:
            file.write_text(text, encoding="utf-8")
            return read()

        return change

    script = [read(), write(TEXT.replace("line 7", "LINE 7")), write(TEXT), read(), "Read."]
    with Agent(ScriptedModel(script)) as agent:
        agent.run_sync("Read it.")
        first, _, back, same = texts(agent)
    assert back == first and same == SAID


def test_another_file_of_the_same_text_is_read(file: Path) -> None:
    (file.parent / "copy.txt").write_text(TEXT, encoding="utf-8")
    script = [read(), Call("read_file", {"path": "copy.txt"}), read(), "Read."]
    with Agent(ScriptedModel(script)) as agent:
        agent.run_sync("Read both.")
        first, copy, again = texts(agent)
    assert copy == first and again == SAID


def test_what_is_not_sent_any_more_is_read_again(file: Path) -> None:
    with Agent(ScriptedModel([read(), "Read.", read(), "Again."])) as agent:
        agent.run_sync("Read it.")
        history = agent.session.conversation.history
        history.shorten([], len(history.items))
        agent.run_sync("Read it again.")
        assert [SAID in text for text in texts(agent)] == [False, False]


def test_short_texts_and_other_tools_are_sent_as_they_are(file: Path) -> None:
    file.write_text("short\n", encoding="utf-8")
    (file.parent / "folder").mkdir()
    for number in range(60):
        (file.parent / "folder" / f"{number:040}").touch()
    listing = Call("list_dir", {"path": "folder"})
    with Agent(ScriptedModel([read(), read(), listing, listing, "Done."])) as agent:
        agent.run_sync("Look.")
        assert not [text for text in texts(agent) if "Not changed" in text]


def test_code_gets_the_text_itself(file: Path) -> None:
    with Agent(ScriptedModel([read(), "Read."])) as agent:
        agent.run_sync("Read it.")
        assert "line 39" in agent.call_sync("read_file", {"path": "notes.txt"}).text
