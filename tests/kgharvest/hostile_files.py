"""Read the worst accepted kinds of files, each in a child process, and print the memory and CPU time of each.

Output: JSON, {name: {"mb": peak growth of the resident set, "cpu_s": CPU time, "error": error message or ""}}.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import django

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kgharvest.settings")
django.setup()

from annotation.exchange.judgment_files import read_rows  # noqa: E402
from evaluation.scores.facts import facts_of_content  # noqa: E402
from kgharvest.bulk.file_reading import LARGEST_FILE  # noqa: E402
from kgharvest.contrib.probing.probes.facts import documents_of, read_facts, read_words  # noqa: E402
from kgharvest.contrib.probing.probes.facts import read_prompts as read_probe_prompts  # noqa: E402
from kgharvest.errors import DomainError  # noqa: E402
from kgharvest.relations.files import read_relation_file  # noqa: E402
from kgharvest.relations.prompt_files import PromptFile, read_prompts  # noqa: E402
from kgharvest.relations.services import import_relation_file  # noqa: E402

FACT = '{"sub": "%d", "obj": "b", "part": "dev"}\n'
PROMPT = '{"template": "[X] %d [Y]", "relation": "r"}\n'


def filled(line: bytes, size: int = LARGEST_FILE) -> bytes:
    """Repeat `line` as often as it fits into `size` bytes."""
    return line * (size // len(line))


def numbered(line: str) -> bytes:
    longest = len(line) + 6
    return "".join(line % number for number in range(LARGEST_FILE // longest)).encode()


def zipped(n_files: int, line: bytes, size: int) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(n_files):
            archive.writestr(f"{number}.jsonl", filled(line, size))
    return buffer.getvalue()


def relations(content: bytes, name: str = "file.json") -> None:
    import_relation_file(read_relation_file(name, content), "Not a name of a set, so that nothing is stored")


def judgments(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(content)
        file.flush()
        read_rows(Path(file.name))


def facts(content: bytes) -> None:
    read_facts(documents_of("facts.zip", content), ["r"])


def prompt_files(content: bytes) -> None:
    read_prompts([PromptFile("r.jsonl", "mined", content)])


CASES: dict[str, tuple[Callable[[bytes], object], Callable[[], bytes]]] = {
    "nothing": (len, bytes),
    "empty relations": (relations, lambda: b'{"relations": [' + filled(b"{},") + b"{}]}"),
    "lists instead of relations": (relations, lambda: b'{"relations": [' + filled(b"[],") + b"[]]}"),
    "relations with lists of lists": (relations, lambda: b'{"relations": [{"name": [' + filled(b"[],") + b"[]]}]}"),
    "a prompt of megabytes": (
        relations,
        lambda: b'{"relations": [{"name": "a", "initial_prompts": ["<ENT0> <ENT1> ' + filled("é".encode()) + b'"]}]}',
    ),
    "relations in wide characters": (relations, lambda: filled("😀".encode())),
    "relations in lines": (lambda content: relations(content, "lama.jsonl"), lambda: filled(b"{}\n")),
    "prompts in lines": (prompt_files, lambda: numbered(PROMPT)),
    "empty lines of prompts": (prompt_files, lambda: filled(b"{}\n")),
    "facts": (facts, lambda: numbered(FACT)),
    "empty facts": (facts, lambda: filled(b"{}\n")),
    "facts in one line": (facts, lambda: filled(b"[")),
    "a ZIP of 63 million lines": (facts, lambda: zipped(1, b"{}\n", 190 << 20)),
    "a ZIP of blank lines": (facts, lambda: zipped(20, b"\n", 9 << 20)),
    "a ZIP of many files": (facts, lambda: zipped(20_000, b"\n", 1)),
    "prompts of a probe": (
        lambda content: read_probe_prompts(documents_of("p.jsonl", content), ["r"]),
        lambda: numbered(PROMPT),
    ),
    "words": (lambda content: read_words("words.txt", content), lambda: numbered("%d\n")),
    "scores of empty facts": (lambda content: facts_of_content(content, "facts.jsonl"), lambda: filled(b"{}\n")),
    "invalid judgments": (judgments, lambda: b"relation,entities,annotator,label\n" + filled(b"a\n", 45 << 20)),
    "judgments in one line": (judgments, lambda: b"relation,entities,annotator,label\n" + filled(b"a", 45 << 20)),
}


def measure(name: str) -> dict[str, object]:
    read, content = CASES[name]
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        message = ""
        try:
            read(content())
        except DomainError as error:
            message = str(error)
        os.write(sender, message[:200].encode())
        os._exit(0)
    os.close(sender)
    _, status, usage = os.wait4(child, 0)
    with os.fdopen(receiver, "rb") as file:
        message = file.read().decode(errors="replace")
    return {"mb": usage.ru_maxrss / 1024, "cpu_s": usage.ru_utime + usage.ru_stime, "error": message, "status": status}


if __name__ == "__main__":
    results = {name: measure(name) for name in sys.argv[1:] or CASES}
    idle_mb = measure("nothing")["mb"]
    for result in results.values():
        result["mb"] = round(result["mb"] - idle_mb)
    json.dump(results, sys.stdout, indent=1)
