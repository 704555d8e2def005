import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from django.core.management.base import CommandError
from django.utils import timezone

from kgharvest.audit.heads import head_files, read_heads, signed_head
from kgharvest.audit.tables import sha256
from kgharvest.audit.verification import Verification, stream
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.errors import DomainError
from kgharvest.events.chain import Head, head, seal_all
from kgharvest.events.models import Event
from kgharvest.management.command import DomainCommand
from kgharvest.pages.number_format import counted

FIELDS = ("number", "at", "project_id", "actor", "action", "subject_type", "subject_id", "facts", "row_hashes")
MOST_SHOWN = 1000  # maximum number of problems to print


class Command(DomainCommand):
    help = "Verify or export the audit log, or print its head."

    def add_arguments(self, parser):
        verbs = parser.add_subparsers(dest="verb", required=True, help="action")
        verify = verbs.add_parser("verify", help="recompute the hash chain and compare every audited row")
        head_help = "head that was recorded elsewhere, or file of signed heads, to compare with the log; repeatable"
        head_help += " (default: the files in KGHARVEST_AUDIT_HEADS)"
        verify.add_argument("--head", metavar="NUMBER:HASH|FILE", action="append", default=[], help=head_help)
        printed = verbs.add_parser("head", help="print the number and hash of the last entry, to record them elsewhere")
        printed.add_argument("--signed", action="store_true", help="print a signed line for a file of heads")
        export = verbs.add_parser("export", help="write all entries as JSON lines, oldest first")
        export.add_argument("--output", type=Path, metavar="F", help="file to write (default: standard output)")

    def handle(self, *, verb, **options):
        getattr(self, verb)(**options)

    def verify(self, head, **options):
        expected, errors = [], []
        for given in head or head_files():
            if Path(given).is_file():
                heads, wrong_lines = read_heads(Path(given))
                expected, errors = expected + heads, errors + wrong_lines
            else:
                expected.append(("--head", parse_head(given)))
        verification = Verification(expected)
        n_problems = 0
        for n_problems, sentence in enumerate(chain(errors, verification), start=1):
            if n_problems <= MOST_SHOWN:
                self.stdout.write(sentence)
        if n_problems:
            more = f", of which the first {MOST_SHOWN} are shown" if n_problems > MOST_SHOWN else ""
            problems = counted(n_problems, "problem")
            raise DomainError("TrailBroken", f"Audit log verification failed: {problems}{more}. See docs/audit.md.")
        verified = verification.verified
        rows = ", ".join(f"{n:,} of {name}" for name, n in sorted(verified.n_rows.items())) or "none"
        self.stdout.write(f"{verified.head.number:,} entries verified. Rows: {rows}.")
        for name, n in sorted(verified.n_unchecked.items()):
            self.stdout.write(f"Not checked: {n:,} of {name}, whose app is not installed (KGHARVEST_CONTRIB).")
        self.stdout.write(f"Heads recorded elsewhere: {len(expected):,}.")
        self.stdout.write(f"head: {verified.head.number}:{verified.head.hash}")

    def head(self, signed, **options):
        seal_all()
        last = head()
        self.stdout.write(signed_head(last, timezone.now()) if signed else f"{last.number}:{last.hash}")

    def export(self, output, **options):
        if output:
            write_atomically(output, (line.encode() for line in json_lines()))
            return
        for line in json_lines():
            self.stdout.write(line, ending="")


def parse_head(text: str) -> Head:
    number, _, entry_hash = text.partition(":")
    if not (number.isascii() and number.isdecimal() and len(number) < 19 and len(entry_hash) == 64):
        raise CommandError(f"Invalid head {text!r:.100}. Use NUMBER:HASH or an existing file.")
    return Head(int(number), entry_hash.lower())


def json_lines() -> Iterator[str]:
    """Yield all entries as JSON. row_hashes: list of lines.

    row_hashes_sha256: SHA-256 of these lines, which the entry's hash covers.
    """
    for entry in stream(Event.objects.sealed()):
        line = {name: getattr(entry, name) for name in FIELDS}
        line |= {
            "at": entry.at.isoformat(timespec="microseconds"),
            "row_hashes": entry.row_hashes.splitlines(),
            "row_hashes_sha256": sha256(entry.row_hashes),
            "previous_hash": entry.previous_hash,
            "hash": entry.hash,
        }
        yield json.dumps(line) + "\n"
