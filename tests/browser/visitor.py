"""One person's browser, which remembers what the pages did behind their back."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from django.urls import Resolver404, resolve
from playwright.sync_api import Error

AXE = "options => axe.run(document, options).then(results => results.violations)"
LINKS = "links => links.map(link => new URL(link.getAttribute('href'), document.baseURI).href)"  # of SVG, too
OTHER_DOORS = ("/admin/", "/api/")  # not pages of this project


class Visitor:
    """A browser context with one page.

    prefix: what the server's own paths begin with, as in /kg/rounds/; tests name them without.
    requests: every URL asked for. complaints: console errors and uncaught exceptions, CSP violations among them.
    """

    def __init__(self, context, prefix: str = "") -> None:
        self.page = context.new_page()
        self._prefix = prefix
        if prefix:
            goto = self.page.goto
            self.page.goto = lambda url, **options: goto(prefix + url if url.startswith("/") else url, **options)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, message) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} ({message.location.get('url')})")

    def walk(self, start: str = "/") -> Iterator[str]:
        """Open one page of every view that links lead to from `start`; yield its path while it is open."""
        waiting, seen = [start], set()
        while waiting:
            path = waiting.pop(0)
            view = view_name(path)
            if view is None or view in seen:
                continue
            seen.add(view)
            if self._open_page(path):
                waiting += self._own_links()
                yield path

    def _open_page(self, path: str) -> bool:
        """Open `path`; return whether it is a page and no file."""
        try:
            response = self.page.goto(path)
        except Error as error:
            if "Download is starting" not in error.message:
                raise
            return False
        return response.headers.get("content-type", "").startswith("text/html")

    def _own_links(self) -> list[str]:
        root = urlsplit(self.page.url).netloc + self._prefix
        links = self.page.locator("a[href]").evaluate_all(LINKS)
        return [link.partition(root)[2] for link in links if link.partition("://")[2].startswith(f"{root}/")]

    def foreign_requests(self) -> list[str]:
        own = urlsplit(self.page.url).netloc
        return [
            url for url in self.requests if urlsplit(url).scheme in {"http", "https"} if urlsplit(url).netloc != own
        ]

    def axe_violations(self, *rules: str) -> list[str]:
        """Return what axe finds on the open page, one line per rule and element; all rules if none is named."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(Axe().axe_script)
        named = {"runOnly": list(rules)} if rules else {}
        violations = self.page.evaluate(AXE, {"resultTypes": ["violations"], **named})
        return [f"{rule['id']}: {node['html'][:160]}" for rule in violations for node in rule["nodes"]]


def view_name(path: str) -> str | None:
    """Return the name of the view behind `path`, None if it is no page of this project."""
    if path.startswith(OTHER_DOORS):
        return None
    try:
        return resolve(urlsplit(path).path).view_name
    except Resolver404:
        return None
