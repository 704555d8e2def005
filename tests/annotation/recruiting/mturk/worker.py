"""A browser that MTurk shows our page in."""

from __future__ import annotations

import re

from django.test import Client

from annotation.models import Panel

HERE = {"assignmentId": "3ASSIGNMENT1", "hitId": "3HIT", "workerId": "A2WORKER"}


class Worker:
    """A browser in MTurk's frame, which keeps no cookies and sends what the last page's form has."""

    def __init__(self, panel: Panel, **ids: str):
        self.path, self.ids, self.page = f"/mturk/{panel.token}/", HERE | ids, None

    def open(self, **more: str):
        return self._got(Client(enforce_csrf_checks=True).get(self.path, self.ids | more))

    def send(self, **fields: str):
        return self._got(Client(enforce_csrf_checks=True).post(self.path, self.hidden() | fields))

    def start(self, **fields: str):
        self.open()
        return self.send(start="1", **fields)

    def hidden(self) -> dict[str, str]:
        return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.page))

    def _got(self, response):
        assert not response.cookies, "the frame of another site keeps no cookies"
        self.page = response.content.decode()
        return response
