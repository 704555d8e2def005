"""Settings from environment variables. Each test starts a separate Python process."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kgharvest.environment import SILENCE, SILENCE_AT_THE_SERVER
from tests.programs import run_program

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = {
    "DATABASE_URL": "postgres://kg:p%40ss@db.example.org:5433/harvest?sslmode=require",
    "BROKER_URL": "amqp://broker.example.org//",
    "SECRET_KEY": "long-and-random-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGH",
    "ALLOWED_HOSTS": "kg.example.org, .lab.example.org",
}
VARIABLES = [
    *PRODUCTION,
    "KGHARVEST_BASE_URL",
    "KGHARVEST_HSTS",
    "DEBUG",
    "DJANGO_ALLOW_ASYNC_UNSAFE",
]  # the browser tests set the last one


def run_python(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment = {**clean, "KGHARVEST_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "kgharvest.settings"}
    environment |= variables
    if arguments[0] == "manage.py":
        return run_program([*arguments], environment)
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


def settings_with(tmp_path: Path, *names: str, **variables: str) -> dict:
    code = (
        "import json; from django.conf import settings as s; "
        f"print(json.dumps({{name: getattr(s, name) for name in {names!r}}}, default=str))"
    )
    done = run_python(tmp_path, "-c", code, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_created_data_folder_is_private(tmp_path):
    folder = tmp_path / "labs" / "var"

    settings_with(folder, "SECRET_KEY")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["secret_key"]


@pytest.mark.parametrize(
    "command", [["--version"], ["help"], ["check"], ["makemigrations", "--check"], ["migrate", "--check"]]
)
def test_commands_without_data_create_nothing(tmp_path, command):
    done = run_python(tmp_path / "var", "manage.py", *command)

    assert done.returncode == int(command[0] == "migrate"), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_processes_that_start_simultaneously_use_the_same_secret_key(tmp_path):
    code = "from django.conf import settings; print(settings.SECRET_KEY)"
    environment = {
        **os.environ,
        "KGHARVEST_DATA_DIR": str(tmp_path / "var"),
        "DJANGO_SETTINGS_MODULE": "kgharvest.settings",
    }
    start = [sys.executable, "-c", code]
    processes = [subprocess.Popen(start, cwd=ROOT, env=environment, stdout=subprocess.PIPE) for _ in range(4)]

    keys = {process.communicate()[0] for process in processes}

    assert len(keys) == 1
    assert keys == {(tmp_path / "var" / "secret_key").read_bytes() + b"\n"}


@pytest.mark.parametrize(
    ("package", "variables", "extra"),
    [
        ("psycopg", {"DATABASE_URL": PRODUCTION["DATABASE_URL"], "DEBUG": "1"}, "server"),
        ("redis", {"BROKER_URL": "redis://localhost/1", "DEBUG": "1"}, "server"),
        ("storages", {"KGHARVEST_FILES": "s3://bucket/prefix"}, "s3"),
    ],
)
def test_error_names_the_extra_of_a_missing_package(tmp_path, package, variables, extra):
    code = f"import sys; sys.modules[{package!r}] = None; from django.conf import settings; settings.DEBUG"

    done = run_python(tmp_path, "-c", code, **variables)

    assert done.returncode == 1
    assert f'pip install "kgharvest[{extra}]"' in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, [0, False, False]),
        ("max-age=31536000", [31536000, False, False]),
        ("max-age=31536000; includeSubDomains; preload", [31536000, True, True]),
    ],
)
def test_strict_transport_security_is_sent_only_as_configured(tmp_path, header, expected):
    names = ("SECURE_HSTS_SECONDS", "SECURE_HSTS_INCLUDE_SUBDOMAINS", "SECURE_HSTS_PRELOAD")
    variables = PRODUCTION | ({"KGHARVEST_HSTS": header} if header else {})

    assert list(settings_with(tmp_path, *names, **variables).values()) == expected


def test_malformed_strict_transport_security_header_is_rejected(tmp_path):
    done = run_python(tmp_path, "manage.py", "check", **PRODUCTION, KGHARVEST_HSTS="yes")

    assert done.returncode == 1
    assert "KGHARVEST_HSTS is 'yes'" in done.stderr


def test_default_settings_serve_only_the_local_machine(tmp_path):
    names = ("ALLOWED_HOSTS", "DEBUG", "DATABASES", "CELERY_BROKER_URL", "SESSION_COOKIE_SECURE", "SECRET_KEY")
    values = settings_with(tmp_path, *names)

    assert values["ALLOWED_HOSTS"] == ["localhost", "127.0.0.1", "[::1]"]
    assert values["DEBUG"] is False
    assert values["DATABASES"]["default"]["NAME"] == str(tmp_path / "kgharvest.sqlite3")
    assert values["CELERY_BROKER_URL"] == "filesystem://"
    assert values["SESSION_COOKIE_SECURE"] is False


def test_generated_secret_key_is_persistent_and_private(tmp_path):
    first = settings_with(tmp_path, "SECRET_KEY")
    again = settings_with(tmp_path, "SECRET_KEY")

    assert first == again
    assert len(first["SECRET_KEY"]) >= 50
    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o600


def test_postgres_url_is_parsed(tmp_path):
    database = settings_with(tmp_path, "DATABASES", **PRODUCTION)["DATABASES"]["default"]

    assert {name: database[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")} == {
        "NAME": "harvest",
        "USER": "kg",
        "PASSWORD": "p@ss",
        "HOST": "db.example.org",
        "PORT": 5433,
        "OPTIONS": {
            "server_side_binding": True,
            "prepare_threshold": 5,
            "sslmode": "require",
            **SILENCE,
            **SILENCE_AT_THE_SERVER,
        },
    }


def test_transaction_pooling_disables_session_state(tmp_path):
    url = PRODUCTION["DATABASE_URL"] + "&pool_mode=transaction"

    database = settings_with(tmp_path, "DATABASES", **{**PRODUCTION, "DATABASE_URL": url})["DATABASES"]["default"]

    assert database["OPTIONS"] == {
        "server_side_binding": True,
        "prepare_threshold": None,
        "sslmode": "require",
        **SILENCE,
    }
    assert database["DISABLE_SERVER_SIDE_CURSORS"] is True


def test_an_unknown_pool_mode_is_refused(tmp_path):
    url = PRODUCTION["DATABASE_URL"] + "&pool_mode=transactions"

    done = run_python(tmp_path, "manage.py", "check", **{**PRODUCTION, "DATABASE_URL": url})

    assert "pool_mode in DATABASE_URL is 'transactions'. Use session or transaction." in done.stderr


@pytest.mark.parametrize(("url", "name"), [("sqlite:////tmp/a.sqlite3", "/tmp/a.sqlite3"), ("sqlite:///b.db", "b.db")])
def test_a_sqlite_url_names_a_file(tmp_path, url, name):
    values = settings_with(tmp_path, "DATABASES", DATABASE_URL=url, DEBUG="1")

    assert values["DATABASES"]["default"]["NAME"] == name


@pytest.mark.parametrize("missing", ["SECRET_KEY", "ALLOWED_HOSTS"])
def test_production_does_not_start_without_a_secret_and_hosts(tmp_path, missing):
    variables = {name: value for name, value in PRODUCTION.items() if name != missing}

    done = run_python(tmp_path, "manage.py", "check", **variables)

    assert done.returncode != 0
    assert f"{missing} is not set. In production" in done.stderr


def test_an_unknown_database_is_refused(tmp_path):
    done = run_python(tmp_path, "manage.py", "check", **{**PRODUCTION, "DATABASE_URL": "mysql://x/y"})

    assert "DATABASE_URL starts with 'mysql'. Use sqlite:///path or postgres://" in done.stderr


def test_production_passes_djangos_deployment_checks(tmp_path):
    done = run_python(tmp_path, "manage.py", "check", "--deploy", "--fail-level", "WARNING", **PRODUCTION)

    assert done.returncode == 0, done.stderr
    assert "no issues (1 silenced)" in done.stdout  # Strict-Transport-Security is off by default


@pytest.mark.django_db
def test_pages_forbid_inline_code_and_foreign_frames(client):
    policy = client.get("/accounts/login/")["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.django_db
def test_password_guessing_is_throttled(client, settings):
    settings.LIMITS |= {"wrong_passwords_of_name": (2, 900)}  # each guess costs a password hash
    for _ in range(3):
        response = client.post("/accounts/login/", {"username": "someone", "password": "guess"})

    assert response.status_code == 429
    assert "Wait 15 minutes" in response.content.decode()


def test_base_url_sets_links_cookies_and_static_files(tmp_path):
    names = (
        "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "FORCE_SCRIPT_NAME", "ORIGIN", "STATIC_URL", "SESSION_COOKIE_PATH",
        "CSRF_COOKIE_PATH",
        "SESSION_COOKIE_SECURE",
    )  # fmt: skip
    address = "https://kg.example.org:8443/lab/kg/"

    values = settings_with(tmp_path, *names, KGHARVEST_BASE_URL=address, SECRET_KEY=PRODUCTION["SECRET_KEY"])

    assert values == {
        "ALLOWED_HOSTS": ["kg.example.org"],
        "CSRF_TRUSTED_ORIGINS": ["https://kg.example.org", "https://kg.example.org:8443"],
        "FORCE_SCRIPT_NAME": "/lab/kg",
        "ORIGIN": "https://kg.example.org:8443",
        "SESSION_COOKIE_PATH": "/lab/kg/",
        "CSRF_COOKIE_PATH": "/lab/kg/",
        "STATIC_URL": "/lab/kg/static/",
        "SESSION_COOKIE_SECURE": True,
    }


@pytest.mark.parametrize(
    "address", ["kg.example.org/kg", "ftp://kg.example.org", "https://kg.example.org:port/", "https://a/?b"]
)
def test_invalid_base_url_is_rejected(tmp_path, address):
    done = run_python(tmp_path, "manage.py", "check", KGHARVEST_BASE_URL=address)

    assert f"KGHARVEST_BASE_URL is '{address}'. Set the URL of the home page, for example https://host" in done.stderr


def test_production_requires_an_https_base_url(tmp_path):
    done = run_python(tmp_path, "manage.py", "check", **{**PRODUCTION, "KGHARVEST_BASE_URL": "http://kg.example.org"})

    assert "KGHARVEST_BASE_URL is not an https URL" in done.stderr
