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
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from shardfit.core.errors import CheckpointError
from shardfit.report.gallery.assets import PAGE, SCRIPT, STYLE, TYPES, asset, joined_scripts
from shardfit.report.gallery.drawing import CannotDraw, Gone
from shardfit.report.gallery.exports import configuration, fits_cube
from shardfit.report.gallery.query import MOST_POINTS, MOST_STACKED, Points
from shardfit.report.gallery.selection import Selection
from shardfit.report.gallery.thumbnails import limits_of, png
from shardfit.report.listening import Server, address_of, listening
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
LOOK_SECONDS = 0.2  # between two looks at whether a page still waits for an answer
MOST_BODY = 32 << 20  # bytes of what a page sends: the numbers of some million points
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
        ClientDisconnect: lambda _, error: PlainTextResponse("nobody waits for this.", 503),
        sqlite3.Error: lambda _, error: PlainTextResponse(f"the ledger cannot be read now: {error}", 503),
    }
    return Starlette(routes=routes, exception_handlers=handlers)


def serve(
    app: Any, host: str, port: int, token: str | None, announce: Any, give_up: Callable[[], Any] = lambda: None
) -> None:
    """Serve an application until interrupted; announce(address) is called once the port is held. port 0: any free.

    give_up: called at the end, to end what threads still do.
    """
    with listening(host, port) as listener:
        announce(address_of(listener, host) + (f"?token={token}" if token else ""))
        Server(Guard(app, token), give_up).run(sockets=[listener])


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
            found = self.points.stack(selection, align=_aligned(request), most=MOST_STACKED, gone=gone).shown()
            return {"of": self.points.count(selection), **found}

        return JSONResponse(await _while_connected(request, work))

    async def stack_array(self, request: Request) -> Response:
        kind = "sd" if request.query_params.get("kind") == "sd" else "mean"
        selection, align = self._selection(request), _aligned(request)
        found = await _while_connected(request, lambda gone: self.points.stack(selection, align=align, gone=gone))
        return _npy(getattr(found, kind), f"{kind}.npy")

    async def figures(self, request: Request) -> Response:
        drawn = await run_in_threadpool(self.points.figures, request.path_params["point"])
        waiting = asyncio.wrap_future(drawn)  # in the drawer's queue, where it keeps no thread of ours
        while not (await asyncio.wait({waiting}, timeout=LOOK_SECONDS))[0]:
            if await request.is_disconnected():
                waiting.cancel()
                raise Gone
        if waiting.cancelled():
            raise Gone  # the server ends
        try:
            return JSONResponse({"figures": waiting.result(), "why": ""})
        except CannotDraw as error:
            return JSONResponse({"figures": [], "why": str(error)})

    def point(self, request: Request) -> Response:
        return JSONResponse(self.points.point(request.path_params["point"]))

    def marks(self, request: Request) -> Response:
        return JSONResponse({**self.points.marked(), "writable": self.write})

    def cube(self, request: Request) -> Response:
        pieces = fits_cube(self.points.survey, self.points.select(self._selection(request)))
        first = next(pieces)  # raises before an answer is begun
        return StreamingResponse(chain([first], pieces), 200, _attached("points.fits"), "application/fits")

    def configuration(self, request: Request) -> Response:
        pieces = configuration(self.points.survey, self.points.select(self._selection(request)))
        first = next(pieces, None)
        if first is None:
            raise KeyError("this survey was not run from a configuration file.")
        return StreamingResponse(chain([first], pieces), 200, _attached("survey.toml"), "application/toml")

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
                return PlainTextResponse(f"more than {MOST_BODY:,} bytes. Tag fewer points at once.\n", 413)
        asked = _asked_mark(body)
        return JSONResponse(await run_in_threadpool(self._marked, *asked))

    def _marked(self, ids: list[int], words: dict[str, str], remove: bool) -> dict[str, Any]:
        folder = self.points.survey.run_dir
        if "tag" in words:
            tag(folder, ids, words["tag"], remove=remove)
        else:
            note(folder, ids[0], words["note"])
        return {**self.points.marked(), "writable": True}

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


def _asked_mark(body: bytes) -> tuple[list[int], dict[str, str], bool]:
    """Return the points, the tag or note, and whether a tag is to be removed; raise ValueError for anything else."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is no JSON: {error}.") from None
    fields = content if isinstance(content, dict) else {}
    ids, words = fields.get("points"), {name: fields[name] for name in ("tag", "note") if name in fields}
    numbers = ids if isinstance(ids, list) else []
    whole = bool(numbers) and all(type(i) in (int, float) and i == int(i) for i in numbers)
    if not whole or len(words) != 1 or not all(isinstance(word, str) for word in words.values()):
        raise ValueError('send {"points": [numbers], "tag": text} (with "remove": true to take it away), or "note".')
    return [int(i) for i in numbers], words, bool(fields.get("remove"))


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
