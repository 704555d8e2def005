"""Idempotency keys: a repeated POST with the same `Idempotency-Key` returns the stored response for one day.

The response is stored in the transaction of the created object. If two requests with the same key arrive
simultaneously, the second waits for the first and gets the same response. A unique constraint or SQLite's lock makes it
wait. Errors are not stored.
"""

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
RETENTION = timedelta(hours=24)
LONGEST_KEY = KeyedAnswer._meta.get_field("key").max_length
Prepared = TypeVar("Prepared")
BAD_KEY = f"Invalid key. Use 1 to {LONGEST_KEY} printable ASCII characters, for example a UUID."


def answer_once(request: Request, act: Callable[[Prepared], Response], prepare: Callable[[], Prepared]) -> Response:
    """Return the response of `act`, or the stored response to the same request and key. Raises KeyReused.

    prepare: function for validation and other steps before the transaction. Each of several simultaneous requests with
    the same key calls it. act: function that creates the object with a service. If the request has a key, it runs in a
    transaction.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return act(prepare())
    if not (key and len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise ValidationError({HEADER: [BAD_KEY]})
    digest = digest_of(request)
    answers = KeyedAnswer.objects.filter(user=request.user)
    answers.filter(created_at__lt=timezone.now() - RETENTION).delete()
    if answer := answers.filter(key=key).first():
        return _stored_response(answer, digest)
    prepared = prepare()
    with transaction.atomic():
        answer, is_new = answers.get_or_create(user=request.user, key=key, defaults={"digest": digest})
        if not is_new:
            return _stored_response(answer, digest)
        response = act(prepared)
        location = response.headers.get("Location", "")
        answer.status, answer.body, answer.location = response.status_code, response.data, location
        answer.save()
    return response


def _stored_response(answer: KeyedAnswer, digest: str) -> Response:
    if answer.digest != digest:
        raise DomainError(
            "KeyReused",
            f"Key {answer.key} was used for a different request. Generate a new key for each request.",
        )
    headers = {"Location": answer.location} if answer.location else {}
    return Response(answer.body, answer.status, headers=headers)


def digest_of(request: Request) -> str:
    """Return a digest of the request's method, URL, token scope, fields, and file contents."""
    parts: Any = request.data
    if hasattr(parts, "lists"):
        parts = {name: [_content(value) for value in values] for name, values in parts.lists()}
    reach = request.auth and [request.auth.scope, request.auth.project_id]
    text = json.dumps([request.method, request.get_full_path(), reach, parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _content(value: Any) -> Any:
    if not isinstance(value, UploadedFile):
        return value
    value.seek(0)
    digest = hashlib.file_digest(value, "sha256").hexdigest()
    value.seek(0)
    return [value.name, digest]
