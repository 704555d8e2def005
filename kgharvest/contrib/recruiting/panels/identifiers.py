"""Identifiers that a platform has for people: stored encrypted, found by a keyed digest, never in the clear.

Whoever reads a dump of the database learns no participant id from it without the installation's SECRET_KEY. After that
key has changed, people who come back are taken for new ones and what is stored cannot be read (Unreadable).
"""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet, InvalidToken
from django.utils.crypto import salted_hmac

from kgharvest.errors import DomainError

SALT = "annotation.recruiting.panels"


class Unreadable(DomainError):
    """An identifier that was encrypted with another SECRET_KEY."""


def digest(identifier: str) -> str:
    """Return the 64 hexadecimal digits by which an identifier is found again: HMAC-SHA256 under SECRET_KEY."""
    return salted_hmac(f"{SALT}.digest", identifier, algorithm="sha256").hexdigest()


def forgotten(known_digest: str) -> str:
    """Return what takes the place of a digest once the identifier is erased.

    A platform that still names the identifier brings nobody back by it, and nobody is found by it.
    """
    return digest(f"forgotten {known_digest}")


def encrypted(text: str) -> str:
    return _cipher().encrypt(text.encode()).decode()


def decrypted(ciphertext: str) -> str:
    """Return what `encrypted` was given. Raises Unreadable."""
    try:
        return _cipher().decrypt(ciphertext.encode()).decode()
    except InvalidToken:
        raise Unreadable("This was encrypted when SECRET_KEY was another one; set that one again to read it.") from None


def _cipher() -> Fernet:
    return Fernet(base64.urlsafe_b64encode(salted_hmac(f"{SALT}.key", "identifiers", algorithm="sha256").digest()))
