"""Parsers of environment variables for settings.py. They raise ImproperlyConfigured for invalid values.

The argument `name` is the name of a variable. Default values are in settings.py.
"""

import os
import re
import secrets
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

PACKAGE_DIR = Path(__file__).resolve().parent
IS_CHECKOUT = not (PACKAGE_DIR / "templates").is_dir()  # only wheels contain templates inside the package
# Prefixes of commands in messages. RUN is the prefix of the commands `web` and `worker`.
PROGRAM, RUN = ("python manage.py", "./run") if IS_CHECKOUT else ("kgharvest", "kgharvest")

ROLES = ("owner", "researcher", "adjudicator", "viewer")


def command_names(request: object) -> dict[str, str]:
    """Context processor for the prefixes of commands in pages."""
    return {"PROGRAM": PROGRAM, "RUN": RUN}


@contextmanager
def data_folder_needed() -> Iterator[None]:
    """Convert an OSError about the data folder to ImproperlyConfigured."""
    try:
        yield
    except OSError as error:
        raise ImproperlyConfigured(
            f"Cannot use the data folder ({error.filename}: {error.strerror}). "
            "Set KGHARVEST_DATA_DIR to a writable folder."
        ) from error


def create_data_folder(folder: Path) -> Path:
    """Create the data folder, or a folder in it.

    It is created when it is first needed, not when the settings are imported.

    Only this user can access the created folders, because the SQLite file contains email addresses, sessions, and
    password hashes. Raises ImproperlyConfigured.
    """
    with data_folder_needed():
        for part in (*reversed(folder.parents), folder):
            part.mkdir(0o700, exist_ok=True)
    return folder


@dataclass(frozen=True)
class FolderOnDemand(os.PathLike[str]):
    """Path of a folder in the data folder that is created when the path is used."""

    path: Path

    def __fspath__(self) -> str:
        return str(create_data_folder(self.path))


def check_installed(package: str, extra: str, setting: str) -> None:
    """Raise ImproperlyConfigured unless the optional `package`, required by the value of `setting`, is installed."""
    if find_spec(package) is None:
        raise ImproperlyConfigured(
            f'{setting} requires the package {package}, which is not installed. Run: pip install "kgharvest[{extra}]"'
        )


def flag(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in {"1", "true", "yes", "on"}


def words(name: str) -> list[str]:
    return [word.strip() for word in os.environ.get(name, "").split(",") if word.strip()]


HSTS = re.compile(r"max-age=([0-9]{1,9})((?:; ?(?:includeSubDomains|preload))*)")


def hsts(name: str) -> tuple[int, bool, bool]:
    """Return the seconds, includeSubDomains, and preload of a Strict-Transport-Security header.

    The number of seconds is 0 if the variable is not set.
    """
    text = os.environ.get(name, "").strip()
    match = HSTS.fullmatch(text or "max-age=0")
    if match is None:
        raise ImproperlyConfigured(
            f"{name} is {text!r}. Set it to a Strict-Transport-Security header, for example max-age=31536000."
        )
    return int(match[1]), "includeSubDomains" in match[2], "preload" in match[2]


def limit(name: str, n: int, window_s: int) -> tuple[int, int]:
    """Parse a rate limit such as "30/900" into the number of attempts and the window in seconds."""
    text = os.environ.get(name) or f"{n}/{window_s}"
    attempts, _, seconds = text.partition("/")
    if not (attempts.isdecimal() and seconds.isdecimal() and int(seconds)):
        raise ImproperlyConfigured(f"{name} is {text!r}. Set attempts and seconds, for example {n}/{window_s}.")
    return int(attempts), int(seconds)


def base_url(text: str) -> SplitResult:
    """Split KGHARVEST_BASE_URL into its parts. The path has no trailing slash.

    All parts are empty if the variable is not set.
    """
    parts = urlsplit(text.strip().rstrip("/"))
    try:
        is_address = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or True)
    except ValueError:  # the port is invalid
        is_address = False
    if text and (not is_address or parts.username or parts.query or parts.fragment):
        raise ImproperlyConfigured(
            f"KGHARVEST_BASE_URL is {text!r}. Set the URL of the home page, for example https://host.example.org:8443/kg."
        )
    return parts


def mail(address: str) -> dict:
    """Return Django's email settings for `smtp://user:password@host:587` (STARTTLS), `smtps://` (TLS), or `console:`.

    `smtp://host:25?tls=0` sends in plain text, for example to a local relay.
    """
    parts = urlsplit(address)
    if parts.scheme == "console":
        return {"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend"}
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
        raise ImproperlyConfigured(
            f"EMAIL_URL starts with {parts.scheme!r}. Use smtp://user:password@host:587 or smtps://user:password@host."
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
    """Parse "lab-a=birds:researcher,lab-b=birds:viewer" into (group, project slug, role) tuples."""
    entries = [re.fullmatch(r"(.+)=([-\w]+):(\w+)", entry) for entry in words(name)]
    invalid = [entry for entry, match in zip(words(name), entries, strict=True) if not match or match[3] not in ROLES]
    if invalid:
        raise ImproperlyConfigured(
            f"{name} contains {invalid[0]!r}. Use group=project:role with one of the roles {', '.join(ROLES)}."
        )
    return [(match[1], match[2], match[3]) for match in entries if match]


def openid() -> dict | None:
    """Return the configuration of the OpenID provider, or None if it is not set."""
    issuer, client_id = (os.environ.get(f"KGHARVEST_OIDC_{name}", "").strip() for name in ("ISSUER", "CLIENT_ID"))
    if not issuer:
        return None
    host = urlsplit(issuer)
    if not client_id or (host.scheme != "https" and host.hostname not in {"localhost", "127.0.0.1", "::1"}):
        raise ImproperlyConfigured(
            f"KGHARVEST_OIDC_ISSUER is {issuer!r}. Set it to the https URL of the provider, and set "
            "KGHARVEST_OIDC_CLIENT_ID to the client id."
        )
    return {
        "issuer": issuer,
        "client_id": client_id,
        "client_secret": os.environ.get("KGHARVEST_OIDC_CLIENT_SECRET", ""),
        "name": os.environ.get("KGHARVEST_OIDC_NAME") or host.hostname,  # label of the login button
        "scope": os.environ.get("KGHARVEST_OIDC_SCOPE") or "openid profile email",
        "groups_claim": os.environ.get("KGHARVEST_OIDC_GROUPS_CLAIM") or "groups",
        "groups": group_roles("KGHARVEST_OIDC_GROUPS"),
    }


def networks(name: str) -> list[IPv4Network | IPv6Network]:
    try:
        return [ip_network(text) for text in words(name)]
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}. Use networks such as 10.0.0.0/8,127.0.0.1/32.") from None


def ports(name: str, default: list[int]) -> list[int]:
    texts = words(name)
    if not all(text.isdecimal() and 0 < int(text) < 65536 for text in texts):
        raise ImproperlyConfigured(f"{name} is {','.join(texts)!r}. Use port numbers, for example 80,443,8443.")
    return [int(text) for text in texts] or default


def destinations(name: str) -> list[str]:
    """Parse a list of absolute paths, https URLs, and addresses such as mailto:ada@example.org."""
    entries = words(name)
    if wrong := [entry for entry in entries if not re.fullmatch(r"/\S.*|https?://\S+|mailto:\S+@\S+", entry)]:
        raise ImproperlyConfigured(
            f"{name} contains {wrong[0]!r}. Use absolute paths, https URLs, and mailto:ADDRESS, separated by commas."
        )
    return entries


def lm_servers(name: str) -> dict[str, str]:
    """Parse "http://a/v1 https://b/v1=NAME" into a mapping from server URLs to the variables with their API keys."""
    entries = [
        re.fullmatch(r"(https?://[^\s=]+)(?:=([A-Za-z_]\w*))?", word) for word in os.environ.get(name, "").split()
    ]
    if not all(entries):
        raise ImproperlyConfigured(
            f"{name} contains an invalid entry. Use URLs such as http://host:8000/v1. If a server needs a key, append "
            "= and the name of its variable: https://host/v1=KGHARVEST_LM_SERVER_API_KEY."
        )
    servers = {entry[1].rstrip("/"): entry[2] or "" for entry in entries if entry}
    if os.environ.get("KGHARVEST_LM_SERVER_API_KEY") and "KGHARVEST_LM_SERVER_API_KEY" not in servers.values():
        raise ImproperlyConfigured(
            "KGHARVEST_LM_SERVER_API_KEY is set but not assigned to a server. Append "
            f"=KGHARVEST_LM_SERVER_API_KEY to the URL of the server in {name}."
        )
    return servers


def generated_secret_key(path: Path) -> str:
    """Return the secret key in the file `path`. The file is created on first use.

    Processes that start simultaneously use the same key.
    """
    with data_folder_needed():
        if not path.exists():
            handle, draft = tempfile.mkstemp(dir=create_data_folder(path.parent))  # readable only by its owner
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_urlsafe(64))
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                os.unlink(draft)
        return path.read_text()


def check_not_restoring(path: Path) -> None:
    """Raise ImproperlyConfigured if a restore was interrupted before it installed the key in `path`."""
    if restoring_key(path).exists() and sys.argv[1:2] != ["restore"]:
        raise ImproperlyConfigured(
            f"A restore was interrupted ({restoring_key(path)}), so database and secret key may not match. "
            f"Restore the backup again: {PROGRAM} restore FILE --replace."
        )


def restoring_key(path: Path) -> Path:
    """Return the path under which kgharvest.operations.backup stores the backup's key during a restore."""
    return path.with_name(f"{path.name}.restoring")


def sqlite(path: Path | str) -> dict:
    return {
        "ENGINE": "kgharvest.sqlite",  # Django's backend, extended by a queue of writers
        "NAME": path,
        "CONN_MAX_AGE": 600,  # seconds; opening the file takes as long as a request
        "OPTIONS": {
            # Lock at the start of a transaction. If two readers locked at their first write, they would deadlock.
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA foreign_keys=ON;",
        },
    }


def broker_tls(url: str) -> dict | None:
    """Return options that verify the broker's certificate and hostname, which kombu does not do by default.

    None without TLS.

    Options in a Redis URL, such as `?ssl_cert_reqs=none`, take precedence.
    """
    scheme = url.partition(":")[0]
    if scheme == "amqps":
        return {"server_hostname": None}  # None stands for the host in the URL
    if scheme == "rediss":
        return {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    return None


S3_OPTIONS = {"endpoint": "endpoint_url", "region": "region_name", "profile": "session_profile"}
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def file_storage(name: str, folder: Path) -> dict:
    """Return Django's settings for file storage in `folder` or `s3://bucket/prefix?endpoint=...&region=...`."""
    address = os.environ.get(name, "").strip()
    if not address:
        return {"BACKEND": "kgharvest.operations.files.DataFolder", "OPTIONS": {"location": folder}}
    example = "Use s3://bucket/prefix?endpoint=https://host:port&region=name."
    try:
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        endpoint = urlsplit(options.get("endpoint", "https://s3"))
        is_address = endpoint.scheme in {"http", "https"} and endpoint.hostname and (endpoint.port or True)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is invalid ({error}). {example}") from None
    if parts.scheme != "s3":
        raise ImproperlyConfigured(f"{name} starts with {parts.scheme!r}. {example}")
    if "@" in parts.netloc:
        raise ImproperlyConfigured(
            f"{name} contains credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead."
        )
    prefix = unquote(parts.path).strip("/")
    if not BUCKET.fullmatch(parts.netloc):
        raise ImproperlyConfigured(f"{name} has the invalid bucket name {parts.netloc!r}. {example}")
    if parts.fragment or {"", ".", ".."} & set(prefix.split("/") if prefix else ()):
        raise ImproperlyConfigured(f"{name} has the invalid prefix {parts.path!r}. {example}")
    if unknown := sorted(options.keys() - S3_OPTIONS.keys()):
        raise ImproperlyConfigured(
            f"{name} has the unknown option {unknown[0]!r}. Valid options: {', '.join(S3_OPTIONS)}."
        )
    if not is_address or endpoint.username or endpoint.query or endpoint.fragment or not all(options.values()):
        raise ImproperlyConfigured(f"{name} has an invalid endpoint or an option without a value. {example}")
    for package in ("boto3", "storages"):
        check_installed(package, "s3", name)
    arguments = {S3_OPTIONS[option]: value for option, value in options.items()}
    return {
        "BACKEND": "kgharvest.operations.s3_files.S3Files",
        "OPTIONS": {"bucket_name": parts.netloc, "location": prefix, **arguments},
    }


# Timeouts for unreachable hosts at the client, and at the server, which then releases locks. tcp_user_timeout is in
# milliseconds; all others are in seconds.
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

POOL_MODES = ("session", "transaction")  # as PgBouncer calls them


def database(url: str) -> dict:
    """Return Django's settings for `sqlite:///path` or `postgres://user:password@host:port/name?option=value`.

    Valid options are those of libpq, and `pool_mode`. Poolers in transaction mode keep neither prepared statements nor
    cursors between transactions.
    """
    scheme = url.partition(":")[0]
    if scheme not in {"sqlite", "postgres", "postgresql"}:
        raise ImproperlyConfigured(
            f"DATABASE_URL starts with {scheme!r}. Use sqlite:///path or postgres://user:password@host/name."
        )
    try:
        parsed = dj_database_url.parse(url, conn_max_age=600, conn_health_checks=True)
    except ValueError as error:
        raise ImproperlyConfigured(f"DATABASE_URL is invalid ({error}).") from None
    if scheme == "sqlite":
        return sqlite(parsed["NAME"])
    check_installed("psycopg", "server", "DATABASE_URL")
    options = parsed.get("OPTIONS", {})
    pool_mode = options.pop("pool_mode", "session")
    if pool_mode not in POOL_MODES:
        raise ImproperlyConfigured(f"pool_mode in DATABASE_URL is {pool_mode!r}. Use {' or '.join(POOL_MODES)}.")
    is_lent = pool_mode == "transaction"
    # Without prepared statements, PostgreSQL needs 50 % more time per request for parsing and planning.
    prepared = {"server_side_binding": True, "prepare_threshold": None if is_lent else 5}
    silence = SILENCE if is_lent else SILENCE | SILENCE_AT_THE_SERVER  # poolers do not accept `options` from clients
    return parsed | {"OPTIONS": prepared | silence | options, "DISABLE_SERVER_SIDE_CURSORS": is_lent}
