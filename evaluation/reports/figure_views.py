"""Figures of a report as images: a strict Content-Security-Policy allows images, not drawings inside the page."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.cache import patch_cache_control
from django.views.decorators.http import condition

from evaluation.rendering.figures.canvas import LIGHT, THEMES
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.views import as_download, find_report
from kgharvest.access import researcher_required
from kgharvest.version import code_version

CONTENT_TYPES = {"svg": "image/svg+xml", "pdf": "application/pdf"}


def etag(request: HttpRequest, pk: int, name: str, file_format: str) -> str:
    """A report never changes; how it is drawn does with the code."""
    return f'"{pk}-{name}-{file_format}-{request.GET.get("theme", "")}-{code_version()}"'


@researcher_required
@condition(etag_func=etag)
def figure_file(request: HttpRequest, pk: int, name: str, file_format: str) -> HttpResponse:
    report = find_report(request, pk)
    figure = next((figure for figure in figures_of(report.shown) if figure.name == name), None)
    if figure is None or file_format not in CONTENT_TYPES:
        raise Http404(f"This report has no figure {name}.{file_format}.")
    theme = THEMES.get(request.GET.get("theme", ""), LIGHT)
    content = figure.render(report.shown, file_format, theme)
    if "theme" not in request.GET:
        return as_download(content, CONTENT_TYPES[file_format], f"{report.round.name}-{name}.{file_format}")
    response = HttpResponse(content, content_type=CONTENT_TYPES[file_format])
    patch_cache_control(response, private=True, max_age=600)
    return response
