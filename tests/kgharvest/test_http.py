"""What is refused before any page sees it; what caches keep and logs say."""

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
NO_TEXT = [FORM, f"{FILES}; boundary=x", "application/json", "text/html"]


def answer(path: str, body: bytes = b"a=b", **headers: str) -> tuple[int, str]:
    """Ask the server itself, as what comes before Django's handlers and leaves them is not seen by its test client."""
    environ = {"PATH_INFO": path, "REQUEST_METHOD": "POST", "wsgi.input": BytesIO(body)}
    environ |= {"CONTENT_LENGTH": str(len(body)), "QUERY_STRING": "q=%ff", **headers}
    setup_testing_defaults(environ)
    statuses = []
    response = application(environ, lambda status, *rest: statuses.append(status))
    page = b"".join(response)
    return int(statuses[0].partition(" ")[0]), page.decode()


@pytest.mark.parametrize("query", [{"q": "dog\x00"}, {"\x00": "dog"}, {"status": ["open", "\x00"]}])
def test_an_address_with_a_nul_is_refused(researcher_client, query):
    assert researcher_client.get("/rounds/", query).status_code == 400


@pytest.mark.parametrize("path", ["/reports/9223372036854775808/", f"/api/v1/harvests/{10**30}/", f"/rounds/{10**30}/"])
@pytest.mark.parametrize("media_type", [FORM, f"{FILES}; boundary=\xff"])
def test_numbers_that_no_database_gives_name_nothing(path, media_type):
    status, _ = answer(path, CONTENT_TYPE=media_type, HTTP_COOKIE=CSRF_COOKIE)

    assert status == (404 if media_type == FORM else 400)


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5_000])
def test_a_form_with_a_number_that_no_database_gives_is_no_bug(researcher_client, number):
    chosen = {"name": "pilot", "jobs": number}

    assert researcher_client.post("/rounds/new/", chosen).status_code in (200, 400)
    assert researcher_client.get("/relations/new/", {"copy": number}).status_code == 200
    assert researcher_client.get("/reports/compare/", {"a": number, "b": "paper"}).status_code in (200, 404)


@pytest.mark.parametrize("media_type", ["", FORM, f"{FORM}; charset=utf-8", "text/html; charset=utf-8"])
def test_an_address_with_too_many_fields_is_refused(media_type):
    fields = {"QUERY_STRING": "&" * 20_000, "CONTENT_TYPE": media_type}

    status, page = answer("/admin/login/", HTTP_COOKIE=CSRF_COOKIE, **fields)

    assert (status, "too many query parameters" in page) == (400, True)


def test_a_filter_with_a_nul_does_not_reach_the_database(researcher_client):
    page = researcher_client.post("/rounds/new/", {"action": "filter", "find": "dog\x00"})

    assert page.context["filters"]["find"] == "dog"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("media_type", NO_TEXT)
@pytest.mark.parametrize("charset", ["utf-16", "utf-7", "latin-1", "hex", "punycode", "idna", "undefined", "utf-8\x00"])
def test_another_charset_than_utf_8_is_refused(charset, media_type, method):
    status, sentence = answer("/", REQUEST_METHOD=method, CONTENT_TYPE=f"{media_type}; charset={charset}")

    assert (status, "Send the request in UTF-8" in sentence) == (400, True)


def test_a_form_that_says_it_is_in_utf_8_is_read():
    status, page = answer("/accounts/login/", CONTENT_TYPE=f"{FORM}; charset=UTF-8", HTTP_COOKIE=CSRF_COOKIE)

    assert (status, "CSRF" in page or "Form could not be submitted" in page) == (403, True)


@pytest.mark.parametrize(
    "headers",
    [{"CONTENT_TYPE": f"{FORM}; a*=nonsense'en'%ff"}, {"CONTENT_LENGTH": "many"}, {"CONTENT_LENGTH": "-1"}],
)
def test_headers_that_nobody_can_read_are_refused(headers):
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
def test_a_form_that_cannot_be_parsed_is_refused_with_a_sentence(path, cookie, media_type, body, reason):
    status, page = answer(path, body, CONTENT_TYPE=media_type, HTTP_COOKIE=cookie)

    assert (status, reason in page) == (400, True)


@pytest.mark.parametrize(
    ("media_type", "megabytes", "status"),
    [("application/json", 2, 403), ("application/json", 4, 413), (f"{FILES}; boundary=x", 33, 413), ("", 4, 413)],
)
def test_a_body_that_is_too_large_is_refused_unread(media_type, megabytes, status):
    class Unread(BytesIO):
        read = readline = None

    length = str(megabytes << 20)

    assert answer("/", CONTENT_TYPE=media_type, CONTENT_LENGTH=length, **{"wsgi.input": Unread()})[0] == status


# -- what is kept, and what is logged ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/rounds/", "/knowledge/", "/harvests/", "/accounts/login/", "/no/such/page/"])
def test_nothing_with_evidence_or_names_is_kept_by_caches(researcher_client, path):
    assert "no-store" in researcher_client.get(path).headers["Cache-Control"]


def logged(status_code: int) -> str:
    """Return what the log says of a response that an exception led to."""
    try:
        raise PermissionError("This page is for researchers.")
    except PermissionError:
        record = logging.LogRecord("django.request", 30, "", 0, "Forbidden: /rounds/", (), sys.exc_info())
    record.status_code = status_code
    assert settings.without_traceback_of_refusals(record)
    return logging.Formatter().format(record)


def test_only_failures_have_a_traceback_in_the_log():
    assert logged(403) == "Forbidden: /rounds/"
    assert "Traceback" in logged(500)
