"""Screenshots of a test run, saved if KGHARVEST_SCREENSHOTS names a folder."""

from __future__ import annotations

import os
from pathlib import Path

WIDTHS, HEIGHT = (360, 1280, 1920), 800


def resize(page, width: int) -> None:
    """Set the width of the page, and wait until its charts are drawn in the new width."""
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def save_screenshots(page, name: str, widths: tuple[int, ...] = WIDTHS) -> None:
    """Save screenshots of the open page in every width and theme. Fails if the page scrolls horizontally."""
    folder = os.environ.get("KGHARVEST_SCREENSHOTS")
    size = page.viewport_size
    for width in widths:
        resize(page, width)
        assert page.evaluate("document.documentElement.scrollWidth") == width, name
        for theme in ("light", "dark") if folder else ():
            page.emulate_media(color_scheme=theme)
            page.screenshot(path=Path(folder) / f"{name}-{width}-{theme}.png", full_page=True)
    page.set_viewport_size(size)
