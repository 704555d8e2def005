"""Size of the evidence page of a large report, and time until it shows its first rows.

`python benches/evidence_page.py [--statements 20000] [--relations 14] [--sides 4] [--output page.html]`. Uses made-up
rows with three labels per statement; sides are LMs and settings. Times are those of the page's script in Chromium, the
minimum of five.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kgharvest.settings")

import django

django.setup()


from evaluation.rendering.evidence_page import write_evidence_page
from evaluation.reports.document import build_document
from kgharvest.statistics.arrays import LABELS, VERDICTS
from kgharvest.statistics.paired_tests import CellKey
from tests.evaluation.evidence_factory import make_evidence

SIDES = list(product(("llama-base", "roberta-large", "bert-base", "gpt-2"), ("human", "top1", "multi")))
N_ANNOTATORS, LONGEST = 40, 12
CHROMIUM = ["--no-sandbox", "--disable-gpu"]
TIMES = """() => new Promise(resolve => requestAnimationFrame(() => {
  const [page] = performance.getEntriesByType("navigation");
  resolve(page.domContentLoadedEventStart - page.responseEnd);
}))"""
CHANGE = """hash => { const begun = performance.now(); location.hash = hash; return new Promise(resolve =>
  addEventListener("hashchange", () => setTimeout(() => resolve(performance.now() - begun)), {once: true})); }"""
SCRIPT = (
    """source => { const begun = performance.now(); (0, eval)(`{${source}}`); return performance.now() - begun; }"""
)


def made_up(n_statements: int, n_relations: int, n_sides: int) -> tuple[dict, dict]:
    """Return a made-up report document and the rows behind it."""
    rng = np.random.default_rng(0)
    keys = [CellKey(f"relation_{number:02}", *side) for number, side in product(range(n_relations), SIDES[:n_sides])]
    per_cell = n_statements // len(keys)
    hits = rng.binomial(per_cell, 0.8, len(keys))
    evidence = make_evidence({key: (int(n), per_cell - int(n), 0, 0) for key, n in zip(keys, hits, strict=True)})
    document = build_document(evidence) | {
        "created_at": "2026-01-02T00:00:00+00:00",
        "code_version": "bench",
        "method": "",
    }
    words = ["".join(chr(97 + code) for code in rng.integers(0, 26, rng.integers(3, LONGEST))) for _ in range(5000)]
    n = len(evidence.draws.task)
    picked = rng.integers(0, len(words), (n, 9))
    statements = [" ".join(words[number] for number in row) for row in picked]
    judges = rng.integers(0, N_ANNOTATORS, (n, 3))
    labels = np.where(evidence.verdict[:, None] == 0, 0, rng.integers(1, 3, (n, 3)))
    rows = {
        "labels": LABELS, "verdicts": VERDICTS, "judge": None,
        "annotators": [f"a-{number:08x}" for number in range(N_ANNOTATORS)],
        "draws": {
            "cell": evidence.cell_of_draw.tolist(), "stratum": [0] * n, "rank": evidence.draws.rank.tolist(),
            "task": evidence.draws.task.tolist(), "score": np.round(rng.normal(-5, 2, n), 4).tolist(),
        },
        "tasks": {
            "statement": statements, "spans": [[0, len(text.split()[0])] for text in statements],
            "verdict": evidence.verdict.tolist(), "labels": np.stack([judges, labels], 2).reshape(n, 6).tolist(),
            "comments": {},
        },
        "cells": [
            {**cell, "strata": [{"population": cell["population"], "rank_from": 1, "rank_to": cell["population"]}]}
            for cell in document["cells"]
        ],
    }  # fmt: skip
    return document, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=20_000)
    parser.add_argument("--relations", type=int, default=14)
    parser.add_argument("--sides", type=int, default=4, choices=range(1, len(SIDES) + 1))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    document, rows = made_up(options.statements, options.relations, options.sides)
    begun = time.perf_counter()
    page = write_evidence_page(document, rows)
    written_s = time.perf_counter() - begun
    path = options.output or Path(tempfile.mkdtemp()) / "evidence.html"
    path.write_text(page, encoding="utf-8")
    print(
        f"{len(rows['tasks']['statement']):,} statements: {path.stat().st_size / 1e6:.1f} MB, "
        f"written in {written_s:.1f} s"
    )
    measure(path, page.rpartition("<script>")[2].partition("</script>")[0])


def measure(path: Path, script: str) -> None:
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import chromium_path

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=CHROMIUM)
        page = browser.new_context(bypass_csp=True).new_page()
        loaded, scripted, changed = [], [], []
        for _ in range(5):
            page.goto(path.as_uri())
            loaded.append(page.evaluate(TIMES))
            changed.append(page.evaluate(CHANGE, "#relation=relation_03&verdict=rejected"))
            scripted.append(page.evaluate(SCRIPT, script))
        print(
            f"page loaded and shown {min(loaded):.0f} ms after its last byte; "
            f"of that the script {min(scripted):.0f} ms; another view {min(changed):.0f} ms"
        )
        browser.close()


if __name__ == "__main__":
    main()
