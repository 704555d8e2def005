"""Rejection of malformed requests before they reach a page, caching, and logging."""

import logging
import sys
from io import BytesIO
from wsgiref.util import setup_testing_defaults

import pytest

from kgharvest import settings
from kgharvest.wsgi import application

pytestmark = pytest.mark.django_db

FORM = "application/x-www-form-urlencoded"
FILES = "multipart/form-data"
PATHS = ["/accounts/login/", "/nowhere/", "/api/schema/"]
CSRF_COOKIE = f"csrftoken={'a' * 32}"
MEDIA_TYPES = [FORM, f"{FILES}; boundary=x", "application/json", "text/html"]


def answer(path: str, body: bytes = b"a=b", **headers: str) -> tuple[int, str]:
    """Send a request to the WSGI application, as Django's test client skips the code around Django's handlers."""
    environ = {"PATH_INFO": path, "REQUEST_METHOD": "POST", "wsgi.input": BytesIO(body)}
    environ |= {"CONTENT_LENGTH": str(len(body)), "QUERY_STRING": "q=%ff", **headers}
    setup_testing_defaults(environ)
    statuses = []
    response = application(environ, lambda status, *rest: statuses.append(status))
    page = b"".join(response)
    return int(statuses[0].partition(" ")[0]), page.decode()


@pytest.mark.parametrize("query", [{"q": "dog\x00"}, {"\x00": "dog"}, {"status": ["open", "\x00"]}])
def test_nul_in_a_query_string_is_rejected(researcher_client, query):
    assert researcher_client.get("/rounds/", query).status_code == 400


@pytest.mark.parametrize("path", ["/reports/9223372036854775808/", f"/api/v1/harvests/{10**30}/", f"/rounds/{10**30}/"])
@pytest.mark.parametrize("media_type", [FORM, f"{FILES}; boundary=\xff"])
def test_oversized_numbers_in_urls_are_rejected(path, media_type):
    status, _ = answer(path, CONTENT_TYPE=media_type, HTTP_COOKIE=CSRF_COOKIE)

    assert status == (404 if media_type == FORM else 400)


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5_000])
def test_oversized_numbers_in_forms_cause_no_server_error(researcher_client, number):
    chosen = {"name": "pilot", "jobs": number}

    assert researcher_client.post("/rounds/new/", chosen).status_code in (200, 400)
    assert researcher_client.get("/relations/new/", {"copy": number}).status_code == 200
    assert researcher_client.get("/reports/compare/", {"a": number, "b": "paper"}).status_code in (200, 404)


@pytest.mark.parametrize("media_type", ["", FORM, f"{FORM}; charset=utf-8", "text/html; charset=utf-8"])
def test_too_many_query_parameters_are_rejected(media_type):
    fields = {"QUERY_STRING": "&" * 20_000, "CONTENT_TYPE": media_type}

    status, page = answer("/admin/login/", HTTP_COOKIE=CSRF_COOKIE, **fields)

    assert (status, "too many query parameters" in page) == (400, True)


def test_a_filter_with_a_nul_does_not_reach_the_database(researcher_client):
    page = researcher_client.post("/rounds/new/", {"action": "filter", "find": "dog\x00"})

    assert page.context["filters"]["find"] == "dog"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("media_type", MEDIA_TYPES)
@pytest.mark.parametrize("charset", ["utf-16", "utf-7", "latin-1", "hex", "punycode", "idna", "undefined", "utf-8\x00"])
def test_charsets_other_than_utf_8_are_rejected(charset, media_type, method):
    status, sentence = answer("/", REQUEST_METHOD=method, CONTENT_TYPE=f"{media_type}; charset={charset}")

    assert (status, "Send the request in UTF-8" in sentence) == (400, True)


def test_form_declared_as_utf_8_is_parsed():
    status, page = answer("/accounts/login/", CONTENT_TYPE=f"{FORM}; charset=UTF-8", HTTP_COOKIE=CSRF_COOKIE)

    assert (status, "CSRF" in page or "Form could not be submitted" in page) == (403, True)


@pytest.mark.parametrize(
    "headers",
    [{"CONTENT_TYPE": f"{FORM}; a*=nonsense'en'%ff"}, {"CONTENT_LENGTH": "many"}, {"CONTENT_LENGTH": "-1"}],
)
def test_malformed_headers_are_rejected(headers):
    assert answer("/", **headers)[0] == 400


TOO_MANY_FILES = b"--x\r\nContent-Disposition: form-data; name=a; filename=b\r\n\r\nc\r\n" * 101 + b"--x--"


@pytest.mark.parametrize("cookie", [CSRF_COOKIE, ""])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("media_type", "body", "reason"),
    [
        (FILES, b"a", "boundary is missing"),
        (f"{FILES}; boundary=", b"a", "boundary is missing"),
        (f"{FILES}; boundary={'x' * 300}", b"a", "boundary is missing"),
        (f"{FILES}; boundary=x", TOO_MANY_FILES, "too many files"),
        (FORM, b"a=b&" * 10_001, "too many fields"),
        (
            f"{FILES}; boundary=x",
            b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n" + b"b" * 4_000_000,
            "too large",
        ),
    ],
)
def test_unparsable_form_is_rejected_with_a_reason(path, cookie, media_type, body, reason):
    status, page = answer(path, body, CONTENT_TYPE=media_type, HTTP_COOKIE=cookie)

    assert (status, reason in page) == (400, True)


@pytest.mark.parametrize(
    ("media_type", "megabytes", "status"),
    [("application/json", 2, 403), ("application/json", 4, 413), (f"{FILES}; boundary=x", 33, 413), ("", 4, 413)],
)
def test_oversized_body_is_rejected_unread(media_type, megabytes, status):
    class Unread(BytesIO):
        read = readline = None

    length = str(megabytes << 20)

    assert answer("/", CONTENT_TYPE=media_type, CONTENT_LENGTH=length, **{"wsgi.input": Unread()})[0] == status


# Caching and logging


@pytest.mark.parametrize("path", ["/", "/rounds/", "/knowledge/", "/harvests/", "/accounts/login/", "/no/such/page/"])
def test_pages_are_not_cached(researcher_client, path):
    assert "no-store" in researcher_client.get(path).headers["Cache-Control"]


def log_text_of(status_code: int) -> str:
    """Return the log text of a response caused by an exception."""
    try:
        raise PermissionError("This page is for researchers.")
    except PermissionError:
        record = logging.LogRecord("django.request", 30, "", 0, "Forbidden: /rounds/", (), sys.exc_info())
    record.status_code = status_code
    assert settings.without_traceback_of_refusals(record)
    return logging.Formatter().format(record)


def test_only_server_errors_are_logged_with_a_traceback():
    assert log_text_of(403) == "Forbidden: /rounds/"
    assert "Traceback" in log_text_of(500)
