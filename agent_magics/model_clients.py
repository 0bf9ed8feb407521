"""Opens the models that an agent's settings name: a live server's, a recording, or both."""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_magics.files.paths import typed_path
from agent_magics.models.access import ServerAccess
from agent_magics.models.base import Model
from agent_magics.models.provider import open_model
from agent_magics.models.providers.credentials import stored_key
from agent_magics.models.providers.keys import environment_keys, key_of
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError

ONE_OF_BOTH = "replay=... plays a file and record=... asks a live model: leave one of them out."


class ModelClients:
    """The opened models of an agent; one per source, so that connections are reused.

    Args:
        given: the model object that a program passed; None where it named a model. It is kept as an
            attribute of that name.
    """

    def __init__(self, given: Model | None) -> None:
        self.given = given
        self._opened: dict[tuple[Any, ...], Model] = {}

    def open(self, settings: Settings) -> Model:
        """Return the model that the settings name.

        Raises:
            FatalError: it cannot be opened; the sentence says why.
        """
        key = (
            *(settings.base_url, settings.api_key, settings.wire_api, str(settings.replay)),
            *(settings.replay_strict, str(settings.record)),
        )
        model = self._opened.get(key)
        if model is None:
            model = self._opened[key] = self._open(settings)
        return model

    def _open(self, settings: Settings) -> Model:
        replay, record = settings.replay, settings.record
        if self.given is not None and record is None:
            return self.given
        if replay is not None and record is not None:
            raise FatalError(ONE_OF_BOTH)
        path = None if replay is None else recording_path(replay)
        if path is not None:
            # Late, as below: most agents neither play nor make a recording.
            from agent_magics.models.recordings.replay import ReplayModel  # noqa: PLC0415

            return ReplayModel(path, cwd=settings.cwd, strict=settings.replay_strict)
        live = self.given
        if live is None:
            live = open_model(
                settings.wire_api, api_key=settings.api_key, base_url=settings.base_url
            )
        if record is None:
            return live
        from agent_magics.models.recordings.recorder import RecordingModel  # noqa: PLC0415

        return RecordingModel(live, typed_path(record), cwd=settings.cwd)

    def secrets(self, settings: Settings, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return all keys that must be redacted, used or not.

        Raises:
            FatalError: the key for the server is stored where it cannot be read.
        """
        access = ServerAccess(settings.api_key, settings.base_url)
        is_live = self.given is None and not settings.replay
        if is_live and not (settings.api_key or key_of(access.address)):
            stored_key(access.address)  # is among the held ones from now on
        of_model: tuple[str, ...] = getattr(self.given, "secrets", tuple)()
        return (*access.secrets(), *environment_keys(environment), *of_model)

    def close(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Close the models' connections, on the loop that `spawn` reaches."""
        for model in self._opened.values():
            with suppress(FatalError):  # in a forked child the connections belong to the parent
                spawn(model.close())


def recording_path(replay: str | Path) -> Path | None:
    """Return the file that the setting `replay` names; "auto" is the one beside the notebook."""
    from agent_magics.models.recordings.writing import recording_beside_notebook  # noqa: PLC0415

    return recording_beside_notebook() if str(replay) == "auto" else typed_path(replay)
