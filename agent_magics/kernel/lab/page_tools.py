"""Registers tools of the page's other extensions as dynamic tools."""

from collections.abc import Collection, Iterable, Mapping
from weakref import WeakKeyDictionary

from agent_magics import tools as builtin
from agent_magics.app import Agent
from agent_magics.dispatch.tool import Tool
from agent_magics.kernel.lab.link import Data, LabLink
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.items import ContentPart, InputImage, InputText
from agent_magics.protocol.ops import DynamicToolResponse
from agent_magics.protocol.tools import DynamicToolSpec
from agent_magics.text.brief import number_of


class PageTools:
    """Keeps the agents' registrations equal to the tools that pages offer.

    Args:
        link: the pages.
    """

    def __init__(self, link: LabLink) -> None:
        self._link = link
        self._given: WeakKeyDictionary[Agent, dict[str, Data]] = WeakKeyDictionary()

    def give(self, agent: Agent, own: Iterable[Tool]) -> list[str]:
        """Register the offered tools with an agent, and remove those no longer offered.

        Args:
            agent: the agent.
            own: the person's tools in the notebook; their names are taken, as are those of tools in
                folders and packages.

        Returns:
            A note where some are left out, since they are not usable or their names are taken.
        """
        offered = self._link.tools()
        found = agent.catalog.discovery.find().tools if offered else ()
        taken = {tool.tool_options.name for tool in (*own, *found)}
        given = self._given.setdefault(agent, {})
        for name, tool in tuple(given.items()):
            if offered.get(name) != tool or name in taken:
                agent.session.registrations.remove(name)
                del given[name]
        refusals = list[FatalError]()
        for name in [name for name in offered if name not in given]:
            try:
                agent.register(_spec_of(offered[name], taken))
            except FatalError as error:
                refusals.append(error)
            else:
                given[name] = offered[name]
        if not refusals:
            return []
        tools = number_of(len(refusals), "tool")
        return [f"Left out: {tools} of other extensions of the page. {clause(refusals[0])}."]


def _spec_of(tool: Mapping[str, object], taken: Collection[str]) -> DynamicToolSpec:
    name, schema = str(tool["name"]), tool.get("inputSchema")
    if name in builtin.__all__:  # two of one name would end every turn
        raise FatalError(f"{name!r} is the name of a built-in tool.")
    if name in taken:
        raise FatalError(f"{name!r} is the name of another tool.")
    description = str(tool.get("description", ""))
    return DynamicToolSpec(name, description, schema if isinstance(schema, dict) else {})


def as_response(call_id: str, result: Mapping[str, object]) -> DynamicToolResponse:
    """Convert a page's answer, which may be malformed, to a response for the engine."""
    items = result.get("items")
    items = items if isinstance(items, list) else []
    content = [_part_of(item) for item in items if isinstance(item, dict)]
    return DynamicToolResponse(
        call_id=call_id,
        content_items=tuple(content) or (InputText("The page gave no answer."),),
        success=bool(content) and result.get("success") is True,
    )


def _part_of(item: Mapping[str, object]) -> ContentPart:
    address = str(item.get("image_url", ""))
    if item.get("type") == "input_image" and address.startswith("data:image/"):
        return InputImage(address)
    return InputText(str(item.get("text", "")))
