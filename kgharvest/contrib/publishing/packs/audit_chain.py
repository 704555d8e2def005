"""Audit log in a package: hashes of the round's entries, up to the head that the report names.

The hashed text is included for entries that identify nobody. An entry with an actor, whose code the operators of the
installation could look up, or with a name or email address is included as a hash only.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from annotation.models import Round
from kgharvest.audit.tables import sha256
from kgharvest.bulk.file_reading import parse_json
from kgharvest.contrib.publishing.datasheets.facts import Scrub
from kgharvest.contrib.publishing.packs.archive import PackFile
from kgharvest.errors import DomainError
from kgharvest.events.chain import hashed_text
from kgharvest.events.models import Event

PATH = "audit.jsonl"
ACTIONS = ("judgments.sealed", "round.opened", "round.imported", "round.closed", "round.reopened")


def audit_files(round: Round, head: Mapping[str, Any], scrub: Scrub) -> list[PackFile]:
    """Return the audit file, or none for a report without an audit head. Raises OtherTrail."""
    if not head["number"]:
        return []
    last = Event.objects.filter(number=head["number"]).first()
    if last is None or last.hash != head["hash"]:
        raise DomainError(
            "OtherTrail",
            f"The audit log has no entry {head['number']} with the hash in the report. Run "
            "python manage.py audit verify to find altered entries.",
        )
    about = Event.objects.sealed().filter(project_id=round.project_id, action__in=ACTIONS, number__lt=last.number)
    entries = [entry for entry in about.iterator() if entry.known_facts.get("round") == round.name]
    lines = "".join(json.dumps(_line(entry, scrub), ensure_ascii=False) + "\n" for entry in (*entries, last))
    return [PackFile(PATH, lines.encode(), "application/jsonl", "Hashes of the audit log up to the report's head.")]


def _line(entry: Event, scrub: Scrub) -> dict[str, Any]:
    text = hashed_text(entry)
    names_nobody = entry.action in ACTIONS and not entry.actor and scrub(text) == text
    chain = {"number": entry.number, "previous_hash": entry.previous_hash, "hash": entry.hash}
    return chain | {"hashed": text if names_nobody else None}


class Chain:
    """Verification of a package's audit log. problems: sentences; n_recomputed: entries with a recomputed hash."""

    def __init__(self, content: bytes, head: Mapping[str, Any]) -> None:
        self.n_recomputed = 0
        self.is_head_recomputed = False
        self.problems = list(self._problems(content, head))

    def _problems(self, content: bytes, head: Mapping[str, Any]) -> Iterator[str]:
        try:
            lines = [parse_json(line) for line in content.decode().splitlines()]
            number = digest = None
            for line in lines:
                if number is not None and line["number"] <= number:
                    yield f"{PATH}, entry {line['number']}: out of order after entry {number}"
                if number is not None and line["number"] == number + 1 and line["previous_hash"] != digest:
                    yield f"{PATH}, entry {line['number']}: previous hash does not match the entry before"
                number, digest = line["number"], line["hash"]
                self.is_head_recomputed = line["hashed"] is not None
                if line["hashed"] is not None:
                    self.n_recomputed += 1
                    if sha256(line["hashed"]) != digest or parse_json(line["hashed"])[:2] != [
                        line["previous_hash"],
                        number,
                    ]:
                        yield f"{PATH}, entry {number}: hash does not match the text"
            if (number or 0) != head["number"] or (number and digest != head["hash"]):
                yield f"{PATH}: ends in entry {number or 0}; the report names {head['number']} with {head['hash']:.16}…"
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            yield f"{PATH}: cannot be read ({error!s:.100})"
