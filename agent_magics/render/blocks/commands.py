"""Builds the blocks of commands: output within their calls, and sessions in blocks of their own."""

from agent_magics.exec.output import colour_output
from agent_magics.protocol.events import ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta
from agent_magics.render.blocks.calls import CallBlocks
from agent_magics.render.blocks.display import Blocks, DisplayBlock
from agent_magics.render.describe import SAVED_CHARACTERS, command_line, ending, one_line

_GOES_ON = "goes on as a session"


class _CommandOutput:
    """The output of a call's command, or of a session since its call; of a long one, the end."""

    def __init__(self, block: DisplayBlock) -> None:
        self.block = block
        self._left_out = 0
        self._text = ""

    def add(self, text: str) -> list[DisplayBlock]:
        self._text += text
        if len(self._text) > SAVED_CHARACTERS:
            kept = ending(self._text, SAVED_CHARACTERS)
            self._left_out += len(self._text) - len(kept)
            self._text = kept
        marker = f"… {self._left_out} characters left out …\n" if self._left_out else ""
        self.block.item["output"] = marker + colour_output(self._text)
        return [self.block]


class CommandBlocks:
    """The commands of one turn's calls, and its sessions, which may outlive the turn."""

    def __init__(self, blocks: Blocks, calls: CallBlocks) -> None:
        self._blocks = blocks
        self._calls = calls
        self._sessions: dict[str, _CommandOutput] = {}
        self._printed: dict[str, _CommandOutput] = {}  # by the key of a call's block

    @property
    def going_on(self) -> list[DisplayBlock]:
        """The blocks of the running sessions."""
        return [session.block for session in self._sessions.values()]

    def follow(
        self, event: ExecCommandBegin | ExecCommandOutputDelta | ExecCommandEnd
    ) -> list[DisplayBlock]:
        """Show the output of a command, and its end where it outlives its call."""
        session = self._sessions.get(event.session_id)
        match event:
            case ExecCommandBegin(session_id=name):
                return self._begin_session(event) if name else []
            case ExecCommandOutputDelta() if session is not None:
                return session.add(event.text)
            case ExecCommandEnd():
                return [] if session is None else self._end_session(event)
        block = self._calls.running(event.call_id)
        if block is None or event.session_id:
            return []
        # The stream widget gets the whole output; the block only its end, for other front ends.
        return self._printed.setdefault(block.key, _CommandOutput(block)).add(event.text)

    def _begin_session(self, event: ExecCommandBegin) -> list[DisplayBlock]:
        """Add a block for a command that goes on after its call has returned."""
        call = self._calls.running(event.call_id)
        if call is not None:
            call.item["note"] = ", ".join(filter(None, (str(call.item["note"]), _GOES_ON)))
        title = one_line(command_line(event.command))
        key = f"session:{event.session_id}"
        block = self._blocks.begin_call(key, "session", title, "", "bash")
        self._sessions[event.session_id] = _CommandOutput(block)
        return [block] if call is None else [call, block]

    def _end_session(self, event: ExecCommandEnd) -> list[DisplayBlock]:
        block = self._sessions.pop(event.session_id).block
        killed = event.exit_code is None
        block.item["status"] = "completed" if killed or event.exit_code == 0 else "failed"
        block.item["exit_code"] = event.exit_code
        block.item["note"] = "killed" if killed else ""
        block.done = True
        return [block]
