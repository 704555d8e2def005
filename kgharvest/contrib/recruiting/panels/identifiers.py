"""Participant identifiers. They are stored encrypted and looked up by a keyed digest, never in plain text.

A database dump reveals no participant id without the installation's SECRET_KEY. If that key changes, stored ids become
unreadable, and returning participants count as new participants.
"""

import base64

from cryptography.fernet import Fernet, InvalidToken
from django.utils.crypto import salted_hmac

from kgharvest.errors import DomainError

SALT = "annotation.recruiting.panels"


class Unreadable(DomainError):
    """The identifier was encrypted with a different SECRET_KEY."""


def digest(identifier: str) -> str:
    """Return the lookup key of an identifier: HMAC-SHA256 under SECRET_KEY, 64 hexadecimal digits."""
    return salted_hmac(f"{SALT}.digest", identifier, algorithm="sha256").hexdigest()


def forgotten(identifier_digest: str) -> str:
    """Return the replacement for the digest of an erased identifier, so that lookups no longer match the identifier."""
    return digest(f"forgotten {identifier_digest}")


def encrypted(text: str) -> str:
    return _cipher().encrypt(text.encode()).decode()


def decrypted(ciphertext: str) -> str:
    """Return the plain text. Raises Unreadable."""
    try:
        return _cipher().decrypt(ciphertext.encode()).decode()
    except InvalidToken:
        raise Unreadable("Encrypted with a different SECRET_KEY. Restore that key to read the identifier.") from None


def _cipher() -> Fernet:
    return Fernet(base64.urlsafe_b64encode(salted_hmac(f"{SALT}.key", "identifiers", algorithm="sha256").digest()))
