"""Accepts what the person adds while a prompt is running: messages for now, and further prompts.

Nothing is lost: an accepted addition reaches the model, or `close` returns it, or the record holds
it when the kernel ends; others are refused.
"""

import threading
from collections.abc import Callable, Sequence

from agent_magics.dispatch.context import Emit
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import PromptsQueued, QueuedPrompt
from agent_magics.protocol.items import Content, UserMessage, text_of
from agent_magics.protocol.records import AdditionsWaiting, Entry
from agent_magics.text.brief import number_of

# Of what waits; the record and the pages get all of it again with each addition.
MOST_WAITING, MOST_CHARACTERS = 200, 1_000_000


class Additions:
    """The added messages and prompts of one session; thread-safe.

    Args:
        agent: the agent's name, for the sentence of a refusal.
        keep: records what waits.
        notice: called with the text of each addition before it is recorded or shown.

    Attributes:
        on_words: called when a message for now has been added.
    """

    def __init__(
        self, agent: str, keep: Callable[[Entry], None], notice: Callable[[str], None]
    ) -> None:
        self._agent = agent
        self._keep, self._notice = keep, notice
        self.on_words: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._turn_id = ""  # of the running prompt, while it accepts additions
        self._emit: Emit | None = None
        self._words: list[UserMessage] = []
        self._prompts: dict[str, UserMessage] = {}

    def open(self, turn_id: str, emit: Emit) -> None:
        """Accept additions to a turn from now on; `emit` sends the events about waiting prompts."""
        with self._lock:
            self._turn_id, self._emit = turn_id, emit

    def steer(self, content: Content, turn_id: str = "") -> None:
        """Add a message that the model gets as soon as the running calls have ended.

        Args:
            content: the message.
            turn_id: the turn of the prompt; "" means the running one.

        Raises:
            FatalError: no such prompt is running, or too much waits already.
        """
        with self._lock:
            self._check(turn_id, content)
            self._notice(text_of(content))
            self._words.append(UserMessage(content))
            self._record()
        self.on_words()

    def queue(self, prompt_id: str, content: Content, turn_id: str = "") -> None:
        """Add a prompt that begins after the model's final answer; else as `steer`.

        Args:
            prompt_id: its id, for `drop`.
            content: the prompt.
            turn_id: the turn of the running prompt; "" means any.

        Raises:
            FatalError: no such prompt is running, or too much waits already.
        """
        with self._lock:
            self._check(turn_id, content)
            self._notice(text_of(content))
            self._prompts[prompt_id] = UserMessage(content)
            self._record()
            self._emit_queue()

    def drop(self, prompt_id: str) -> bool:
        """Remove a prompt that has not begun; return False where there is none."""
        with self._lock:
            is_there = self._prompts.pop(prompt_id, None) is not None
            if is_there:
                self._record()
                self._emit_queue()
            return is_there

    @property
    def prompts(self) -> tuple[QueuedPrompt, ...]:
        """The waiting prompts, the next one first."""
        waiting = tuple(self._prompts.items())
        return tuple(QueuedPrompt(name, text_of(each.content)) for name, each in waiting)

    @property
    def words(self) -> tuple[str, ...]:
        """The texts of messages that have not been sent to the model yet."""
        return tuple(text_of(each.content) for each in tuple(self._words))

    # -- the turn's side --------------------------------------------------------------------------

    def take_words(self) -> list[UserMessage]:
        """Return and remove the added messages; the turn then sends them."""
        with self._lock:
            words, self._words = self._words, []
            return words

    def take_next(self) -> UserMessage | None:
        """Return the next prompt of the turn; where there is none, None, and accept no more."""
        with self._lock:
            if self._words:  # they arrived after the turn's last check
                return self._words.pop(0)
            if self._prompts:
                prompt = self._prompts.pop(next(iter(self._prompts)))
                self._emit_queue()
                return prompt
            self._turn_id = ""
            return None

    def close(self, turn_id: str) -> Sequence[UserMessage]:
        """Accept no more for this turn, and return the messages that the model did not get."""
        with self._lock:
            if turn_id != self._turn_id:
                return ()
            left = [*self._words, *self._prompts.values()]
            self._words.clear()
            self._prompts.clear()
            if left:
                self._record()
            self._turn_id, self._emit, self.on_words = "", None, lambda: None
            return left

    def _check(self, turn_id: str, content: Content) -> None:
        if not self._turn_id:
            raise FatalError(
                f"Agent {self._agent!r} is not at work on a prompt, so there is nothing to add to; "
                "begin one first (a %%agent cell, or agent.run)."
            )
        if turn_id not in ("", self._turn_id):
            raise FatalError(f"The turn under way is {self._turn_id!r}.")
        already, waiting = len(self._waiting), (*self._waiting, text_of(content))
        if already >= MOST_WAITING or sum(map(len, waiting)) > MOST_CHARACTERS:
            raise FatalError(
                f"{number_of(already, 'message')} wait for agent {self._agent!r} already, and at "
                f"most {MOST_WAITING} of {MOST_CHARACTERS:,} characters in all may; add less, or "
                "when the model has got some."
            )

    @property
    def _waiting(self) -> tuple[str, ...]:
        return (*self.words, *(each.text for each in self.prompts))

    def _record(self) -> None:
        """Record what waits; what the model gets later is recorded with the history."""
        self._keep(AdditionsWaiting(turn_id=self._turn_id, texts=self._waiting))

    def _emit_queue(self) -> None:
        if self._emit is not None:
            self._emit(PromptsQueued, prompts=self.prompts)
