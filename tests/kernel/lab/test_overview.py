"""What a kernel tells the panel: agents, questions, helpers, conversations, the day's cost."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.lab.test_pages import AGENT, DONE, LabPage
from tests.support.kernels.cells import scripted
from tests.support.kernels.driver import LIMIT, Kernel

MAKE = "Call('shell', {'command': ['mkdir', 'made']})"
ASKING = "%%agent --approval untrusted\nGo.\n"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    home = tmp_path_factory.mktemp("home")
    env = {name: str(home / name) for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    with Kernel(env=env, cwd=str(tmp_path_factory.mktemp("work"))) as kernel:
        kernel.run("%load_ext agent_magics")
        yield kernel


class Panel(LabPage):
    """A page that watches, and answers the questions of which it is told there."""

    answers = ""

    def draw(self, state: dict[str, Any]) -> None:
        """Leave the question in the cell alone, but say that it is drawn."""
        self.say(type="question", id=state["question_id"], content={"type": "drawn"})

    def _act(self, data: dict[str, Any]) -> None:
        asked = data["questions"] if data["type"] == "overview" and self.answers else ()
        for question in asked:
            content = {"type": "answer", "id": question["id"], "decision": self.answers}
            self.say(type="question", id=question["id"], content=content)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The states that the kernel told, in order."""
        return [data for data in self.heard if data["type"] == "overview"]

    def wait_for(self, found: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait until the newest state fits, and return it."""
        deadline = time.monotonic() + LIMIT
        while not (self.shown and found(self.shown[-1])):
            assert time.monotonic() < deadline, self.shown[-1:]
            self(self._kernel.client.get_iopub_msg(timeout=LIMIT))
        return self.shown[-1]


def test_a_page_that_watches_is_told_of_agents_and_conversations(kernel: Kernel) -> None:
    with Panel(kernel) as panel:
        kernel.run(scripted(DONE), on_message=panel)
        kernel.run("%%agent\nWhich stores are behind?\n", on_message=panel)
        panel.say(type="watch", words="stores behind")
        state = panel.wait_for(lambda state: state["conversations"])
        (agent,) = state["agents"]
        assert (agent["name"], agent["turns"], agent["doing"]) == ("default", 1, "")
        (found,) = state["conversations"]
        assert found["title"] == "Which stores are behind?"
        assert found["id"] == agent["conversation"]
        panel.say(type="watch", words="no such words")
        panel.wait_for(lambda state: not state["conversations"])
        assert isinstance(state["today"], float)


def test_a_page_that_comes_again_is_told_anew_what_it_was_told_before(kernel: Kernel) -> None:
    with Panel(kernel) as panel:
        for told in (0, 1):
            panel.knock()
            panel.say(type="watch", words="")
            panel.wait_for(lambda _, told=told: len(panel.shown) > told)


def test_a_question_is_answered_by_the_panel_alone(kernel: Kernel) -> None:
    with Panel(kernel) as panel:
        kernel.run(scripted(MAKE, DONE), on_message=panel)
        panel.say(type="watch", words="")
        panel.answers = "approve"
        done = kernel.run(ASKING, notebook=True, allow_stdin=True, on_message=panel)
        assert "It is done." in done.text
        asked = [state["questions"] for state in panel.shown if state["questions"]]
        (question,) = asked[0]
        assert (question["tool"], question["target"]) == ("shell", "mkdir made")
        assert '["mkdir", "made"]' in question["arguments"] and not question["dangerous"]
        assert {"approve", "deny", "abort"} <= {each["decision"] for each in question["choices"]}
        panel.wait_for(lambda state: not state["questions"] and not state["agents"][0]["doing"])


def test_what_a_model_says_is_told_with_invisible_characters_written_out(kernel: Kernel) -> None:
    hidden = "Call('shell', {'command': ['touch', 'a\\u202eb']})"
    with Panel(kernel) as panel:
        kernel.run(scripted(hidden, DONE), on_message=panel)
        panel.say(type="watch", words="")
        panel.answers = "deny"
        kernel.run(ASKING, notebook=True, allow_stdin=True, on_message=panel)
        (question,) = next(state["questions"] for state in panel.shown if state["questions"])
        assert "⟨U+202E⟩" in question["target"] and "\u202e" not in str(question)


def test_a_page_that_only_watches_is_no_page_of_the_notebook(kernel: Kernel) -> None:
    pages = "len(get_ipython().magics_manager.registry['AgentMagics'].lab.pages)"
    with Panel(kernel, watcher=True) as panel:
        panel.say(type="watch", words="")
        panel.wait_for(lambda state: state["agents"])
        assert kernel.value(pages) == "0"
        panel.say(type="watch", words=None)


NAMES = {  # quotation marks around the whole name are none of it
    '"late fees"': "late fees",
    "'late fees'": "late fees",
    "'it is \"late\"'": 'it is "late"',
    'it\'s "late"': 'it\'s "late"',
    '"late" or "fees"': '"late" or "fees"',
    "'": "'",
}


def test_a_conversation_is_renamed_and_pinned_by_its_id(kernel: Kernel, tmp_path: Path) -> None:
    with Panel(kernel) as panel:
        kernel.run(scripted(DONE), on_message=panel)
        kernel.run(AGENT, on_message=panel)
        panel.say(type="watch", words="")
        which = panel.wait_for(lambda state: state["agents"])["agents"][0]["conversation"]
        for written, name in NAMES.items():
            told = kernel.run(f"%agent sessions rename {which} {written}").text
            assert f"is `{name}` now" in told
        assert "is `Stores` now" in kernel.run(f"%agent sessions rename {which} Stores").text
        kernel.run(f"%agent sessions pin {which}")
        panel.say(type="watch", words="")
        state = panel.wait_for(lambda state: state["conversations"][0]["pinned"])
        assert state["conversations"][0]["title"] == "Stores"
        kernel.run("%agent reset")
        kernel.run(f"%agent sessions rename {which} Other stores")  # nobody has it open now
        assert "Resumed: `Other stores`" in kernel.run(f"%agent resume {which}").text
        assert "takes: rename WHICH NAME ..." in kernel.run("%agent sessions rename").text
