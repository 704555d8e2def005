"""Progress bar for terminals and notebooks."""

from __future__ import annotations

import sys
import warnings
from time import monotonic

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # without ipywidgets, a notebook shows the bar as text
    from tqdm.auto import tqdm

from kgharvest.engine.types import Progress


class ProgressBar:
    """Progress callback that draws a bar on standard error. The bar restarts at each stage.

    The bar appears with the first report after `delay_s` seconds, if standard error is a terminal or a notebook.
    """

    def __init__(self, label: str, delay_s: float = 0):
        self._label = label
        self._starts_at = monotonic() + delay_s
        self._bar: tqdm | None = None
        self._stage = ""

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, progress: Progress) -> None:
        if self._bar is None:
            if monotonic() < self._starts_at:
                return
            # None shows the bar only on terminals
            self._bar = tqdm(desc=self._label, disable=False if "ipykernel" in sys.modules else None, leave=False)
        if progress.stage != self._stage:
            self._stage = progress.stage
            self._bar.reset(progress.total)
            self._bar.set_description_str(f"{self._label}: {progress.stage}")
        self._bar.total = progress.total
        self._bar.update(progress.done - self._bar.n)
