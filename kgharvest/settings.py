"""Settings of the whole product, taken from the environment.

With nothing set the *embedded default* runs on this machine alone: SQLite and Celery's filesystem broker under
`KGHARVEST_DATA_DIR`, a generated secret key, localhost only. As soon as one of DATABASE_URL, BROKER_URL, SECRET_KEY,
ALLOWED_HOSTS or an https KGHARVEST_BASE_URL is set and DEBUG is not, this is *production*: it does not start without a
secret and hosts, and expects a proxy in front that speaks TLS and sets X-Forwarded-Proto.
"""

import logging
import os
import socket
from pathlib import Path

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from kombu import Exchange, Queue

from kgharvest import VERSION
from kgharvest.environment import (
    base_url,
    broker_tls,
    data_folder_needed,
    database,
    file_storage,
    flag,
    generated_secret_key,
    hsts,
    limit,
    lm_servers,
    mail,
    networks,
    openid,
    sqlite,
    words,
)
from kgharvest.jobs.queues import HARVEST, QUEUES
from kgharvest.operations.logs import without_addresses
from kgharvest.registries import (  # noqa: F401 they are settings
    AUDITED,
    DRAFT_DELETED,
    EVENT_TYPES,
    HOOKS,
    JOB_RUNNERS,
    LM_JOBS,
    METRICS,
    OUTBOXES,
    PANELS,
    PERIODIC_TASKS,
    REPORT_SECTIONS,
    URGENT_JOBS,
)

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(os.environ.get("KGHARVEST_DATA_DIR") or BASE_DIR / "var").resolve()


with data_folder_needed():
    # For nobody else on this machine: SQLite's file holds mail addresses, sessions and hashes of passwords.
    DATA_DIR.mkdir(0o700, parents=True, exist_ok=True)

# Below these, pages take models from local folders; commands take any.
MODEL_ROOTS = [Path(root) for root in os.environ.get("KGHARVEST_MODEL_ROOTS", "").split(os.pathsep) if root]
MODEL_ROOTS = MODEL_ROOTS or [DATA_DIR / "models"]

PUBLIC = base_url(os.environ.get("KGHARVEST_BASE_URL", ""))  # where people reach this server, if it is said
DEBUG = flag("DEBUG")
EMBEDDED = PUBLIC.scheme != "https" and not any(
    os.environ.get(name) for name in ("DATABASE_URL", "BROKER_URL", "SECRET_KEY", "ALLOWED_HOSTS")
)
PRODUCTION = not EMBEDDED and not DEBUG
if PRODUCTION and PUBLIC.scheme == "http":
    raise ImproperlyConfigured("KGHARVEST_BASE_URL is not an https address; in production people come over TLS.")

SECRET_KEY = os.environ.get("SECRET_KEY", "")
ALLOWED_HOSTS = words("ALLOWED_HOSTS")
PUBLIC_HOSTS = [f"[{PUBLIC.hostname}]" if ":" in PUBLIC.hostname else PUBLIC.hostname] if PUBLIC.hostname else []
if PRODUCTION:
    ALLOWED_HOSTS = ALLOWED_HOSTS or PUBLIC_HOSTS
if PRODUCTION and not SECRET_KEY:
    raise ImproperlyConfigured("SECRET_KEY is not set; in production set it to 50 or more random characters.")
if PRODUCTION and not ALLOWED_HOSTS:
    raise ImproperlyConfigured("ALLOWED_HOSTS is not set; in production name the hosts this server answers for.")
if not SECRET_KEY:
    with data_folder_needed():
        SECRET_KEY = generated_secret_key(DATA_DIR / "secret_key")
ALLOWED_HOSTS = ALLOWED_HOSTS or ["localhost", "127.0.0.1", "[::1]", *PUBLIC_HOSTS]

# Optional apps (kgharvest.optional_apps). KGHARVEST_CONTRIB names those to install; "none" for the core alone.
# A name with a dot is the module of another package's app.
CONTRIB_APPS = words("KGHARVEST_CONTRIB") or ["knowledge_graphs", "probing", "publishing", "recruiting"]
INSTALLED_APPS = [
    "kgharvest",
    "annotation",
    "evaluation",
    *[name if "." in name else f"kgharvest.contrib.{name}" for name in CONTRIB_APPS if name != "none"],
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
    "drf_spectacular_sidecar",
    "csp",
]

MIDDLEWARE = [
    "kgharvest.operations.views.answer_probes",
    "kgharvest.operations.views.observe_requests",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "kgharvest.http.spare_threads",
    "csp.middleware.CSPMiddleware",
    "kgharvest.http.RefuseMalformed",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "kgharvest.accounts.sign_in.sessions.require_second_factor",
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
STATIC_URL = f"{PUBLIC.path}/static/"
STATIC_ROOT = BASE_DIR / "staticfiles" if PRODUCTION else None
WHITENOISE_USE_FINDERS = not PRODUCTION
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "files": file_storage("KGHARVEST_FILES", DATA_DIR),  # what web servers and workers share (operations.files)
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
# How many attempts in how many seconds, by what is tried (kgharvest.accounts.throttle).
LIMITS = {
    "wrong_links": limit("KGHARVEST_WRONG_LINKS", 30, 900),  # or codes: a class that mistypes behind one address
    "forged_events": limit("KGHARVEST_FORGED_EVENTS", 60, 60),  # not signed as a platform does, from one address
    "guests": limit("KGHARVEST_GUESTS", 30, 600),  # who join one round by name from one address
    "panel_entries": limit("KGHARVEST_PANEL_ENTRIES", 60, 600),  # people who are new to one panel, from one address
    "wrong_passwords": limit("KGHARVEST_WRONG_PASSWORDS", 50, 900),  # from one address, which gets few a name then
    "wrong_passwords_of_name": limit("KGHARVEST_WRONG_PASSWORDS_OF_NAME", 10, 900),  # from one address
    "wrong_passwords_everywhere": limit("KGHARVEST_WRONG_PASSWORDS_EVERYWHERE", 100, 3600),  # for one name
    "wrong_passwords_of_device": limit("KGHARVEST_WRONG_PASSWORDS_OF_DEVICE", 10, 900),  # known to have logged in
    "old_passwords": limit("KGHARVEST_OLD_PASSWORDS", 5, 900),  # of one account, when it changes its password
    "second_factors": limit("KGHARVEST_SECOND_FACTORS", 5, 900),  # codes for one account
    "share_passwords": limit("KGHARVEST_SHARE_PASSWORDS", 10, 900),  # tried on a link to a report from one address
    "share_passwords_everywhere": limit("KGHARVEST_SHARE_PASSWORDS_EVERYWHERE", 100, 3600),  # on one link
    "reset_requests": limit("KGHARVEST_RESET_REQUESTS", 20, 3600),  # from one address, for whatever accounts
    "reset_mails": limit("KGHARVEST_RESET_MAILS", 3, 3600),  # to one mail address
}
# How many requests to the API in how many seconds (kgharvest.api.throttles).
API_LIMITS = {
    "token": limit("KGHARVEST_API_REQUESTS", 1200, 60),  # of one token
    "anonymous": limit("KGHARVEST_API_ANONYMOUS_REQUESTS", 60, 60),  # from one address without a valid token
}
CACHES = {  # of each process: what it counts itself of these limits
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 10_000}}
}
PROXY_COUNT = int(os.environ.get("PROXY_COUNT") or PRODUCTION)  # proxies of our own between browsers and this server

# Signing in: docs/sign-in.md
OPENID = openid()
LOCAL_LOGIN = os.environ.get("KGHARVEST_LOCAL_LOGIN", "1") != "0"  # with a password of this installation
if not LOCAL_LOGIN and not OPENID:
    raise ImproperlyConfigured("KGHARVEST_LOCAL_LOGIN is 0 and KGHARVEST_OIDC_ISSUER is not set: nobody could log in.")
SECOND_FACTOR_FOR = os.environ.get("KGHARVEST_SECOND_FACTOR", "")
if SECOND_FACTOR_FOR not in {"", "staff", "owners", "everybody"}:
    raise ImproperlyConfigured(
        f"KGHARVEST_SECOND_FACTOR is {SECOND_FACTOR_FOR!r}; use staff, owners (staff as well) or everybody."
    )
PASSWORD_RESET_TIMEOUT = 3600  # seconds that a link in a mail holds
CONTACT = os.environ.get("KGHARVEST_CONTACT", "")  # whom people ask, as "Ada, room 7, ada@example.org"

# Mail
EMAIL_URL = os.environ.get("EMAIL_URL", "")
if EMAIL_URL:
    globals().update(mail(EMAIL_URL))
DEFAULT_FROM_EMAIL = os.environ.get("KGHARVEST_MAIL_FROM") or f"kgharvest@{(PUBLIC_HOSTS or ['localhost'])[0]}"

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
SESSION_ENGINE = "kgharvest.accounts.sign_in.session_store"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = PRODUCTION
# Off by default: browsers remember it for its whole lifetime, for every subdomain and port of the host if asked to.
SECURE_HSTS_SECONDS, SECURE_HSTS_INCLUDE_SUBDOMAINS, SECURE_HSTS_PRELOAD = hsts("KGHARVEST_HSTS")
SILENCED_SYSTEM_CHECKS = ["security.W004", "security.W005", "security.W021"]  # HSTS, its subdomains and preloading
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if PRODUCTION else None
PORT = os.environ.get("PORT") or "8000"
# Scheme, host and port for links that go out in mails or are printed; what `reverse` returns goes after it.
ORIGIN = f"http://127.0.0.1:{PORT}"
if PRODUCTION:
    ORIGIN = f"https://{ALLOWED_HOSTS[0].lstrip('.')}"
CSRF_TRUSTED_ORIGINS = [f"https://{'*' * host.startswith('.')}{host}" for host in ALLOWED_HOSTS]
if PUBLIC.netloc:
    ORIGIN = f"{PUBLIC.scheme}://{PUBLIC.netloc}"
    CSRF_TRUSTED_ORIGINS.append(ORIGIN)
FORCE_SCRIPT_NAME = PUBLIC.path or None  # all links, static files and cookies are below it
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = f"{PUBLIC.path}/"


REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "kgharvest.api.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["kgharvest.access.IsResearcher"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "kgharvest.api.schema.ApiSchema",
    "EXCEPTION_HANDLER": "kgharvest.http.error_response",
    "DEFAULT_METADATA_CLASS": None,  # what OPTIONS would tell is in the schema
    "URL_FORMAT_OVERRIDE": None,  # "format" in an address is a parameter of ours
}
SPECTACULAR_SETTINGS = {
    "TITLE": "kgharvest",
    "DESCRIPTION": "Relations, harvests, knowledge, rounds, judgments and reports for programs.",
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [],  # values of a field stand at the field: fields of one name have different ones
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "persistAuthorization": False, "validatorUrl": None},
}

# Networks besides the internet that webhooks may lead to, by plain http, too
WEBHOOK_NETWORKS = networks("KGHARVEST_WEBHOOK_NETWORKS")

# Addresses of the log-probability servers whose LMs may be harvested, with the variable that holds the key of each
LM_SERVERS = lm_servers("KGHARVEST_LM_SERVERS")

# Where chat models are asked to list tuples, if a launch names no address; it is trusted (docs/harvesting.md)
CHAT_BASE_URL = os.environ.get("KGHARVEST_CHAT_BASE_URL", "").strip()

# Where judges of the kind chat are asked, if a run names no address; what it says is trusted (docs/judges.md)
JUDGE_BASE_URL = os.environ.get("KGHARVEST_JUDGE_BASE_URL", "").strip()

# Prolific, where people for rounds are found and paid (docs/prolific.md)
PROLIFIC = {
    "token": os.environ.get("KGHARVEST_PROLIFIC_TOKEN", "").strip(),
    "url": os.environ.get("KGHARVEST_PROLIFIC_URL", "").strip() or "https://api.prolific.com",
    "webhook_secret": os.environ.get("KGHARVEST_PROLIFIC_WEBHOOK_SECRET", "").strip(),
}

# Jobs. The broker only wakes workers: what a job is and who works on it is in the database (kgharvest.jobs.ledger).
JOB_LEASE_S = 30  # a running job whose worker is silent for so long counts as lost
JOB_LOOK_EVERY_S = 5  # between two heartbeats of a worker, each with a look at the ledger
# Seconds of searching after which idle workers get parts of a harvest; most with so small an LM as the embedded one end
# before.
HARVEST_SHARED_AFTER_S = 2

CELERY_BROKER_URL = os.environ.get("BROKER_URL") or "filesystem://"
CELERY_BROKER_USE_SSL = broker_tls(CELERY_BROKER_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker waits for its broker however long that is away
CELERY_TASK_DEFAULT_QUEUE = HARVEST
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
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "visibility_timeout": CELERY_TASK_TIME_LIMIT + 3600,
        # Seconds; without them a Redis that hangs is waited for without end.
        "socket_connect_timeout": 3,
        "socket_timeout": 10,
        "socket_keepalive": True,
    }
else:
    # RabbitMQ ends a consumer that has not acknowledged for half an hour; it must outlast the longest task as well.
    patience_ms = 1000 * (CELERY_TASK_TIME_LIMIT + 3600)
    QUEUE_ARGUMENTS = {"x-queue-type": "quorum", "x-consumer-timeout": patience_ms}
CELERY_TASK_QUEUES = [Queue(name, Exchange(name), routing_key=name, queue_arguments=QUEUE_ARGUMENTS) for name in QUEUES]


def without_traceback_of_refusals(record: logging.LogRecord) -> bool:
    """Let the line of a response that refuses stand alone; only what failed has a traceback worth reading."""
    if getattr(record, "status_code", 500) < 500 or getattr(record, "status_code", 500) == 503:
        record.exc_info = None
    return True


# How this server is watched: docs/operations.md
METRICS_DIR = DATA_DIR / "metrics" / socket.gethostname()  # a folder a machine, as process ids are of one
METRICS_TOKEN = os.environ.get("KGHARVEST_METRICS_TOKEN", "")

LOG_FORMAT = os.environ.get("KGHARVEST_LOG") or "lines"
if LOG_FORMAT not in {"lines", "json"}:
    raise ImproperlyConfigured(f"KGHARVEST_LOG is {LOG_FORMAT!r}; use lines or json.")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "untraced": {"()": "django.utils.log.CallbackFilter", "callback": without_traceback_of_refusals},
        "without_addresses": {"()": "django.utils.log.CallbackFilter", "callback": without_addresses},
    },
    "formatters": {
        "lines": {
            "()": "kgharvest.operations.logs.LineFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
        },
        "json": {"()": "kgharvest.operations.logs.JsonFormatter"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": LOG_FORMAT,
            "filters": ["untraced", "without_addresses"],
        }
    },
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "django": {"handlers": ["console"], "level": "INFO", "propagate": False},
        "kgharvest.requests": {"level": "INFO" if LOG_FORMAT == "json" else "WARNING"},  # a line a request
        "waitress": {"level": "WARNING"},
        "waitress.queue": {"level": "ERROR"},  # it warns whenever a request waits for a thread
        "botocore": {"level": "WARNING"},  # it says for each connection where credentials come from
        "httpx": {"level": "WARNING"},  # it logs each address, and addresses of platforms have names of people
        "kombu.connection": {"level": "ERROR"},  # it warns that the filesystem broker has no host name
    },
}
