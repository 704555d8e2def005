"""Settings of the whole product, taken from the environment.

With nothing set the *embedded default* runs on this machine alone: SQLite and Celery's filesystem broker under
`KGHARVEST_DATA_DIR`, a generated secret key, localhost only. As soon as one of DATABASE_URL, BROKER_URL, SECRET_KEY or
ALLOWED_HOSTS is set and DEBUG is not, this is *production*: it does not start without a secret and hosts, and expects a
proxy in front that speaks TLS and sets X-Forwarded-Proto.
"""

import logging
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import dj_database_url
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from kombu import Exchange, Queue

from kgharvest import VERSION

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(os.environ.get("KGHARVEST_DATA_DIR") or BASE_DIR / "var").resolve()


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


with data_folder_needed():
    DATA_DIR.mkdir(parents=True, exist_ok=True)


def flag(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in {"1", "true", "yes", "on"}


def words(name: str) -> list[str]:
    return [word.strip() for word in os.environ.get(name, "").split(",") if word.strip()]


def limit(name: str, n: int, window_s: int) -> tuple[int, int]:
    """Return attempts and the seconds they are counted in, "30/900" in the environment."""
    text = os.environ.get(name) or f"{n}/{window_s}"
    attempts, _, seconds = text.partition("/")
    if not (attempts.isdecimal() and seconds.isdecimal() and int(seconds)):
        raise ImproperlyConfigured(f"{name} is {text!r}; give attempts and seconds, as {n}/{window_s}.")
    return int(attempts), int(seconds)


def generated_secret_key(path: Path) -> str:
    """Return the key kept in `path`, made on first use; two processes that start at once agree on it."""
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


def sqlite(path: Path | str) -> dict:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {
            # A transaction takes the write lock when it begins: taken at the first write, it deadlocks two readers.
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA foreign_keys=ON;",
        },
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
    return parsed | {"OPTIONS": prepared | options, "DISABLE_SERVER_SIDE_CURSORS": is_lent}


# Below these, pages take models from local folders; commands take any.
MODEL_ROOTS = [Path(root) for root in os.environ.get("KGHARVEST_MODEL_ROOTS", "").split(os.pathsep) if root]
MODEL_ROOTS = MODEL_ROOTS or [DATA_DIR / "models"]

DEBUG = flag("DEBUG")
EMBEDDED = not any(os.environ.get(name) for name in ("DATABASE_URL", "BROKER_URL", "SECRET_KEY", "ALLOWED_HOSTS"))
PRODUCTION = not EMBEDDED and not DEBUG

SECRET_KEY = os.environ.get("SECRET_KEY", "")
ALLOWED_HOSTS = words("ALLOWED_HOSTS")
if PRODUCTION and not SECRET_KEY:
    raise ImproperlyConfigured("SECRET_KEY is not set; in production set it to 50 or more random characters.")
if PRODUCTION and not ALLOWED_HOSTS:
    raise ImproperlyConfigured("ALLOWED_HOSTS is not set; in production name the hosts this server answers for.")
if not SECRET_KEY:
    with data_folder_needed():
        SECRET_KEY = generated_secret_key(DATA_DIR / "secret_key")
ALLOWED_HOSTS = ALLOWED_HOSTS or ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "kgharvest",
    "annotation",
    "evaluation",
    "probing",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.forms",
    "django.contrib.messages",
    "django.contrib.sessions",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "axes",
    "csp",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "kgharvest.http.RefuseMalformed",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
    "kgharvest.http.store_nothing",
]

ROOT_URLCONF = "kgharvest.urls"
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"  # widgets of our own live among our templates
WSGI_APPLICATION = "kgharvest.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "kgharvest.access.roles",
            ],
        },
    }
]

DATABASE_URL = os.environ.get("DATABASE_URL", "")
DATABASES = {"default": database(DATABASE_URL) if DATABASE_URL else sqlite(DATA_DIR / "kgharvest.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

# Static files: hashed names need `collectstatic`, as a production deployment does; else they come from the apps.
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles" if PRODUCTION else None
WHITENOISE_USE_FINDERS = not PRODUCTION
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "kgharvest.http.HashedStaticFiles"
        if PRODUCTION
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# People
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_LOCKOUT_TEMPLATE = "registration/locked_out.html"
AXES_RESET_ON_SUCCESS = True
AXES_VERBOSE = False
AXES_CLIENT_IP_CALLABLE = "kgharvest.accounts.throttle.network_of"
# How many attempts in how many seconds, by what is tried (kgharvest.accounts.throttle).
LIMITS = {
    "wrong_links": limit("KGHARVEST_WRONG_LINKS", 30, 900),  # or codes: a class that mistypes behind one address
    "guests": limit("KGHARVEST_GUESTS", 30, 600),  # who join one round by name from one address
    "wrong_passwords": limit("KGHARVEST_WRONG_PASSWORDS", 50, 900),  # from one address, for whatever names
    "old_passwords": limit("KGHARVEST_OLD_PASSWORDS", 5, 900),  # of one account, when it changes its password
}
PROXY_COUNT = int(os.environ.get("PROXY_COUNT") or PRODUCTION)  # proxies of our own between browsers and this server

# Browsers
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000  # a launch may tick every relation there is
DATA_UPLOAD_MAX_MEMORY_SIZE = 3 << 20  # bytes of a form without its files, or of JSON
LARGEST_UPLOAD = 32 << 20  # bytes of a form with its files: three of bulk.file_reading.LARGEST_FILE
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = PRODUCTION
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if PRODUCTION else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = PRODUCTION
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if PRODUCTION else None
PORT = os.environ.get("PORT") or "8000"
# Where people reach this server, for links that a command prints.
BASE_URL = f"http://127.0.0.1:{PORT}"
if PRODUCTION:
    BASE_URL = f"https://{ALLOWED_HOSTS[0].lstrip('.')}"
CSRF_TRUSTED_ORIGINS = [f"https://{'*' * host.startswith('.')}{host}" for host in ALLOWED_HOSTS]


REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["kgharvest.access.IsResearcher"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.LimitOffsetPagination",
    "PAGE_SIZE": 100,
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "kgharvest.http.error_response",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "kgharvest",
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["kgharvest.access.IsResearcher"],
}

# What apps add to pages of apps to their right: functions of (request, subject), in the page's order (pages.panels)
PANELS = {
    "navigation": ["kgharvest.pages.home.navigation", "annotation.panels.navigation", "evaluation.panels.navigation"],
    "home_steps": ["kgharvest.pages.home.home_steps", "annotation.panels.home_steps", "evaluation.panels.home_steps"],
    "home_work": ["annotation.panels.home_work"],  # what an annotator can go on with
    "relation_harvests": ["evaluation.panels.compare_relation"],  # subject: a relation with several harvests
    "harvest_actions": ["evaluation.panels.compare_harvest"],  # subject: a harvest
    "tuple": ["annotation.panels.tuple_judgments"],  # subject: a knowledge tuple
    "round_actions": ["evaluation.panels.make_report"],  # subject: a round, for those who manage it
    "report_list_actions": ["probing.panels.probes"],
}
# What apps ask of apps to their left.
HOOKS = {
    # user -> kgharvest.knowledge.search.TupleVerdicts: what people judged about tuples, for search
    "tuple_verdicts": "annotation.panels.JudgedTuples",
    # job, `precision:0.8` -> kgharvest.harvests.cuts.ScoreCut that judgments give
    "cut_from_judgments": "evaluation.evidence.precision_cuts.score_cut",
    # (n_true, n_false, n_unjudgeable, n_tasks)s -> percent agreement and alpha, without intervals
    "agreement": "evaluation.panels.agreement",
    # n_hits, n -> a share with its Wilson interval
    "rate": "evaluation.statistics.rates.rate",
    # variance of each cell's accuracy, by relation, LM and setting -> what comparing them can find
    "planned_comparisons": "evaluation.reports.sections.sample_size.planned_comparisons",
    # n, population, how many times as wide -> statements of a stratum for an interval that is narrower
    "statements_to_shrink": "evaluation.statistics.sample_size.statements_to_shrink",
    # population and labels of the statements of each stratum, quorum -> an accuracy as in reports, or why there is none
    "cell_accuracy": "evaluation.panels.cell_accuracy",
}

# Jobs. The broker only wakes workers: what a job is and who works on it is in the database (kgharvest.jobs.ledger).
JOB_RUNNERS = {
    "harvest": "kgharvest.harvests.runner.run_harvest",
    "mark_sensitive": "kgharvest.knowledge.sensitive_words.mark_sensitive",
    "evaluate_scores": "evaluation.scores.score_jobs.run_score_job",
    "probe": "probing.probes.runner.run_probe",
}

# Short jobs with a queue of their own: until the tuples are marked, exports and rounds go by the old list of words.
# Every worker consumes both queues, in turns; one with `--queues urgent` has urgent jobs wait for no harvest.
URGENT_JOBS = ["mark_sensitive"]
URGENT_QUEUE = "urgent"

# What every worker does every few seconds, besides reaping: functions of the time.
PERIODIC_TASKS = ["annotation.rounds.services.close_due_rounds"]
JOB_LEASE_S = 30  # a running job whose worker is silent for so long counts as lost
JOB_STALE_AFTER_S = 30  # a message that no worker has taken for so long is sent again
JOB_REAP_EVERY_S = 5

CELERY_BROKER_URL = os.environ.get("BROKER_URL") or "filesystem://"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_DEFAULT_QUEUE = "celery"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_TIME_LIMIT = 24 * 3600
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# One child does the work, so that torch loads there and never in the process that forks; more with `--concurrency`.
CELERY_WORKER_CONCURRENCY = 1
QUEUE_ARGUMENTS = None
if CELERY_BROKER_URL.startswith("filesystem:"):
    BROKER_DIR = DATA_DIR / "broker"
    with data_folder_needed():
        for folder in ("messages", "control"):
            (BROKER_DIR / folder).mkdir(parents=True, exist_ok=True)
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(BROKER_DIR / "messages"),
        "data_folder_out": str(BROKER_DIR / "messages"),
        "control_folder": str(BROKER_DIR / "control"),
        "polling_interval": 0.2,
    }
elif CELERY_BROKER_URL.startswith("redis"):
    # Redis hands a message out again after visibility_timeout, so it must outlast the longest task.
    CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": CELERY_TASK_TIME_LIMIT + 3600}
else:
    # RabbitMQ ends a consumer that has not acknowledged for half an hour; it must outlast the longest task as well.
    patience_ms = 1000 * (CELERY_TASK_TIME_LIMIT + 3600)
    QUEUE_ARGUMENTS = {"x-queue-type": "quorum", "x-consumer-timeout": patience_ms}
CELERY_TASK_QUEUES = [
    Queue(name, Exchange(name), routing_key=name, queue_arguments=QUEUE_ARGUMENTS)
    for name in (URGENT_QUEUE, CELERY_TASK_DEFAULT_QUEUE)
]


def without_traceback_of_refusals(record: logging.LogRecord) -> bool:
    """Let the line of a response that refuses stand alone; only what failed (5xx) has a traceback worth reading."""
    if getattr(record, "status_code", 500) < 500:
        record.exc_info = None
    return True


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"untraced": {"()": "django.utils.log.CallbackFilter", "callback": without_traceback_of_refusals}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["untraced"]}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "django": {"handlers": ["console"], "level": "INFO", "propagate": False},
        "axes": {"level": "WARNING"},
        "kombu.connection": {"level": "ERROR"},  # it warns that the filesystem broker has no host name
    },
}
