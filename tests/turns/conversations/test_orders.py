"""In whatever order conversations are changed, their turns, the files and what is told agree."""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent_magics import Agent, Call, FatalError, ScriptedModel
from agent_magics.engine.past.rewind import Rewind, WayLost
from agent_magics.protocol.items import UserMessage
from agent_magics.records.places import rollout_folder
from agent_magics.records.retention import delete

Said = int | frozenset[int]  # a turn, or the files of which the model was told how they are now


@dataclass
class Way:
    """A rewind, what it undid in files, and whether it took the turns out of the conversation."""

    way: Rewind
    last: int
    undid: list[int]
    forgets: bool


@dataclass
class Known:
    """What is to be known of one conversation; each turn or call that writes makes file N.

    Attributes:
        said: its turns, and between them what the model was told.
        log: what happened to the files of its turns and calls.
        taken: what was taken back and can be restored, the last at the end.
        untold: the files that differ from what its turns say since it was last told of them.
    """

    said: list[Said] = field(default_factory=list)
    log: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    taken: list[list[Said]] = field(default_factory=list)
    untold: set[int] = field(default_factory=set)
    ways: list[Way] = field(default_factory=list)

    @property
    def turns(self) -> list[int]:
        return [each for each in self.said if isinstance(each, int)]

    @property
    def files(self) -> dict[int, bool]:
        """The files of its journal in order, and whether each was undone."""
        found: dict[int, bool] = {}
        for act, numbers in self.log:
            while act == "wrote" and found and next(reversed(found.values())):
                found.popitem()
            for number in numbers:
                if act == "wrote" or number in found:
                    found[number] = act == "undone"
        return found

    @property
    def to_undo(self) -> list[int]:
        return [number for number, undone in reversed(self.files.items()) if not undone]


class Orders(RuleBasedStateMachine):
    """Conversations of agents in one folder, of which any may be the next to change something."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = Path(self.folder.name)
        self.script = ScriptedModel([])
        self.known: dict[str, Known] = {}
        self.agents: list[Agent] = []
        self.there: set[int] = set()
        self.writing: set[int] = set()  # the turns that wrote
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self.agents.append(Agent(self.script, **self._options()))
        self.known[self.here.conversation_id] = Known()
        for _ in range(3):  # there is something to take back from the first step on
            self.talk(writes=True)

    def _options(self) -> dict[str, object]:
        return {"tools": ["write_file"], "cwd": self.place, "approval": "never"}

    @property
    def here(self) -> Agent:
        return self.agents[-1]

    @property
    def now(self) -> Known:
        return self.known[self.here.session.conversation.id]

    def _closed(self) -> list[str]:
        used = [agent.session.conversation.id for agent in self.agents]
        return [each for each in self.known if each not in used]

    def teardown(self) -> None:
        for agent in self.agents:
            agent.close()
        self.folder.cleanup()

    # -- what is said --------------------------------------------------------------------------

    @rule(writes=st.booleans())
    def talk(self, writes: bool) -> None:
        self.count += 1
        call = Call("write_file", {"path": f"{self.count}", "content": "1"})
        self.script._turns.extend([call, "Done."] if writes else ["Yes."])
        items = self.here.session.conversation.history.items
        before, now = len(items), self.now
        assert self.here.run_sync("Go.").status == "completed"
        told = [each for each in items[before:] if isinstance(each, UserMessage)]
        if now.untold:
            assert told[0].role == "developer", f"not told of {now.untold}"
            now.said.append(frozenset(now.untold))
        now.said.append(self.count)
        now.untold = set()
        now.taken.clear()
        if writes:
            self.writing.add(self.count)
            self._wrote()

    @rule()
    def call(self) -> None:
        self.count += 1
        self.here.call_sync("write_file", {"path": f"{self.count}", "content": "1"})
        self._wrote()

    def _wrote(self) -> None:
        self.there.add(self.count)
        self.now.log.append(("wrote", (self.count,)))

    # -- what is taken back ----------------------------------------------------------------------

    def _otherwise(self) -> set[int]:
        """Return the files of turns that are otherwise than the present conversation says."""
        known = self.writing.intersection(each for _, numbers in self.now.log for each in numbers)
        return {each for each in known if (each in self.there) != (each in self.now.turns)}

    def _undone(self, numbers: list[int]) -> None:
        self.now.log.append(("undone", tuple(numbers)))
        self.there.difference_update(numbers)

    def _redone(self) -> int:
        number = next(each for each, undone in self.now.files.items() if undone)
        self.now.log.append(("redone", (number,)))
        self.there.add(number)
        return number

    @precondition(lambda self: self.now.files)
    @rule()
    def undo(self) -> None:
        before = self._otherwise()
        if not self.now.to_undo:
            with pytest.raises(FatalError, match="No turn"):
                self.here.undo()
            return
        self.here.undo()
        self._undone(self.now.to_undo[:1])
        self.now.untold |= self._otherwise() - before

    @precondition(lambda self: self.now.files)
    @rule()
    def redo(self) -> None:
        before = self._otherwise()
        if all(not undone for undone in self.now.files.values()):
            with pytest.raises(FatalError, match="no undone turn"):
                self.here.redo()
            return
        self.here.redo()
        self._redone()
        self.now.untold |= self._otherwise() - before

    @precondition(lambda self: self.now.turns)
    @rule(data=st.data(), parts=st.sampled_from(["both", "conversation", "files"]))
    def rewind(self, data: st.DataObject, parts: str) -> None:
        now, before = self.now, self._otherwise()
        first = data.draw(st.integers(1, len(now.turns)))
        out = now.turns[first - 1 :]
        places = [place for place, each in enumerate(now.to_undo, 1) if each in out]
        undid = now.to_undo[: max(places, default=0)] if parts != "conversation" else []
        way = self.here.rewind(first, conversation=parts != "files", files=parts != "conversation")
        assert not way.lost
        now.ways.append(Way(way, out[-1], undid, parts != "files"))
        self._undone(undid)
        cut: list[Said] = []
        if parts != "files":
            place = now.said.index(out[0])
            cut = now.said[place:]
            del now.said[place:]
            now.taken.append(cut)
        after = self._otherwise()
        lost = {each for told in cut if isinstance(told, frozenset) for each in told}
        lost = lost if now.turns else set()  # to a conversation without turns nothing is told again
        now.untold |= (after - before) | (lost & after)

    @precondition(lambda self: self.now.ways)
    @rule(data=st.data())
    def forth(self, data: st.DataObject) -> None:
        now, before = self.now, self._otherwise()
        chosen = data.draw(st.sampled_from(now.ways))
        back = [each for cut in now.taken for each in cut]
        if chosen.last not in (*now.said, *back):
            with pytest.raises(WayLost):
                chosen.way.redo()
            return
        chosen.way.redo()
        while chosen.forgets and chosen.last not in now.said:
            cut = now.taken.pop()
            now.said += cut
        while any(now.files.get(each) for each in chosen.undid):
            self._redone()
        now.untold |= (self._otherwise() - before) & set(chosen.undid)

    # -- other conversations ----------------------------------------------------------------------

    @precondition(lambda self: len(self.agents) < 3)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent = self.now
        count = data.draw(st.integers(0, len(parent.turns)))
        self.agents.append(self.here.fork(count))
        turns = parent.turns[:count]
        log = [
            (act, numbers) for act, numbers in parent.log if act != "wrote" or numbers[0] in turns
        ]
        self.known[self.here.conversation_id] = Known(list(turns), log)

    @rule()
    def reset(self) -> None:
        self.here.reset()
        self.known[self.here.conversation_id] = Known()

    @precondition(lambda self: self._closed())
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        self.here.session.resume(data.draw(st.sampled_from(self._closed())), {})
        self.now.ways.clear()

    @precondition(lambda self: self._closed())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(self._closed()))
        delete(rollout_folder(), chosen)
        del self.known[chosen]

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        while self.agents:
            self.agents.pop().close()
        chosen = data.draw(st.sampled_from([*self.known]))
        self.agents.append(Agent.resume(chosen, self.script, **self._options()))
        self.now.ways.clear()

    @precondition(lambda self: len(self.agents) > 1)
    @rule()
    def turn_to_another(self) -> None:
        self.agents.insert(0, self.agents.pop())

    @invariant()
    def agrees(self) -> None:
        assert {int(path.name) for path in self.place.iterdir()} == self.there
        for agent in self.agents:
            known = self.known[agent.session.conversation.id]
            assert len(agent.session.conversation.history.turns) == len(known.turns)
            journal = agent.session.conversation.files.journal_in(self.place)
            assert [turn.undone for turn in journal._turns.values()] == [*known.files.values()]


@pytest.mark.soak
def test_turns_files_and_what_is_told_agree_in_any_order(tmp_path):
    run_state_machine_as_test(
        Orders, settings=settings(max_examples=10, stateful_step_count=14, deadline=None)
    )


class Chosen:
    """Gives a rule what it would draw: a number, or the last of what there is."""

    def __init__(self, number: int | None = None) -> None:
        self._number = number

    def draw(self, strategy: Any) -> Any:
        return strategy.elements[-1] if self._number is None else self._number


def go_back(orders: Orders, turn: int, parts: str) -> None:
    if turn:
        orders.rewind(Chosen(turn), parts)


# Of what a person does with turns; what is not possible is left out.
ACTS: dict[str, Callable[[Orders], object]] = {
    "talk": lambda orders: orders.talk(writes=True),
    "call": Orders.call,
    "undo": Orders.undo,
    "redo": Orders.redo,
    "files back": lambda orders: go_back(orders, len(orders.now.turns), "files"),
    "all back": lambda orders: go_back(orders, min(2, len(orders.now.turns)), "both"),
    "forth": lambda orders: orders.now.ways and orders.forth(Chosen()),
}


@pytest.mark.long
@pytest.mark.parametrize("first", ACTS)
def test_a_way_forth_is_right_after_all_that_may_stand_before_it(tmp_path, first):
    for acts in itertools.product(ACTS, repeat=2):
        orders = Orders()
        try:
            orders.begin()
            for act in (first, *acts, "forth", "talk"):
                ACTS[act](orders)
                orders.agrees()
        except BaseException as error:
            error.add_note(f"after {first}, {', '.join(acts)}")
            raise
        finally:
            orders.teardown()
