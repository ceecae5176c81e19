"""A browser for all tests of pages, and servers of surveys for it to look at."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages.chromium import Page, browsing, find_chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    binary = find_chromium()
    if binary is None:
        pytest.skip("no Chromium here: install it (apt install chromium) or set SHARDFIT_CHROMIUM to its path")
    with browsing(binary) as page:
        yield page


@pytest.fixture
def page(browser) -> Iterator[Page]:
    """The tab, empty, of the usual size; whatever a page complained about fails the test."""
    browser.command("Page.navigate", url="about:blank")
    browser.messages.clear()
    browser.size(1440, 900)
    yield browser
    browser.frame()
    assert browser.messages == []


@contextlib.contextmanager
def serving(folder: Path, token: str = "a-token") -> Iterator[str]:
    """Serve a survey from a thread; yield its address."""
    pytest.importorskip("uvicorn", reason="the gallery's server needs shardfit[serve]")
    from shardfit.report.gallery.query import Points
    from shardfit.report.server import create_app

    points = Points.open(folder)
    with running(create_app(points, token)) as address:
        yield f"{address}?token={token}"
    points.close()


@contextlib.contextmanager
def running(app: Any) -> Iterator[str]:
    """Run an application in a thread; yield its address."""
    uvicorn = pytest.importorskip("uvicorn", reason="the server needs shardfit[serve]")
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", access_log=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
