"""Renew the pictures of the documentation: `python docs/screenshots/renew.py` sets a demo up and photographs it.

It needs the packages of requirements-test.txt and a Chromium; KGHARVEST_CHROMIUM names another than the installed one.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from urllib.request import urlopen

from playwright.sync_api import Page, expect, sync_playwright

PICTURES = Path(__file__).resolve().parent
ROOT = PICTURES.parents[1]
CHROMIUM = (
    os.environ.get("KGHARVEST_CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-headless-shell")
    or shutil.which("google-chrome")
)
SIZE = {"width": 1280, "height": 800}
TALL = {"width": 1280, "height": 1080}
WAITING_FOR_THE_SERVER_S = 60
PATIENCE_MS = 60_000


def main() -> None:
    with TemporaryDirectory() as folder, demo(folder) as (site, passwords), sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def page_of(user: str, size: dict[str, int] = SIZE) -> Page:
            page = browser.new_context(base_url=site, viewport=size, reduced_motion="reduce").new_page()
            page.goto("/accounts/login/")
            page.get_by_label("Username").fill(user)
            page.get_by_label("Password").fill(passwords[user])
            page.keyboard.press("Enter")
            expect(page.get_by_role("button", name="Log out")).to_be_visible()
            return page

        photograph_report(page_of("researcher", TALL))
        photograph_judging(page_of("annotator-1"))
        browser.close()


@contextmanager
def demo(folder: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Serve a demo whose data are in the folder; yield its address and the passwords of its people."""
    environment = os.environ | {"KGHARVEST_DATA_DIR": folder, "DEBUG": "1"}
    manage = [sys.executable, str(ROOT / "manage.py")]
    printed = subprocess.run([*manage, "demo", "--once"], env=environment, check=True, capture_output=True, text=True)
    passwords = dict(re.findall(r"^ +(researcher|annotator-\d) +(\S+)$", printed.stdout, re.MULTILINE))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen([*manage, "runserver", "--noreload", address], env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_for(address)
        yield f"http://{address}", passwords
    finally:
        server.terminate()
        server.wait()


def wait_for(address: str) -> None:
    for _ in range(WAITING_FOR_THE_SERVER_S):
        try:
            urlopen(f"http://{address}/healthz", timeout=1).close()
        except OSError:
            sleep(1)
        else:
            return
    raise SystemExit("The demo's server did not start.")


def photograph_report(page: Page) -> None:
    page.goto("/reports/")
    page.get_by_role("main").locator("a.row-link").first.click()
    expect(page.locator("#figure-averages .plot-legend")).to_be_visible()
    page.wait_for_load_state("networkidle")
    page.screenshot(path=PICTURES / "report.png")


def photograph_judging(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="Start judging").click()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    judge(page, "tf")
    page.screenshot(path=PICTURES / "judging.png")
    page.get_by_role("button", name="Show a page of statements").click()
    for key in "tfu":
        page.keyboard.press(key)
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    page.screenshot(path=PICTURES / "judging-page.png")


def judge(page: Page, keys: str) -> None:
    for key in keys:
        statement = page.locator("#statement").inner_text()
        page.keyboard.press(key)
        page.wait_for_function("was => document.querySelector('#statement').innerText !== was", arg=statement)


if __name__ == "__main__":
    main()
