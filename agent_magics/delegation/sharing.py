"""Writes a sub-agent's first prompt, with what its parent shares of the conversation."""

from agent_magics.dispatch.turn import SubAgentRequest
from agent_magics.engine.conversation import Conversation
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import AssistantMessage, UserMessage, text_of

CONVERSATION, KERNEL = "conversation", "kernel"
_MOST = 40_000  # characters of the conversation, its end


def shared(request: SubAgentRequest, parent: Conversation, child: Conversation, path: str) -> str:
    """Return the first prompt of a sub-agent.

    It begins with the sub-agent's name, so that no two prompts of a recording are the same.

    Args:
        request: what it is asked to do, and what is shared.
        parent: the conversation of its parent.
        child: its own, in which shared results get a name.
        path: the names of its parent and itself.

    Raises:
        RespondToModel: there is no such result.
    """
    parts = [f"Task of {path}:\n{request.task}"]
    for name in request.share:
        if name == CONVERSATION:
            parts.append(f"The conversation so far:\n{_transcript(parent)}")
        elif name.startswith("@r"):
            own = parent.handles.lend(name, child.handles)
            parts.append(f"A result is shared with you as {own}.")
        elif name != KERNEL:  # which is a right, see `rights`
            raise RespondToModel(
                f'share: expected "{CONVERSATION}", "{KERNEL}" or results such as @r1; '
                f"got {name!r}."
            )
    return "\n\n".join(parts)


def _transcript(conversation: Conversation) -> str:
    """Return what was said, without calls and their outputs."""
    said = []
    for item in conversation.history.items:
        if isinstance(item, UserMessage) and item.role == "user":
            said.append(f"Person: {text_of(item.content)}")
        elif isinstance(item, AssistantMessage):
            said.append(f"Agent: {item.text}")
    return "\n\n".join(said)[-_MOST:]
