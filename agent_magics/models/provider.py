"""Creates the client of a provider's model for a named wire API."""

from agent_magics.models.retry import RetryPolicy
from agent_magics.models.wires.chat.model import ChatModel, ChatWire
from agent_magics.models.wires.remote import RemoteModel
from agent_magics.models.wires.responses.model import ResponsesModel, ResponsesWire
from agent_magics.protocol.errors import FatalError


class AnyModel(RemoteModel):
    """Client of a server of unknown kind: uses the Responses API where the server has it, else
    Chat Completions.
    """

    WIRES = (ResponsesWire, ChatWire)


MODEL_CLASSES = {"auto": AnyModel, "responses": ResponsesModel, "chat": ChatModel}
WIRE_APIS = tuple(MODEL_CLASSES)


def open_model(
    wire_api: str = "auto",
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    timeout: float = 300.0,
    retries: RetryPolicy | None = None,
) -> RemoteModel:
    """Create the client of a provider.

    Args:
        wire_api: "responses", "chat", or "auto": the Responses API where the server has it, else
            Chat Completions; determined once for each address.
        api_key: the key; None takes it from the environment.
        base_url: the server's address; None takes OPENAI_BASE_URL, else OpenAI's own.
        timeout: longest wait for the next byte, in seconds.
        retries: number of and waits between repeated requests.

    Raises:
        FatalError: there is no such wire API.
    """
    model_class = MODEL_CLASSES.get(wire_api)
    if model_class is None:
        raise FatalError(f"wire_api={wire_api!r} is not one of: {' | '.join(WIRE_APIS)}.")
    return model_class(api_key=api_key, base_url=base_url, timeout=timeout, retries=retries)
