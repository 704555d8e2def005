"""Creating requests sent again with the same `Idempotency-Key` create nothing twice: the answer is kept for a day.

The answer's row is written in the transaction of what is created. Of two simultaneous requests the second one waits for
the first, by the unique constraint or SQLite's lock, and is told the same. What was refused is not kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.utils import timezone
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.errors import DomainError
from kgharvest.models import KeyedAnswer

HEADER = "Idempotency-Key"
KEPT = timedelta(hours=24)
LONGEST_KEY = KeyedAnswer._meta.get_field("key").max_length
Prepared = TypeVar("Prepared")
BAD_KEY = f"Give 1 to {LONGEST_KEY} letters, digits and signs, such as a UUID."


def answer_once(request: Request, act: Callable[[Prepared], Response], prepare: Callable[[], Prepared]) -> Response:
    """Return what `act` answers, or what it answered to the same request with the same key. Raises KeyReused.

    prepare: validates, and does what has to go before the transaction; of simultaneous requests each does it. act:
    creates by a service. It runs in a transaction if there is a key.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return act(prepare())
    if not (key and len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise ValidationError({HEADER: [BAD_KEY]})
    digest = digest_of(request)
    kept = KeyedAnswer.objects.filter(user=request.user)
    kept.filter(created_at__lt=timezone.now() - KEPT).delete()
    if before := kept.filter(key=key).first():
        return _kept_response(before, digest)
    prepared = prepare()
    with transaction.atomic():
        answer, is_new = kept.get_or_create(user=request.user, key=key, defaults={"digest": digest})
        if not is_new:
            return _kept_response(answer, digest)
        response = act(prepared)
        location = response.headers.get("Location", "")
        answer.status, answer.body, answer.location = response.status_code, response.data, location
        answer.save()
    return response


def _kept_response(answer: KeyedAnswer, digest: str) -> Response:
    if answer.digest != digest:
        raise DomainError(
            "KeyReused", f"The key {answer.key} was sent with another request before; take a new key for a new request."
        )
    headers = {"Location": answer.location} if answer.location else {}
    return Response(answer.body, answer.status, headers=headers)


def digest_of(request: Request) -> str:
    """Return what is equal for requests that ask the same at the same address, and of files have the same content."""
    parts: Any = request.data
    if hasattr(parts, "lists"):
        parts = {name: [_content(value) for value in values] for name, values in parts.lists()}
    reach = request.auth and [request.auth.scope, request.auth.project_id]
    asked = json.dumps([request.method, request.get_full_path(), reach, parts], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


def _content(value: Any) -> Any:
    if not isinstance(value, UploadedFile):
        return value
    value.seek(0)
    digest = hashlib.file_digest(value, "sha256").hexdigest()
    value.seek(0)
    return [value.name, digest]
