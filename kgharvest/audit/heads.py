"""Signed heads of the audit log outside the database, and the daily verification.

A database owner can compute a new chain, but can neither change heads that were sent elsewhere nor sign new ones,
because the signing key is derived from a setting. The outcomes of both jobs are in the table of jobs.
"""

import json
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from smtplib import SMTPException

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.core.mail import send_mail
from django.utils import timezone
from django.utils.crypto import salted_hmac

from kgharvest.audit.tables import canonical_json
from kgharvest.audit.verification import Verification
from kgharvest.errors import DomainError
from kgharvest.events.chain import Head, head, seal_all
from kgharvest.events.models import Event
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.webhooks.delivery import post

SEND, VERIFY = "send_audit_heads", "verify_audit_log"  # kinds of jobs
SEND_EVERY, VERIFY_EVERY, RETRY_AFTER = timedelta(hours=1), timedelta(days=1), timedelta(minutes=10)
MOST_NAMED = 20  # problems in the error of a failed verification


def signing_key() -> Ed25519PrivateKey:
    seed = salted_hmac("kgharvest.audit.heads", "key", settings.AUDIT_KEY or settings.SECRET_KEY, algorithm="sha256")
    return Ed25519PrivateKey.from_private_bytes(seed.digest())


def signed_head(last: Head, now: datetime) -> str:
    """Return a head as a line of JSON. The signature (Ed25519) covers the canonical JSON of the other keys."""
    key = signing_key()
    content = {"number": last.number, "hash": last.hash, "at": now, "installation": settings.ORIGIN}
    content["public_key"] = key.public_key().public_bytes_raw().hex()
    return canonical_json(content | {"signature": key.sign(canonical_json(content).encode()).hex()})


def read_heads(path: Path) -> tuple[list[tuple[str, Head]], list[str]]:
    """Return the heads in a file of signed heads, with their place, and an error for each line without a valid one."""
    heads, errors = [], []
    public_key = signing_key().public_key()
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        where = f"line {number} of {path}"
        try:
            content = json.loads(line)
            public_key.verify(bytes.fromhex(content.pop("signature")), canonical_json(content).encode())
            heads.append((where, Head(content["number"], content["hash"])))
        except (InvalidSignature, AttributeError, KeyError, TypeError, ValueError):
            errors.append(f"The head in {where} is not signed with the key of this installation.")
    return heads, errors


def head_files() -> list[Path]:
    """Return the configured files of heads that exist on this machine."""
    return [path for to in settings.AUDIT_HEADS if to.startswith("/") and (path := Path(to)).exists()]


# Jobs


def enqueue_due_jobs(now: datetime) -> None:
    """Queue the jobs that send heads (every hour, and after each report) and verify the log (daily). Periodic task."""
    jobs = Job.objects.filter(project=None).exclude(finished_at=None)
    if settings.AUDIT_HEADS and not jobs.filter(kind=SEND, status="failed", finished_at__gt=now - RETRY_AFTER).exists():
        sent = jobs.filter(kind=SEND, status="succeeded", finished_at__gt=now - SEND_EVERY).order_by("pk").last()
        if sent is None or Event.objects.filter(action="report.made", at__gt=sent.started_at).exists():
            ledger.enqueue_once(SEND)
    has_old_entries = Event.objects.filter(number=1, at__lt=now - VERIFY_EVERY).exists()
    if has_old_entries and not jobs.filter(kind=VERIFY, finished_at__gt=now - VERIFY_EVERY).exists():
        ledger.enqueue_once(VERIFY)


def send_heads(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Send the signed head to all destinations. If one fails, all are tried again after RETRY_AFTER."""
    seal_all()
    line = signed_head(head(), timezone.now())
    with heartbeat.kept_alive():
        failures = [f"{to}: {error}" for to in settings.AUDIT_HEADS if (error := _send(to, line))]
    if failures:
        raise DomainError("HeadNotSent", f"The head of the audit log was not sent to {'; '.join(failures)}")
    return lambda: ledger.delete_ended(SEND)


def _send(destination: str, line: str) -> str:
    """Send one line. Return a sentence if it fails, otherwise an empty string."""
    try:
        if destination.startswith("http"):
            return post(destination, line.encode(), {"Content-Type": "application/json"}).error
        if destination.startswith("mailto:"):
            send_mail("Head of the audit log", line, None, [destination.removeprefix("mailto:")])
        else:
            with open(destination, "a") as file:
                file.write(f"{line}\n")
    except (OSError, SMTPException) as error:
        return f"{error}."
    return ""


def run_verification(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Verify the log with the configured files of heads. The verified head becomes the payload of the job."""
    with heartbeat.kept_alive():
        files = [read_heads(path) for path in head_files()]
        verification = Verification([outside for heads, _ in files for outside in heads])
        errors = chain(*(errors for _, errors in files), verification)
        problems = list(islice(errors, MOST_NAMED))
    if problems:
        raise DomainError("TrailBroken", f"Audit log verification failed. {' '.join(problems)}")
    payload = verification.verified.head._asdict() | {"n_heads": sum(len(heads) for heads, _ in files)}
    return lambda: Job.objects.filter(pk=job.pk).update(payload=payload)
