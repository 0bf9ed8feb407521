"""Defines the entries of a record: what was done to the state that decides the next request.

They stand between the events in the record of a conversation. Doing them again, in order, brings
the conversation back as it was; the events are for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_magics.protocol.items import Item, Json, Usage

VERSION = 2
"""Of the form of records; those without a `RecordBegun` are of version 1, events alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Base of all entries."""


@dataclass(frozen=True, slots=True)
class PastPart:
    """A part of another record that belongs to this conversation: its first `size` bytes."""

    conversation: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBegun(Entry):
    """The first line of a record: whose it is, and in which form it is written.

    Attributes:
        conversation: its id.
        at: seconds since the epoch.
        cwd: the workspace.
        notebook: the path of the notebook, "" outside of one.
        settings: the keywords that the agent was made with, as far as JSON can hold them.
        lost: names of settings that it cannot hold: functions, keys, servers.
        past: what comes before, in the records that it was forked from, oldest first.
        parent: the conversation that it works for as a sub-agent; "" where it works for a person.
        memory: the table of contents of the notes in its instructions; None where none was made.
        has_code: whether the workspace held code when it began; None where nobody looked.
    """

    version: int = VERSION
    conversation: str
    agent: str
    at: float = 0.0
    cwd: str = ""
    notebook: str = ""
    settings: Mapping[str, Json] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    past: tuple[PastPart, ...] = ()
    parent: str = ""
    memory: str | None = None
    has_code: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOpened(Entry):
    """A prompt's turn begins here; `TurnsTakenBack` may go back to before it."""

    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAdded(Entry):
    """An item joined the history; `redacted` says that a key was taken out of it."""

    item: Item
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryShortened(Entry):
    """From now on `items` are sent in place of the first `replaced` ones."""

    items: tuple[Item, ...]
    replaced: int
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsTakenBack(Entry):
    """The turn and all after it were taken out of the conversation."""

    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsRestored(Entry):
    """What was taken back last is in the conversation again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionsWaiting(Entry):
    """All that the person added to the turn and the model has not got yet.

    A text waits until it joins the history, the next such entry, or the next turn.
    """

    turn_id: str
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeWaiting(Entry):
    """The model is told `text` with its next request; it waits until it is in the history."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCounted(Entry):
    """The history as it now stands has so many tokens.

    Attributes:
        hold: below so many it is not shortened.
    """

    tokens: int
    hold: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCharged(Entry):
    """A request to a model was answered, and its tokens count for the conversation.

    `of_sub_agent` says that a sub-agent made it, whose own record has it as well.
    """

    model: str
    usage: Usage
    of_sub_agent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsFound(Entry):
    """All tools that searches have found, which requests carry from now on."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultKept(Entry):
    """A result got a name ("@r1"); without its `text` it was too long, or is another object.

    Attributes:
        what: the object, in a few words.
        form: how `text` stands for an object ("bytes", "pandas"); "" where it is the result.
        digest: of the text of an object, which is restored only where nothing was redacted.
        reads: the files and folders that it may be read from.
        known: the patterns of the rules that forbade reading then.
    """

    name: str
    text: str | None = None
    what: str = ""
    form: str = ""
    digest: str = ""
    reads: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersTold(Entry):
    """What the model knows of each MCP server."""

    told: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationNamed(Entry):
    """The conversation is called so in lists."""

    name: str
