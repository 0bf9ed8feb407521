"""Decides whether a sub-agent can be started as it was asked for, and under which name."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from agent_magics.delegation.child import SubAgent
from agent_magics.delegation.rights import gets_kernel
from agent_magics.delegation.types import LONGEST_NAME, NAME, AgentType
from agent_magics.dispatch.turn import SubAgentRequest
from agent_magics.protocol.errors import RespondToModel
from agent_magics.text.brief import meant

# Sub-agents of one conversation.
MOST = 50


def chosen_type(request: SubAgentRequest, types: Mapping[str, AgentType]) -> AgentType:
    """Return the type that a request names.

    Raises:
        RespondToModel: there is no such type.
    """
    kind = types.get(request.agent_type)
    if kind is None:
        raise RespondToModel(
            f"agent_type: there is no {request.agent_type!r}; {meant(request.agent_type, types)}"
        )
    return kind


def chosen_name(request: SubAgentRequest, kind: AgentType, taken: Sequence[str]) -> str:
    """Return the name of a new sub-agent; where none is asked for, a new one.

    Args:
        request: what is asked for.
        kind: its type.
        taken: the names of all sub-agents of the conversation.

    Raises:
        RespondToModel: there are too many, or the name cannot be used.
    """
    if len(taken) >= MOST:
        raise RespondToModel(
            f"Not started: a conversation has at most {MOST} sub-agents. Use those there are "
            "(send_input), or do the rest yourself."
        )
    if not request.name:
        stem = kind.name[: LONGEST_NAME - len(f"-{2 * MOST}")]
        names = (f"{stem}-{number}" for number in count(len(taken) + 1))
        return next(name for name in names if name not in taken)
    name = request.name
    if not NAME.fullmatch(name):
        raise RespondToModel(
            f"name: expected at most {LONGEST_NAME} of a-z, 0-9 and -, beginning with a "
            f"letter; got {name!r}."
        )
    if name in taken:
        raise RespondToModel(f"name: there is a sub-agent {name} already.")
    return name


def check_kernel(
    kind: AgentType,
    request: SubAgentRequest,
    others: Iterable[SubAgent],
    *,
    of_program: bool = False,
) -> None:
    """Check that a sub-agent that is to use the live kernel may use it.

    Args:
        kind: its type.
        request: what is asked for.
        others: the other sub-agents at work.
        of_program: whether a program starts it, and no turn.

    Raises:
        RespondToModel: it may not.
    """
    if not gets_kernel(kind, request):
        return
    if of_program:
        raise RespondToModel(
            "Only a turn can give a sub-agent the live kernel, since its code runs while the "
            "turn's cell does; a program runs such code itself."
        )
    for agent in others:
        if gets_kernel(agent.kind, agent.request):
            raise RespondToModel(
                f"{agent.name} has the live kernel, which one sub-agent at a time may have: "
                "wait for its end, or start one without it."
            )
