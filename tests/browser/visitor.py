"""Browser context of one user that records requests and console errors."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from django.urls import Resolver404, resolve
from playwright.sync_api import Error

AXE = "options => axe.run(document, options).then(results => results.violations)"
LINKS = "links => links.map(link => new URL(link.getAttribute('href'), document.baseURI).href)"  # supports SVG links
EXCLUDED_PATHS = ("/admin/", "/api/")  # not pages of this project


class Visitor:
    """A browser context with one page.

    prefix: path prefix of the server, such as /kg in /kg/rounds/. Tests omit it.
    requests: all requested URLs. complaints: console errors and uncaught exceptions, including CSP violations.
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
        """Open one page of each view reachable by links from `start`; yield its path while the page is open."""
        queue, seen = [start], set()
        while queue:
            path = queue.pop(0)
            view = view_name(path)
            if view is None or view in seen:
                continue
            seen.add(view)
            if self._open_page(path):
                queue += self._own_links()
                yield path

    def _open_page(self, path: str) -> bool:
        """Open `path`; return whether it is an HTML page rather than a file."""
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
        host = urlsplit(self.page.url).netloc
        return [
            url for url in self.requests if urlsplit(url).scheme in {"http", "https"} if urlsplit(url).netloc != host
        ]

    def axe_violations(self, *rules: str) -> list[str]:
        """Return axe violations of the open page, one line per rule and element. Checks all rules by default."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(Axe().axe_script)
        options = {"runOnly": list(rules)} if rules else {}
        violations = self.page.evaluate(AXE, {"resultTypes": ["violations"], **options})
        return [f"{rule['id']}: {node['html'][:160]}" for rule in violations for node in rule["nodes"]]


def view_name(path: str) -> str | None:
    """Return the view name of `path`, or None if `path` is not a page of this project."""
    if path.startswith(EXCLUDED_PATHS):
        return None
    try:
        return resolve(urlsplit(path).path).view_name
    except Resolver404:
        return None
