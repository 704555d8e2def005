"""One person's browser, which remembers what the pages did behind their back."""

from __future__ import annotations

from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe


class Visitor:
    """A browser context with one page.

    requests: every URL asked for. complaints: console errors and uncaught exceptions, CSP violations among them.
    """

    def __init__(self, context) -> None:
        self.page = context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, message) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} ({message.location.get('url')})")

    def go(self, path: str):
        return self.page.goto(path)

    def foreign_requests(self) -> list[str]:
        own = urlsplit(self.page.url).netloc
        return [url for url in self.requests if urlsplit(url).scheme in {"http", "https"} and urlsplit(url).netloc != own]

    def axe_violations(self) -> list[str]:
        """Return what axe finds on the page now, one line per rule and element."""
        violations = Axe().run(self.page).response["violations"]
        return [f"{rule['id']}: {node['html'][:160]}" for rule in violations for node in rule["nodes"]]
