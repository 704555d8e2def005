"""`mine_prompts CORPUS ... --set NAME --output FOLDER [--facts PATH] [--how middle|dependency] [--most N]`"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from kgharvest.bulk.file_reading import lines_of, opened
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.contrib.probing.management.arguments import add_relation_arguments, chosen_relations
from kgharvest.contrib.probing.probes.facts import documents_in, read_facts
from kgharvest.engine.prompts.mining import (
    MinedPrompt,
    Pair,
    Sentence,
    mine_prompts,
    sentences_of_conllu,
    sentences_of_text,
)
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand, positive
from kgharvest.models import Relation
from kgharvest.pages.number_format import counted

CONLLU = ".conllu"


class Command(DomainCommand):
    help = "Find prompts in sentences that name both entities of known facts, as LPAQA mines them; for import_prompts."

    def add_arguments(self, parser):
        parser.add_argument(
            "corpus", type=Path, nargs="+", metavar="CORPUS", help="text with a sentence a line, or FILE.conllu"
        )
        add_relation_arguments(parser)
        parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="of RELATION.jsonl files")
        parser.add_argument(
            "--facts", type=Path, metavar="PATH", help="as for probe; of them the training facts (default: seed tuples)"
        )
        parser.add_argument(
            "--how",
            choices=["middle", "dependency"],
            default="middle",
            help="the words between the entities, or the path between them in parsed sentences (CoNLL-U)",
        )
        parser.add_argument("--most", type=positive, default=40, metavar="N", help="prompts of a relation (40)")

    def handle(self, *, corpus, output, facts, how, most, **options):
        if how == "dependency" and (plain := [path.name for path in corpus if path.suffix != CONLLU]):
            raise DomainError(
                "NotParsed", f"{plain[0]} is text without trees; --how dependency needs parsed sentences, FILE{CONLLU}."
            )
        relations = [relation for relation in chosen_relations(options) if relation.arity == 2]
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DomainError(
                "NotWritable", f"{output} cannot be made ({error.strerror}); name a folder that can."
            ) from None
        known = facts_of(relations, facts)
        sentences = chain.from_iterable(map(sentences_in, corpus))
        for name, prompts in mine_prompts(sentences, known, how, most).items():
            if prompts:
                write_atomically(output / f"{name}.jsonl", prompt_lines(prompts))
            self.stdout.write(f"{name}: {counted(len(prompts), 'prompt')} of {counted(len(known[name]), 'fact')}.")


def facts_of(relations: Sequence[Relation], path: Path | None) -> dict[str, list[Pair]]:
    """Return what to look for: training facts of a file, as nothing may be learned of what is asked, or seed tuples."""
    names = [relation.name for relation in relations]
    if path is None:
        return {relation.name: [tuple(seed) for seed in relation.seed_tuples] for relation in relations}
    read = read_facts(documents_in(path), names)
    return {name: list(read[name]["train"]) for name in names if name in read}


def sentences_in(path: Path) -> Iterator[Sentence]:
    with opened(path) as file:
        lines = lines_of(file, path.name)
        yield from sentences_of_conllu(lines) if path.suffix == CONLLU else sentences_of_text(lines)


def prompt_lines(prompts: Sequence[MinedPrompt]) -> Iterator[str]:
    """Yield the lines of LPAQA's files; a weight is the share of a prompt in those that are kept."""
    total = sum(prompt.n for prompt in prompts)
    for prompt in prompts:
        line = {"template": prompt.template, "weight": round(prompt.n / total, 6), "n": prompt.n}
        yield json.dumps({**line, "n_facts": prompt.n_facts}, ensure_ascii=False) + "\n"
