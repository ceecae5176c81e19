"""How pages are served: the socket, connections that are not waited for for ever, and an end within two seconds."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

EVERYWHERE = ("0.0.0.0", "::")
HEADER_SECONDS = 20.0  # for the head of a request to arrive
BODY_SECONDS = 60.0  # for its body
LAST_SECONDS = 0.5  # for answers that are under way when the server ends


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection on which a request, the first or a later one, does not arrive whole in time."""

    waiting: Any = None
    awaited: Any = None  # state of the request that the clock runs for

    def connection_made(self, transport: Any) -> None:
        """Start to wait."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """Go on waiting, or wait for what comes next, as long as the request is not whole."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request, part of which may be here."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop()
        super().connection_lost(exc)

    def _look(self) -> None:
        state = self.conn.their_state
        if state is self.awaited:
            return
        self._stop()
        seconds = {h11.IDLE: HEADER_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(state)
        if seconds is not None:
            self.awaited, self.waiting = state, self.loop.call_later(seconds, self._give_up)

    def _stop(self) -> None:
        self.awaited = None
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """Calls give_up when it is told to end, so that no thread keeps it waiting."""

    def __init__(self, app: Any, give_up: Callable[[], Any] = lambda: None):
        # no access log: addresses carry the token
        options = {"log_level": "warning", "access_log": False, "ws": "none", "http": HeaderTimeoutProtocol}
        super().__init__(uvicorn.Config(app, timeout_graceful_shutdown=2, **options))
        self.give_up = give_up

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; a download is cut where it is, as if its reader had left."""
        self.give_up()
        asyncio.get_running_loop().call_later(LAST_SECONDS, self._hang_up)
        await super().shutdown(sockets)

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # so that who follows the printed address at once is kept waiting, not refused
    except OSError as error:
        listener.close()
        raise OSError(
            f"cannot listen on {host}:{port} ({error}). Give another --port, or 0 for any free one."
        ) from None
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    """Return where a browser finds what listens at a host."""
    shown = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"
