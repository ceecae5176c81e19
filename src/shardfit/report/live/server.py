"""Pages of every run in a folder: an index, a page for each, and the gallery for a survey.

Only folders below the one that was named are shown, links are not followed, and nothing is written.
"""

import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from shardfit.report.blocks import Link, Section
from shardfit.report.gallery.query import Points
from shardfit.report.html import POLICY, Badge, document, render_main, style
from shardfit.report.live.pages import REPORT, index_sections, run_sections, title_of
from shardfit.report.live.state import State, runs_below, state_of
from shardfit.report.server import gallery

SCRIPT = Path(__file__).with_name("live.js")
HEAD = '<link rel="stylesheet" href="/page/page.css"><script src="/page/live.js" defer></script>'
RUN = "/run/"
MOST_GALLERIES = 16  # open at the same time


class Runs:
    """The application of a folder: of one run its page, of many an index with a page for each."""

    def __init__(self, root: Path, write: bool = False):
        self.root, self.write = root.resolve(), write
        self.single = state_of(self.root).begun
        self.galleries: dict[Path, tuple[Points, Any]] = {}
        self.opening = threading.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        survey = response = None
        try:  # aside: folders may be many, and on a network
            survey = await run_in_threadpool(self._survey, path)
            if survey is None or not path.startswith(survey[0]):
                response = await run_in_threadpool(self.answer, Request(scope))
        except (OSError, ValueError, RuntimeError) as error:
            response = PlainTextResponse(f"this cannot be read now: {error}\n", 503)
        if response is not None:
            await response(scope, receive, send)
        elif survey is not None:
            inner = {**scope, "root_path": scope.get("root_path", "") + survey[0].rstrip("/")}
            await survey[1](inner, receive, send)

    def answer(self, request: Request) -> Response:
        """Return the answer to an address that is no survey's."""
        path = request.url.path
        if path == "/page/page.css":
            return Response(style(), media_type="text/css")
        if path == "/page/live.js":
            return Response(SCRIPT.read_text(encoding="utf-8"), media_type="text/javascript")
        if path == f"/{REPORT}" and self.single:
            return _report(self.root)
        if path == "/":
            page = self._run(self.root, "") if self.single else self._index()
        else:
            folder = self._folder(path.removesuffix(f"/{REPORT}"))
            if folder is None:
                return PlainTextResponse("no such run.\n", 404)
            if path.endswith(f"/{REPORT}"):
                return _report(folder)
            if not path.endswith("/"):
                return RedirectResponse(path + "/")
            page = self._run(folder, "../" * (path.count("/") - 1))
        if request.query_params.get("part") == "main":
            return Response(page[1], media_type="text/html")
        title, main = page
        return Response(document(title, HEAD, main), media_type="text/html")

    def give_up(self) -> None:
        """End what threads do at the moment."""
        for points, _ in list(self.galleries.values()):
            points.give_up()

    def close(self) -> None:
        """Let go of all ledgers."""
        for points, _ in self.galleries.values():
            points.close()

    def _index(self) -> tuple[str, str]:
        states = runs_below(self.root)
        addresses = [f"run/{quote(str(state.folder.relative_to(self.root)))}/" for state in states]
        return self._page(self.root.name, index_sections(states, addresses), None)

    def _run(self, folder: Path, up: str) -> tuple[str, str]:
        state = state_of(folder)
        back = Link(f"← all runs in {self.root.name}", up) if up else None
        return self._page(title_of(state), run_sections(state), state.badge(), back)

    def _page(
        self, title: str, sections: list[Section], badge: Badge | None, up: Link | None = None
    ) -> tuple[str, str]:
        footer = "Made by shardfit from the files in this folder; updated every two seconds."
        return title, render_main(title, sections, badge=badge, footer=footer, up=up)

    def _folder(self, path: str) -> Path | None:
        """Return the run that an address names; None for what is none, or lies elsewhere."""
        if not path.startswith(RUN):
            return None
        folder = (self.root / unquote(path.removeprefix(RUN)).strip("/")).resolve()
        inside = folder != self.root and folder.is_relative_to(self.root)
        return folder if inside and folder.is_dir() and state_of(folder).begun else None

    def _survey(self, path: str) -> tuple[str, Any] | None:
        """Return prefix and gallery of the survey that an address lies in."""
        parts = path.removeprefix(RUN).strip("/").split("/") if path.startswith(RUN) else []
        for n in range(len(parts), 0, -1):
            prefix = RUN + "/".join(parts[:n])
            folder = self._folder(prefix)
            if folder is not None and _is_survey(state_of(folder)):
                if path == prefix:
                    return None  # to be redirected: the gallery's own addresses are relative
                return prefix + "/", self._gallery(folder)
        return None

    def _gallery(self, folder: Path) -> Any:
        with self.opening:
            if folder not in self.galleries:
                while len(self.galleries) >= MOST_GALLERIES:
                    points, _ = self.galleries.pop(next(iter(self.galleries)))
                    points.close()
                points = Points.open(folder)
                self.galleries[folder] = points, gallery(points, write=self.write)
            return self.galleries[folder][1]


def _is_survey(state: State) -> bool:
    return state.kind is not None and state.kind.name == "survey"


def _report(folder: Path) -> Response:
    """Return the report of a run as it is, without leave to run anything: it may come from a stranger."""
    path = folder / REPORT
    if path.is_symlink() or not path.is_file():
        return PlainTextResponse("this run has no report yet.\n", 404)
    headers = {"Content-Security-Policy": f"{POLICY}; sandbox"}
    return Response(path.read_bytes(), headers=headers, media_type="text/html")
