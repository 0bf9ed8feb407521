"""The openai package, imported when it is needed, and what its transport raises."""

from types import ModuleType

_openai: ModuleType | None = None


def loaded_openai() -> ModuleType | None:
    """Return the package where it has been imported."""
    return _openai


def load_openai() -> ModuleType:
    """Import the openai package (about half a second the first time); any thread may call this."""
    global _openai
    import openai  # noqa: PLC0415 - heavy, and not needed before the first request

    _openai = openai
    return openai


def connect_timeouts() -> tuple[type[Exception], ...]:
    """Nobody took the connection up in time."""
    import httpx2  # noqa: PLC0415 - comes with openai, which is loaded by now

    return (httpx2.ConnectTimeout,)


def timeout_errors() -> tuple[type[Exception], ...]:
    """Nothing came in time."""
    import httpx2  # noqa: PLC0415 - comes with openai, which is loaded by now

    return (httpx2.TimeoutException,)


def transport_errors() -> tuple[type[Exception], ...]:
    """What breaks while an answer is read comes from the package's transport, as its own errors."""
    import httpx2  # noqa: PLC0415 - comes with openai, which is loaded by now

    return (httpx2.RequestError, httpx2.StreamError, OSError)
