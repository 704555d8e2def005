"""The JSON interface, as far as the pages need it, and the one shape of its errors."""

from __future__ import annotations

from typing import Any

from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler

from kgharvest.errors import DomainError


def error_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return {"error": {"code", "message"}}, with "fields" for invalid input; None leaves a bug to Django's 500."""
    if isinstance(error, DomainError):
        return Response({"error": {"code": error.code, "message": str(error)}}, status.HTTP_409_CONFLICT)
    response = exception_handler(error, context)
    if response is None:
        return None
    if isinstance(error, exceptions.ValidationError):
        response.data = {"error": {"code": "Invalid", "message": "The input is not valid.", "fields": response.data}}
    else:
        response.data = {"error": {"code": type(error).__name__, "message": str(response.data.get("detail", error))}}
    return response
