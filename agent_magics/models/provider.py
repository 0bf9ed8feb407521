"""Opens the door to a provider's model by the name of its wire."""

from agent_magics.models.chat import ChatModel, ChatWire
from agent_magics.models.remote import RemoteModel
from agent_magics.models.responses import ResponsesModel, ResponsesWire
from agent_magics.models.retry import RetryPolicy
from agent_magics.protocol.errors import FatalError


class AnyModel(RemoteModel):
    """A server of which only the address is known: the Responses API where it has it, else Chat."""

    WIRES = (ResponsesWire, ChatWire)


DOORS = {"auto": AnyModel, "responses": ResponsesModel, "chat": ChatModel}
WIRE_APIS = tuple(DOORS)


def open_model(
    wire_api: str = "auto",
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    timeout: float = 300.0,
    retries: RetryPolicy | None = None,
) -> RemoteModel:
    """Return the door to a provider.

    Args:
        wire_api: "responses", "chat", or "auto": the Responses API where the server has it, else
            Chat Completions; found out once for each address.
        api_key: the key; None takes it from the environment.
        base_url: the server's address; None takes OPENAI_BASE_URL, else OpenAI's own.
        timeout: longest wait for the next byte, in seconds.
        retries: how often and after which waits a request is repeated.

    Raises:
        FatalError: there is no such wire.
    """
    door = DOORS.get(wire_api)
    if door is None:
        raise FatalError(f"wire_api={wire_api!r} is not one of: {' | '.join(WIRE_APIS)}.")
    return door(api_key=api_key, base_url=base_url, timeout=timeout, retries=retries)
