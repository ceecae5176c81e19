"""The live page of a survey: a small web server that reads the ledger and writes nothing but, if asked to, tags.

It listens on this machine only unless told otherwise, and answers only those who have the token, which comes in the
address once and in a cookie from then on. All files it gives out are known by name before it starts.
"""

import asyncio
import csv
import hmac
import io
import ipaddress
import json
import re
import secrets
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import h11
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from shardfit.core.errors import CheckpointError
from shardfit.report.gallery.assets import PAGE, SCRIPT, STYLE, TYPES, asset, joined_scripts
from shardfit.report.gallery.drawing import CannotDraw, Gone
from shardfit.report.gallery.exports import configuration, fits_cube
from shardfit.report.gallery.query import MOST_POINTS, MOST_STACKED, Points
from shardfit.report.gallery.selection import Selection
from shardfit.report.gallery.thumbnails import limits_of, png
from shardfit.surveys.marks import note, tag

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
EVERYWHERE = ("0.0.0.0", "::")
HEADER_SECONDS = 20.0  # for the head of a request to arrive
LOOK_SECONDS = 0.2  # between two looks at whether a page still waits for an answer
MOST_BODY = 1 << 20  # bytes of what a page sends
MOST_COMPARED = 12  # pictures that share one colour scale
CSV_ROWS = 500  # in one piece of an answer


def create_app(points: Points, token: str | None, *, write: bool = False) -> Any:
    """Return the ASGI application of a survey; token None: everyone on this machine may read.

    write: let the page keep tags and notes in the ledger; otherwise nothing is ever written.
    """
    return Guard(gallery(points, write=write), token)


def gallery(points: Points, *, write: bool = False) -> Any:
    """Return the application of a survey without its guard, to be put behind one."""
    pages = _Pages(points, write)
    routes = [
        Route("/", pages.file),
        Route("/page/{name}", pages.file),
        Route("/api/survey", pages.survey),
        Route("/api/points", pages.page),
        Route("/api/points.csv", pages.table),
        Route("/api/picture/{point:int}.png", pages.picture),
        Route("/api/picture/{point:int}.npy", pages.array),
        Route("/api/points.fits", pages.cube),
        Route("/api/points.toml", pages.configuration),
        Route("/api/point/{point:int}", pages.point),
        Route("/api/point/{point:int}/figures", pages.figures),
        Route("/api/marks", pages.marks),
        Route("/api/mark", pages.mark, methods=["POST"]),
        Route("/api/stack", pages.stack),
        Route("/api/stack.npy", pages.stack_array),
    ]
    handlers = {
        ValueError: lambda _, error: PlainTextResponse(str(error), 400),
        OverflowError: lambda _, error: PlainTextResponse(str(error), 400),
        KeyError: lambda _, error: PlainTextResponse(str(error.args[0]), 404),
        CheckpointError: lambda _, error: PlainTextResponse(str(error), 503),
        Gone: lambda _, error: PlainTextResponse("nobody waits for this.", 503),
        sqlite3.Error: lambda _, error: PlainTextResponse(f"the ledger cannot be read now: {error}", 503),
    }
    return Starlette(routes=routes, exception_handlers=handlers)


def serve(app: Any, host: str, port: int, token: str | None, announce: Any) -> None:
    """Serve an application until interrupted; announce(address) is called once the port is held. port 0: any free."""
    with _listening(host, port) as listener:
        shown = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
        query = f"?token={token}" if token else ""
        announce(f"http://{shown}:{listener.getsockname()[1]}/{query}")
        # no access log: addresses carry the token
        config = uvicorn.Config(Guard(app, token), log_level="warning", access_log=False, ws="none", http=Impatient)
        uvicorn.Server(config).run(sockets=[listener])


class Impatient(H11Protocol):
    """Closes a connection on which the head of a request, the first or a later one, does not arrive whole in time."""

    waiting: Any = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on waiting, or wait anew, as long as the head is not whole."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self.waiting is None:
            self.waiting = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def new_token() -> str:
    """Return a token that nobody guesses."""
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Guard:
    """Lets in who has the token, and puts the same strict headers on every answer."""

    app: Any
    token: str | None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        shown = request.query_params.get("token")
        allowed = self._allowed(request, shown)
        cookie = f"{_cookie(request)}={self.token}; Path=/; HttpOnly; SameSite=Strict"

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if allowed and self.token and shown:
                    headers.append("Set-Cookie", cookie)
            await send(message)

        refusal = PlainTextResponse("Use the whole address that `shardfit serve` printed: it carries the token.\n", 403)
        await (self.app if allowed else refusal)(scope, receive, with_headers)

    def _allowed(self, request: Request, shown: str | None) -> bool:
        if self.token is None:
            # a foreign page that gets its own name to point here must not read: only local names are answered
            return re.sub(r":\d+$", "", request.headers.get("host", "")) in LOCAL_NAMES
        given = shown or request.cookies.get(_cookie(request)) or ""
        return hmac.compare_digest(given.encode(), self.token.encode())


def _cookie(request: Request) -> str:
    return f"shardfit-{(request.scope.get('server') or ('', 0))[1]}"  # browsers share cookies between ports


class _Pages:
    """One method for each address."""

    def __init__(self, points: Points, write: bool = False):
        self.points, self.write = points, write
        self.files = {PAGE: asset(PAGE), STYLE: asset(STYLE), SCRIPT: joined_scripts()}

    def file(self, request: Request) -> Response:
        name = request.path_params.get("name", PAGE)
        if name not in self.files:
            raise KeyError("no such file.")
        return Response(self.files[name], media_type=TYPES[name.rpartition(".")[2]])

    def survey(self, request: Request) -> Response:
        return JSONResponse({"facts": self.points.facts(), "progress": self.points.progress()})

    def page(self, request: Request) -> Response:
        query = request.query_params
        after = float(query.get("finished", -1)), int(query.get("id", -1))
        return JSONResponse(self.points.page(after, min(MOST_POINTS, int(query.get("limit", MOST_POINTS)))))

    def table(self, request: Request) -> Response:
        selection = self._selection(request)
        return StreamingResponse(_csv(self.points.rows(selection)), 200, _attached("points.csv"), "text/csv")

    def picture(self, request: Request) -> Response:
        query, point = request.query_params, request.path_params["point"]
        shown = self.points.picture(point)
        beside = [int(number) for number in query.get("with", "").split(",") if number][:MOST_COMPARED]
        limits = limits_of(*map(self.points.picture, beside)) if beside else None
        most = int(query["most"]) if "most" in query else None
        if most is not None and most < 1:
            raise ValueError("most must be at least 1.")
        content = png(shown, query.get("palette", "afmhot"), query.get("stretch", "linear"), limits, most)
        headers = {"Cache-Control": "private, max-age=3600"}  # the page adds the time a point was finished
        return Response(content, 200, headers, "image/png")

    def array(self, request: Request) -> Response:
        point = request.path_params["point"]
        return _npy(self.points.picture(point), f"point-{point}.npy")

    async def stack(self, request: Request) -> Response:
        selection = self._selection(request)

        def work(gone: Callable[[], bool]) -> dict[str, Any]:
            found = self.points.stack(selection, align=_aligned(request), gone=gone).shown()
            return {"of": self.points.count(selection), **found}

        return JSONResponse(await _while_connected(request, work))

    def stack_array(self, request: Request) -> Response:
        kind = "sd" if request.query_params.get("kind") == "sd" else "mean"
        found = self.points.stack(self._selection(request), align=_aligned(request))
        return _npy(getattr(found, kind), f"{kind}.npy")

    async def figures(self, request: Request) -> Response:
        number = request.path_params["point"]
        try:
            found = await _while_connected(request, lambda gone: self.points.figures(number, gone))
        except CannotDraw as error:
            return JSONResponse({"figures": [], "why": str(error)})
        return JSONResponse({"figures": found, "why": ""})

    def point(self, request: Request) -> Response:
        return JSONResponse(self.points.point(request.path_params["point"]))

    def marks(self, request: Request) -> Response:
        return JSONResponse({**self.points.marked(), "writable": self.write})

    def cube(self, request: Request) -> Response:
        chosen = self.points.select(self._selection(request))[:MOST_STACKED]
        pieces = fits_cube(self.points.survey, chosen)
        first = next(pieces)  # raises before an answer is begun
        return StreamingResponse(chain([first], pieces), 200, _attached("points.fits"), "application/fits")

    def configuration(self, request: Request) -> Response:
        chosen = self.points.select(self._selection(request))[:MOST_STACKED]
        text = configuration(self.points.survey, chosen)
        if not text:
            raise KeyError("this survey was not run from a configuration file.")
        return Response(text, 200, _attached("survey.toml"), "application/toml")

    async def mark(self, request: Request) -> Response:
        """Give a tag, take one away, or write a note; asked by this page only, as JSON."""
        if not self.write:
            return PlainTextResponse("Start `shardfit serve` with --write to keep tags and notes.\n", 403)
        # a form of a foreign page cannot send this type without asking first, and nobody answers such questions
        if request.headers.get("content-type") != "application/json":
            return PlainTextResponse("send JSON.\n", 415)
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_BODY:
                return PlainTextResponse("too long.\n", 413)
        content = json.loads(body)
        folder, ids = self.points.survey.run_dir, [int(i) for i in content["points"]][:MOST_POINTS]
        if "tag" in content:
            tag(folder, ids, str(content["tag"]), remove=bool(content.get("remove")))
        else:
            note(folder, ids[0], str(content["note"]))
        return JSONResponse({**self.points.marked(), "writable": True})

    def _selection(self, request: Request) -> Selection:
        return Selection.from_json(request.query_params.get("selection", ""), self.points.heading)


async def _while_connected(request: Request, work: Callable[[Callable[[], bool]], Any]) -> Any:
    """Return what work(gone) gives, done aside; gone() tells it when nobody waits for the answer any more."""
    gone = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, gone.is_set))
    while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
        if not gone.is_set() and await request.is_disconnected():
            gone.set()
    return task.result()


def _aligned(request: Request) -> bool:
    return request.query_params.get("align") == "true"


def _csv(rows: Iterator[list[str]]) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text)
    for number, row in enumerate(rows, 1):
        writer.writerow(row)
        if number % CSV_ROWS == 0:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _npy(array: np.ndarray, name: str) -> Response:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return Response(buffer.getvalue(), 200, _attached(name), "application/octet-stream")


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _listening(host: str, port: int) -> socket.socket:
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
