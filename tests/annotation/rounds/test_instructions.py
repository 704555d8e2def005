"""Instructions: safe rendering of Markdown, relation guides, and statement text."""

import re

import pytest

from annotation.models import Round
from annotation.rounds.instructions import escape, freeze_statement, instructions_html, markdown_html, relation_guide
from kgharvest.models import Relation

CAPITAL_OF = Relation(pk=7, statement="<ENT0> is the capital of <ENT1>.", explanation="Of a state of today.")


def test_markdown_becomes_html():
    assert markdown_html("**True**: it *holds*.") == "<p><strong>True</strong>: it <em>holds</em>.</p>\n"


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "![x](https://example.org/pixel.png)",
        "[x](javascript:alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "[x](//example.org)",
        "<javascript:alert(1)>",
        '[x](https://example.org "\\" onclick=\\"alert(1)")',
    ],
)
def test_markdown_cannot_run_scripts_or_load_resources(text):
    html = markdown_html(text)

    assert not any(tag in html for tag in ("<script", "<img", 'href="java', 'href="data', 'href="//', '" onclick'))


def test_links_open_in_new_tab_without_referrer():
    html = markdown_html("[map](https://example.org)")

    assert 'href="https://example.org" rel="noopener noreferrer nofollow" target="_blank"' in html


@pytest.mark.parametrize(
    ("written", "shown"),
    [("1", "3"), ("2", "3"), ("1 2 3 4 5", "3 4 5 6 6"), ("1 5 5 2 1", "3 4 4 4 3"), ("3 1 2", "3 3 4")],
)
def test_headings_start_below_page_headings_without_level_gaps(written, shown):
    html = markdown_html("\n\n".join(f"{'#' * int(level)} Heading" for level in written.split()))

    assert re.findall(r"<h(\d)>Heading</h\1>", html) == shown.split()


def test_escaped_text_renders_literally():
    assert markdown_html(escape("*a* [b](c) <i> 1. #d `e` & \\")) == (
        "<p>*a* [b](c) &lt;i&gt; 1. #d `e` &amp; \\</p>\n"
    )


def test_round_without_instructions_uses_default():
    assert "<strong>Unjudgeable</strong>" in instructions_html(Round())


def test_instructions_end_with_relation_guide():
    guide = relation_guide(CAPITAL_OF, ["Rome", "Italy"], ["Rome", "Peru"])
    round = Round(instructions="Judge.", relation_instructions={"7": guide})

    assert instructions_html(round) == "<p>Judge.</p>\n"
    assert instructions_html(round, CAPITAL_OF) == (
        "<p>Judge.</p>\n<p>Of a state of today.</p>\n<p>For example:</p>\n<ul>\n"
        "<li><strong>True</strong>: Rome is the capital of Italy.</li>\n"
        "<li><strong>False</strong>: Rome is the capital of Peru.</li>\n</ul>\n"
    )
    assert instructions_html(round, Relation(pk=8)) == "<p>Judge.</p>\n"


def test_frozen_statement_drops_space_before_full_stop():
    statement = freeze_statement(" <ENT0> prevents <ENT1> .", ["mask", "St. Vitus ' dance"])

    assert statement.text == "mask prevents St. Vitus ' dance."
    assert [statement.text[start:end] for start, end in statement.spans] == ["mask", "St. Vitus ' dance"]
