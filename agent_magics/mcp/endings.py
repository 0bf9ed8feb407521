"""Defines errors for the end of a connection."""


class LinkLost(Exception):
    """The connection ended while a request awaited its answer.

    Attributes:
        taken: whether the server may have received the request; False if certainly not.
    """

    def __init__(self, reason: str, *, taken: bool = True) -> None:
        super().__init__(reason)
        self.taken = taken


class LoginNeeded(Exception):
    """The server requires a login, and no valid token is stored."""


class HandshakeRefused(Exception):
    """The server does not support the handshake of this protocol version; another may be tried."""
