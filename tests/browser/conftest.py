"""Chromium fixtures for tests marked `browser`. The tests are skipped if Chromium is not installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.test import Client

from tests.browser.proxied_server import ProxiedServer
from tests.browser.visitor import Visitor

CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",  # starting a process takes longer than most pages
]
TIMEOUT_MS = 20_000  # long enough for a slow machine


def chromium_path() -> str | None:
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("KGHARVEST_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="package")
def chromium() -> Iterator:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium_path()
    if path is None:
        pytest.skip("Chromium not found. Install Chromium or set KGHARVEST_CHROMIUM to its path.")
    with pytest.MonkeyPatch.context() as environment, sync_api.sync_playwright() as playwright:
        # Playwright's sync API keeps an event loop in this thread, and Django blocks ORM calls in such threads.
        environment.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        sync_api.expect.set_options(timeout=TIMEOUT_MS)
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def proxied_server(django_db_setup, django_db_blocker, tmp_path_factory) -> Iterator[ProxiedServer]:
    with django_db_blocker.unblock(), ProxiedServer(tmp_path_factory.mktemp("nginx")) as server:
        yield server


@pytest.fixture
def site(request) -> str:
    """Base URL of the pages without a trailing slash."""
    is_proxied = os.environ.get("KGHARVEST_TEST_PROXY")
    return request.getfixturevalue("proxied_server" if is_proxied else "live_server").url


@pytest.fixture
def visit(chromium, site) -> Iterator[Callable[..., Visitor]]:
    """Return `visit(user=None, width=1280, **context options)`, which opens a separate browser context for a user."""
    contexts = []

    def open_browser(user=None, width=1280, **options) -> Visitor:
        defaults = {
            "base_url": site,
            "ignore_https_errors": True,  # test certificates are self-signed
            "reduced_motion": "reduce",
            "viewport": {"width": width, "height": 800},
        }
        context = chromium.new_context(**defaults, **options)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        if user is not None:
            context.add_cookies([session_cookie(user, site)])
        return Visitor(context, urlsplit(site).path)

    yield open_browser
    for context in contexts:
        context.close()


def session_cookie(user, url: str) -> dict:
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": f"{url}/"}
