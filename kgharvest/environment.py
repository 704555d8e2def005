"""What the environment says, read by settings.py: each function refuses what it cannot use in one sentence.

`name` is that of a variable. Nothing here knows a default of the product.
"""

from __future__ import annotations

import os
import re
import secrets
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

ROLES = ("owner", "researcher", "adjudicator", "viewer")


@contextmanager
def data_folder_needed() -> Iterator[None]:
    """Say in one sentence what is wrong with the data folder."""
    try:
        yield
    except OSError as error:
        raise ImproperlyConfigured(
            f"The data folder cannot be used ({error.filename}: {error.strerror}); "
            "let KGHARVEST_DATA_DIR name one that can be written."
        ) from error


def flag(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in {"1", "true", "yes", "on"}


def words(name: str) -> list[str]:
    return [word.strip() for word in os.environ.get(name, "").split(",") if word.strip()]


HSTS = re.compile(r"max-age=([0-9]{1,9})((?:; ?(?:includeSubDomains|preload))*)")


def hsts(name: str) -> tuple[int, bool, bool]:
    """Return seconds, includeSubDomains, and preload of a Strict-Transport-Security header; 0 seconds if not set."""
    text = os.environ.get(name, "").strip()
    match = HSTS.fullmatch(text or "max-age=0")
    if match is None:
        raise ImproperlyConfigured(
            f"{name} is {text!r}. Set it to a Strict-Transport-Security header, for example max-age=31536000."
        )
    return int(match[1]), "includeSubDomains" in match[2], "preload" in match[2]


def limit(name: str, n: int, window_s: int) -> tuple[int, int]:
    """Return attempts and the seconds they are counted in, "30/900" in the environment."""
    text = os.environ.get(name) or f"{n}/{window_s}"
    attempts, _, seconds = text.partition("/")
    if not (attempts.isdecimal() and seconds.isdecimal() and int(seconds)):
        raise ImproperlyConfigured(f"{name} is {text!r}; give attempts and seconds, as {n}/{window_s}.")
    return int(attempts), int(seconds)


def base_url(text: str) -> SplitResult:
    """Return KGHARVEST_BASE_URL taken apart, its path without a slash at the end; all parts empty if it is not set."""
    parts = urlsplit(text.strip().rstrip("/"))
    try:
        is_address = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or True)
    except ValueError:  # a port that is no number
        is_address = False
    if text and (not is_address or parts.username or parts.query or parts.fragment):
        raise ImproperlyConfigured(
            f"KGHARVEST_BASE_URL is {text!r}; give the address of the start page, as https://host.example.org:8443/kg."
        )
    return parts


def mail(address: str) -> dict:
    """Return Django's settings for `smtp://user:password@host:587` (STARTTLS), `smtps://` (TLS) or `console:`.

    `smtp://host:25?tls=0` sends in plain text, as to a relay on the same machine.
    """
    parts = urlsplit(address)
    if parts.scheme == "console":
        return {"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend"}
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
        raise ImproperlyConfigured(
            f"EMAIL_URL starts with {parts.scheme!r}; use smtp://user:password@host:587 or smtps://user:password@host."
        )
    return {
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or (465 if parts.scheme == "smtps" else 587),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp" and parts.query != "tls=0",
        "EMAIL_TIMEOUT": 20,
    }


def group_roles(name: str) -> list[tuple[str, str, str]]:
    """Return (group, project's slug, role) of each entry, "lab-a=birds:researcher,lab-b=birds:viewer"."""
    entries = [re.fullmatch(r"(.+)=([-\w]+):(\w+)", entry) for entry in words(name)]
    wrong = [entry for entry, match in zip(words(name), entries, strict=True) if not match or match[3] not in ROLES]
    if wrong:
        raise ImproperlyConfigured(
            f"{name} has {wrong[0]!r}; write group=project:role, the role one of {', '.join(ROLES)}."
        )
    return [(match[1], match[2], match[3]) for match in entries if match]


def openid() -> dict | None:
    """Return what is known of the OpenID provider, or None if none is named."""
    issuer, client_id = (os.environ.get(f"KGHARVEST_OIDC_{name}", "").strip() for name in ("ISSUER", "CLIENT_ID"))
    if not issuer:
        return None
    host = urlsplit(issuer)
    if not client_id or (host.scheme != "https" and host.hostname not in {"localhost", "127.0.0.1", "::1"}):
        raise ImproperlyConfigured(
            f"KGHARVEST_OIDC_ISSUER is {issuer!r}; name the provider by its https address, and this server there "
            "by KGHARVEST_OIDC_CLIENT_ID."
        )
    return {
        "issuer": issuer,
        "client_id": client_id,
        "client_secret": os.environ.get("KGHARVEST_OIDC_CLIENT_SECRET", ""),
        "name": os.environ.get("KGHARVEST_OIDC_NAME") or host.hostname,  # on the button
        "scope": os.environ.get("KGHARVEST_OIDC_SCOPE") or "openid profile email",
        "groups_claim": os.environ.get("KGHARVEST_OIDC_GROUPS_CLAIM") or "groups",
        "groups": group_roles("KGHARVEST_OIDC_GROUPS"),
    }


def networks(name: str) -> list[IPv4Network | IPv6Network]:
    try:
        return [ip_network(text) for text in words(name)]
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}; give networks as 10.0.0.0/8,127.0.0.1/32.") from None


def lm_servers(name: str) -> dict[str, str]:
    """Return, by address, the variable with the key of each server: "http://a/v1 https://b/v1=NAME"; "" for none."""
    entries = [
        re.fullmatch(r"(https?://[^\s=]+)(?:=([A-Za-z_]\w*))?", word) for word in os.environ.get(name, "").split()
    ]
    if not all(entries):
        raise ImproperlyConfigured(
            f"{name} has an entry that is no address; give addresses as http://host:8000/v1, and where a server wants "
            "a key, behind = the name of the variable that holds it: https://host/v1=KGHARVEST_LM_SERVER_API_KEY."
        )
    servers = {entry[1].rstrip("/"): entry[2] or "" for entry in entries if entry}
    if os.environ.get("KGHARVEST_LM_SERVER_API_KEY") and "KGHARVEST_LM_SERVER_API_KEY" not in servers.values():
        raise ImproperlyConfigured(
            "KGHARVEST_LM_SERVER_API_KEY is set, and no server is said to be the one that it belongs to; write "
            f"=KGHARVEST_LM_SERVER_API_KEY behind the address of that server in {name}."
        )
    return servers


def generated_secret_key(path: Path) -> str:
    """Return the key kept in `path`, made on first use; two processes that start at once agree on it."""
    if restoring_key(path).exists() and sys.argv[1:2] != ["restore"]:
        raise ImproperlyConfigured(
            f"A restore was interrupted ({restoring_key(path)}), so database and secret key may not belong together; "
            "restore the backup once more: python manage.py restore FILE --replace."
        )
    if not path.exists():
        handle, draft = tempfile.mkstemp(dir=path.parent)  # mkstemp makes it readable by its owner only
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(64))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
    return path.read_text()


def restoring_key(path: Path) -> Path:
    """Return where the key of a backup is while the database is being restored (kgharvest.operations.backup)."""
    return path.with_name(f"{path.name}.restoring")


def sqlite(path: Path | str) -> dict:
    return {
        "ENGINE": "kgharvest.sqlite",  # Django's, with a queue of writers
        "NAME": path,
        "CONN_MAX_AGE": 600,  # seconds: to open the file anew costs as much as an answer
        "OPTIONS": {
            # A transaction takes the write lock when it begins: taken at the first write, it deadlocks two readers.
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA foreign_keys=ON;",
        },
    }


def broker_tls(url: str) -> dict | None:
    """Return what has a broker prove its name by a certificate, as kombu would not ask of it; None without TLS.

    `?ssl_cert_reqs=none` and the like in the address of a Redis take precedence.
    """
    scheme = url.partition(":")[0]
    if scheme == "amqps":
        return {"server_hostname": None}  # None: the host of the address
    if scheme == "rediss":
        return {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    return None


S3_OPTIONS = {"endpoint": "endpoint_url", "region": "region_name", "profile": "session_profile"}
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def file_storage(name: str, folder: Path) -> dict:
    """Return Django's settings of the storage of files: `folder`, or `s3://bucket/prefix?endpoint=...&region=...`."""
    address = os.environ.get(name, "").strip()
    if not address:
        return {"BACKEND": "kgharvest.operations.files.DataFolder", "OPTIONS": {"location": folder}}
    example = "give s3://bucket/prefix?endpoint=https://host:port&region=name."
    try:
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        endpoint = urlsplit(options.get("endpoint", "https://s3"))
        is_address = endpoint.scheme in {"http", "https"} and endpoint.hostname and (endpoint.port or True)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} cannot be read ({error}); {example}") from None
    if parts.scheme != "s3":
        raise ImproperlyConfigured(f"{name} starts with {parts.scheme!r}; {example}")
    if "@" in parts.netloc:
        raise ImproperlyConfigured(
            f"{name} names credentials; leave them out and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    prefix = unquote(parts.path).strip("/")
    if not BUCKET.fullmatch(parts.netloc):
        raise ImproperlyConfigured(f"{name} names the bucket {parts.netloc!r}, which none can be called; {example}")
    if parts.fragment or {"", ".", ".."} & set(prefix.split("/") if prefix else ()):
        raise ImproperlyConfigured(f"{name} has a prefix that is no path ({parts.path!r}); {example}")
    if unknown := sorted(options.keys() - S3_OPTIONS.keys()):
        raise ImproperlyConfigured(f"{name} has the option {unknown[0]!r}; there are {', '.join(S3_OPTIONS)}.")
    if not is_address or endpoint.username or endpoint.query or endpoint.fragment or not all(options.values()):
        raise ImproperlyConfigured(f"{name} has no address as its endpoint, or an option without a value; {example}")
    named = {S3_OPTIONS[option]: value for option, value in options.items()}
    return {
        "BACKEND": "kgharvest.operations.s3_files.S3Files",
        "OPTIONS": {"bucket_name": parts.netloc, "location": prefix, **named},
    }


# A host that is gone says nothing: after so long its connections are given up, on this side and, for the locks that
# they hold there, by the server. Milliseconds where libpq and PostgreSQL want them, else seconds.
SILENCE = {
    "connect_timeout": 5,
    "tcp_user_timeout": 8_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
SILENCE_AT_THE_SERVER = {
    "options": "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3",
}

POOL_MODES = ("session", "transaction")  # PgBouncer's words


def database(url: str) -> dict:
    """Return Django's settings for `sqlite:///path` or `postgres://user:password@host:port/name?option=value`.

    The options are libpq's, and `pool_mode` of our own: a pooler that lends a connection for one transaction keeps
    neither prepared statements nor cursors between them.
    """
    scheme = url.partition(":")[0]
    if scheme not in {"sqlite", "postgres", "postgresql"}:
        raise ImproperlyConfigured(
            f"DATABASE_URL starts with {scheme!r}; use sqlite:///path or postgres://user:password@host/name."
        )
    try:
        parsed = dj_database_url.parse(url, conn_max_age=600, conn_health_checks=True)
    except ValueError as error:
        raise ImproperlyConfigured(f"DATABASE_URL cannot be read ({error}).") from None
    if scheme == "sqlite":
        return sqlite(parsed["NAME"])
    options = parsed.get("OPTIONS", {})
    pool_mode = options.pop("pool_mode", "session")
    if pool_mode not in POOL_MODES:
        raise ImproperlyConfigured(f"pool_mode in DATABASE_URL is {pool_mode!r}; use {' or '.join(POOL_MODES)}.")
    is_lent = pool_mode == "transaction"
    # Parsed and planned anew each time, the statements of an answer cost PostgreSQL half as much again.
    prepared = {"server_side_binding": True, "prepare_threshold": None if is_lent else 5}
    silence = SILENCE if is_lent else SILENCE | SILENCE_AT_THE_SERVER  # poolers take no options of one client
    return parsed | {"OPTIONS": prepared | silence | options, "DISABLE_SERVER_SIDE_CURSORS": is_lent}
