"""Settings, configured by environment variables.

The default is *embedded* mode. It uses SQLite and Celery's filesystem broker in the data folder (KGHARVEST_DATA_DIR)
and a generated secret key, and serves localhost only. The mode is *production* if DEBUG is not set and any of
DATABASE_URL, BROKER_URL, SECRET_KEY, ALLOWED_HOSTS, or an https KGHARVEST_BASE_URL is set. Production requires a secret
key, hosts, and a TLS proxy that sets X-Forwarded-Proto. Importing this module creates no files.
"""

import logging
import os
import socket
from functools import partial
from pathlib import Path

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import SimpleLazyObject
from kombu import Exchange, Queue
from platformdirs import user_data_path

from kgharvest import VERSION
from kgharvest import environment as env
from kgharvest.jobs.queues import HARVEST, QUEUES
from kgharvest.operations.logs import without_addresses
from kgharvest.registries import *  # noqa: F403 - all registries are settings

# Folder that contains templates/, gunicorn.conf.py, and requirements.txt
BASE_DIR = env.PACKAGE_DIR.parent if env.IS_CHECKOUT else env.PACKAGE_DIR
# Created when it is first needed (environment.create_data_folder)
DATA_DIR = Path(
    os.environ.get("KGHARVEST_DATA_DIR") or (BASE_DIR / "var" if env.IS_CHECKOUT else user_data_path("kgharvest"))
).resolve()

# Folders from which pages accept local models; commands accept any folder.
MODEL_ROOTS = [Path(root) for root in os.environ.get("KGHARVEST_MODEL_ROOTS", "").split(os.pathsep) if root]
MODEL_ROOTS = MODEL_ROOTS or [DATA_DIR / "models"]

PUBLIC = env.base_url(os.environ.get("KGHARVEST_BASE_URL", ""))  # public URL of this server, if set
DEBUG = env.flag("DEBUG")
EMBEDDED = PUBLIC.scheme != "https" and not any(
    os.environ.get(name) for name in ("DATABASE_URL", "BROKER_URL", "SECRET_KEY", "ALLOWED_HOSTS")
)
PRODUCTION = not EMBEDDED and not DEBUG
if PRODUCTION and PUBLIC.scheme == "http":
    raise ImproperlyConfigured("KGHARVEST_BASE_URL is not an https URL. Production requires TLS.")

SECRET_KEY = os.environ.get("SECRET_KEY", "")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS")
PUBLIC_HOSTS = [f"[{PUBLIC.hostname}]" if ":" in PUBLIC.hostname else PUBLIC.hostname] if PUBLIC.hostname else []
if PRODUCTION:
    ALLOWED_HOSTS = ALLOWED_HOSTS or PUBLIC_HOSTS
if PRODUCTION and not SECRET_KEY:
    raise ImproperlyConfigured("SECRET_KEY is not set. In production, set it to 50 or more random characters.")
if PRODUCTION and not ALLOWED_HOSTS:
    raise ImproperlyConfigured("ALLOWED_HOSTS is not set. In production, set it to the hostnames of this server.")
if not SECRET_KEY:
    env.check_not_restoring(DATA_DIR / "secret_key")
    SECRET_KEY = SimpleLazyObject(partial(env.generated_secret_key, DATA_DIR / "secret_key"))
ALLOWED_HOSTS = ALLOWED_HOSTS or ["localhost", "127.0.0.1", "[::1]", *PUBLIC_HOSTS]

# Optional apps to install (kgharvest.optional_apps). KGHARVEST_CONTRIB=none installs only the core. A name with a dot
# is the module of an app in another package.
CONTRIB_APPS = env.words("KGHARVEST_CONTRIB") or ["crawling", "knowledge_graphs", "probing", "publishing", "recruiting"]
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
    "kgharvest.middleware.observe_requests",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "kgharvest.middleware.spare_threads",
    "csp.middleware.CSPMiddleware",
    "kgharvest.middleware.RefuseMalformed",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "kgharvest.middleware.require_second_factor",
    "kgharvest.middleware.record_exports",
    "kgharvest.middleware.store_nothing",
]

ROOT_URLCONF = "kgharvest.urls"
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"  # find the custom widgets in templates/
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
                "kgharvest.environment.command_names",
            ],
            "builtins": ["kgharvest.pages.panels"],
        },
    }
]

DATABASE_URL = os.environ.get("DATABASE_URL", "")
DATABASES = {"default": env.database(DATABASE_URL) if DATABASE_URL else env.sqlite(DATA_DIR / "kgharvest.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

# In production, static files have hashed names, which `collectstatic` creates. Otherwise, they are served from the
# apps.
STATIC_URL = f"{PUBLIC.path}/static/"
STATIC_ROOT = (BASE_DIR if env.IS_CHECKOUT else DATA_DIR) / "staticfiles" if PRODUCTION else None
WHITENOISE_USE_FINDERS = not PRODUCTION
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "files": env.file_storage("KGHARVEST_FILES", DATA_DIR),  # shared by web servers and workers (operations.files)
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
# Rate limits: (attempts, seconds) (kgharvest.accounts.throttle)
LIMITS = {
    # Wrong links or codes, per address, which a whole class may share.
    "wrong_links": env.limit("KGHARVEST_WRONG_LINKS", 30, 900),
    "forged_events": env.limit(
        "KGHARVEST_FORGED_EVENTS", 60, 60
    ),  # platform events with an invalid signature, per address
    "guests": env.limit("KGHARVEST_GUESTS", 30, 600),  # joining one round by name, per address
    "panel_entries": env.limit("KGHARVEST_PANEL_ENTRIES", 60, 600),  # new participants of one panel, per address
    # Per address; after that, only a few attempts per name.
    "wrong_passwords": env.limit("KGHARVEST_WRONG_PASSWORDS", 50, 900),
    "wrong_passwords_of_name": env.limit("KGHARVEST_WRONG_PASSWORDS_OF_NAME", 10, 900),  # per name and address
    "wrong_passwords_everywhere": env.limit(
        "KGHARVEST_WRONG_PASSWORDS_EVERYWHERE", 100, 3600
    ),  # per name; then few per address
    # Per browser in which the user has logged in before.
    "wrong_passwords_of_device": env.limit("KGHARVEST_WRONG_PASSWORDS_OF_DEVICE", 10, 900),
    "old_passwords": env.limit("KGHARVEST_OLD_PASSWORDS", 5, 900),  # wrong password confirmations, per account
    "second_factors": env.limit("KGHARVEST_SECOND_FACTORS", 5, 900),  # wrong codes of the second factor, per account
    "share_passwords": env.limit("KGHARVEST_SHARE_PASSWORDS", 10, 900),  # per report link and address
    "share_passwords_everywhere": env.limit("KGHARVEST_SHARE_PASSWORDS_EVERYWHERE", 100, 3600),  # per report link
    "reset_requests": env.limit("KGHARVEST_RESET_REQUESTS", 20, 3600),  # per address
    "reset_mails": env.limit("KGHARVEST_RESET_MAILS", 3, 3600),  # per email address
    "account_mails": env.limit("KGHARVEST_ACCOUNT_MAILS", 100, 86400),  # to owners of new accounts, per project owner
}
# API rate limits: (requests, seconds) (kgharvest.api.authentication.count_request)
API_LIMITS = {
    "token": env.limit("KGHARVEST_API_REQUESTS", 1200, 60),  # per token
    "anonymous": env.limit("KGHARVEST_API_ANONYMOUS_REQUESTS", 60, 60),  # per address without a valid token
}
CACHES = {  # each process has its own cache, which contains the requests reserved for the API rate limits
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 10_000}}
}
PROXY_COUNT = int(os.environ.get("PROXY_COUNT") or PRODUCTION)  # number of trusted proxies in front of this server

# Login (docs/sign-in.md)
OPENID = env.openid()
LOCAL_LOGIN = os.environ.get("KGHARVEST_LOCAL_LOGIN", "1") != "0"  # password login
if not LOCAL_LOGIN and not OPENID:
    raise ImproperlyConfigured(
        "KGHARVEST_LOCAL_LOGIN is 0, but KGHARVEST_OIDC_ISSUER is not set. Set the issuer or enable local login."
    )
SECOND_FACTOR_FOR = os.environ.get("KGHARVEST_SECOND_FACTOR", "")
if SECOND_FACTOR_FOR not in {"", "staff", "owners", "everybody"}:
    raise ImproperlyConfigured(
        f"KGHARVEST_SECOND_FACTOR is {SECOND_FACTOR_FOR!r}. Use staff, owners (includes staff), or everybody."
    )
PASSWORD_RESET_TIMEOUT = 3600  # number of seconds for which a reset link is valid
CONTACT = os.environ.get("KGHARVEST_CONTACT", "")  # contact shown on pages, for example "Ada, room 7, ada@example.org"

# Email
EMAIL_URL = os.environ.get("EMAIL_URL", "")
if EMAIL_URL:
    globals().update(env.mail(EMAIL_URL))
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
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000  # large, because a launch can select all relations
DATA_UPLOAD_MAX_MEMORY_SIZE = 3 << 20  # maximum bytes of a form without files, or of JSON
LARGEST_UPLOAD = 32 << 20  # maximum bytes of a form with files, three times bulk.file_reading.LARGEST_FILE
SESSION_ENGINE = "kgharvest.accounts.sign_in.session_store"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = PRODUCTION
# HSTS is off by default, because browsers remember the header for its lifetime, optionally for all subdomains and
# ports.
SECURE_HSTS_SECONDS, SECURE_HSTS_INCLUDE_SUBDOMAINS, SECURE_HSTS_PRELOAD = env.hsts("KGHARVEST_HSTS")
# Checks of HSTS, its subdomains, and its preload.
SILENCED_SYSTEM_CHECKS = ["security.W004", "security.W005", "security.W021"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if PRODUCTION else None
PORT = os.environ.get("PORT") or "8000"
# Scheme, host, and port of links in emails and printed output. The paths of these links come from `reverse`.
ORIGIN = f"http://127.0.0.1:{PORT}"
if PRODUCTION:
    ORIGIN = f"https://{ALLOWED_HOSTS[0].lstrip('.')}"
CSRF_TRUSTED_ORIGINS = [f"https://{'*' * host.startswith('.')}{host}" for host in ALLOWED_HOSTS]
if PUBLIC.netloc:
    ORIGIN = f"{PUBLIC.scheme}://{PUBLIC.netloc}"
    CSRF_TRUSTED_ORIGINS.append(ORIGIN)
FORCE_SCRIPT_NAME = PUBLIC.path or None  # path prefix of all links, static files, and cookies
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
    "DEFAULT_METADATA_CLASS": None,  # no metadata, because the OpenAPI schema describes the views
    "URL_FORMAT_OVERRIDE": None,  # disabled, because "format" is a query parameter of our views
}
SPECTACULAR_SETTINGS = {
    "TITLE": "kgharvest",
    "DESCRIPTION": "Relations, harvests, knowledge, rounds, judgments, and reports for programs.",
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [],  # keep enums inline, because fields with the same name have different choices
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "persistAuthorization": False, "validatorUrl": None},
}

# Private networks that webhooks may access, also by plain http
WEBHOOK_NETWORKS = env.networks("KGHARVEST_WEBHOOK_NETWORKS")
WEBHOOK_PORTS = env.ports("KGHARVEST_WEBHOOK_PORTS", [80, 443])  # of all addresses that users enter

# Destinations of signed heads of the audit log, and the secret of their key (docs/audit.md)
AUDIT_HEADS = env.destinations("KGHARVEST_AUDIT_HEADS")
AUDIT_KEY = os.environ.get("KGHARVEST_AUDIT_KEY", "")

# URLs of log-probability servers, with the environment variables that contain their keys
LM_SERVERS = env.lm_servers("KGHARVEST_LM_SERVERS")

# Default URL of chat models for launches. Responses from this URL are trusted (docs/harvesting.md)
CHAT_BASE_URL = os.environ.get("KGHARVEST_CHAT_BASE_URL", "").strip()

# Default URL of chat judges. Responses from this URL are trusted (docs/judges.md)
JUDGE_BASE_URL = os.environ.get("KGHARVEST_JUDGE_BASE_URL", "").strip()

# Recruiting and pay on Prolific (docs/prolific.md)
PROLIFIC = {
    "token": os.environ.get("KGHARVEST_PROLIFIC_TOKEN", "").strip(),
    "url": os.environ.get("KGHARVEST_PROLIFIC_URL", "").strip() or "https://api.prolific.com",
    "webhook_secret": os.environ.get("KGHARVEST_PROLIFIC_WEBHOOK_SECRET", "").strip(),
}

# Jobs. The broker only wakes workers; the state of jobs is in the database (kgharvest.jobs.ledger).
JOB_LEASE_S = 30  # a running job counts as lost after this time without a heartbeat
JOB_LOOK_EVERY_S = 5  # interval at which a worker records its heartbeat and checks the ledger
# Search time after which idle workers get parts of a harvest; most harvests of the embedded LM end earlier.
HARVEST_SHARED_AFTER_S = 2

CELERY_BROKER_URL = os.environ.get("BROKER_URL") or "filesystem://"
CELERY_BROKER_USE_SSL = env.broker_tls(CELERY_BROKER_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # keep waiting for the broker
CELERY_TASK_DEFAULT_QUEUE = HARVEST
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_TIME_LIMIT = 24 * 3600
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# One child process, so that torch is loaded there and not in the forking process. `--concurrency` starts more.
CELERY_WORKER_CONCURRENCY = 1
QUEUE_ARGUMENTS = None
if CELERY_BROKER_URL.startswith("filesystem:"):
    BROKER_DIR = DATA_DIR / "broker"
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": env.FolderOnDemand(BROKER_DIR / "messages"),
        "data_folder_out": env.FolderOnDemand(BROKER_DIR / "messages"),
        "control_folder": env.FolderOnDemand(BROKER_DIR / "control"),
        "polling_interval": 0.2,
    }
elif CELERY_BROKER_URL.startswith("redis"):
    env.check_installed("redis", "server", "BROKER_URL")
    # Redis redelivers messages after visibility_timeout, so this timeout must exceed the longest task.
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "visibility_timeout": CELERY_TASK_TIME_LIMIT + 3600,
        # Timeouts in seconds. Without them, an unresponsive Redis blocks forever.
        "socket_connect_timeout": 3,
        "socket_timeout": 10,
        "socket_keepalive": True,
    }
else:
    # RabbitMQ ends consumers that do not acknowledge a message within this timeout. The default is 30 minutes, but the
    # timeout must exceed the longest task.
    consumer_timeout_ms = 1000 * (CELERY_TASK_TIME_LIMIT + 3600)
    QUEUE_ARGUMENTS = {"x-queue-type": "quorum", "x-consumer-timeout": consumer_timeout_ms}
CELERY_TASK_QUEUES = [Queue(name, Exchange(name), routing_key=name, queue_arguments=QUEUE_ARGUMENTS) for name in QUEUES]


def without_traceback_of_refusals(record: logging.LogRecord) -> bool:
    """Remove the tracebacks of 4xx and 503 responses, because only other failures need a traceback."""
    if getattr(record, "status_code", 500) < 500 or getattr(record, "status_code", 500) == 503:
        record.exc_info = None
    return True


# Monitoring (docs/operations.md). Each machine has its own folder, because process ids are unique only per machine.
METRICS_DIR = DATA_DIR / "metrics" / socket.gethostname()
METRICS_TOKEN = os.environ.get("KGHARVEST_METRICS_TOKEN", "")

LOG_FORMAT = os.environ.get("KGHARVEST_LOG") or "lines"
if LOG_FORMAT not in {"lines", "json"}:
    raise ImproperlyConfigured(f"KGHARVEST_LOG is {LOG_FORMAT!r}. Use lines or json.")
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
        "kgharvest.requests": {"level": "INFO" if LOG_FORMAT == "json" else "WARNING"},  # logs one line per request
        "torch": {"level": "WARNING"},  # logs statistics of its caches on exit
        "waitress": {"level": "WARNING"},
        "waitress.queue": {"level": "ERROR"},  # warns whenever a request waits for a thread
        "botocore": {"level": "WARNING"},  # logs the source of credentials per connection
        "httpx": {"level": "WARNING"},  # logs URLs, which may identify participants
        "httpx2": {"level": "WARNING"},  # client of huggingface_hub
        "kombu.connection": {"level": "ERROR"},  # warns that the filesystem broker has no hostname
    },
}
