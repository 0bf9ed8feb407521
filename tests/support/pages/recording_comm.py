"""Records a widget's messages for tests without a page."""

from typing import Any

from comm.base_comm import BaseComm


class RecordingComm(BaseComm):
    """A comm that stores sent messages in a list."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        super().__init__(target_name="jupyter.widget")

    def publish_msg(self, msg_type: str, data: Any = None, **_rest: Any) -> None:
        if msg_type == "comm_msg":
            self.sent.append(data)

    def custom(self) -> list[dict[str, Any]]:
        return [data["content"] for data in self.sent if data["method"] == "custom"]

    def state(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for data in self.sent:
            merged |= data.get("state", {})
        return merged
