"""`mine_prompts CORPUS ... --set NAME --output FOLDER [--facts PATH] [--how middle|dependency] [--most N]`"""

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from kgharvest.bulk.file_reading import lines_of, opened
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.contrib.probing.management.arguments import add_relation_arguments, chosen_relations
from kgharvest.contrib.probing.probes.facts import documents_in, read_facts
from kgharvest.contrib.probing.prompt_learning.mining import (
    MinedPrompt,
    Sentence,
    mine_prompts,
    sentences_of_conllu,
    sentences_of_text,
)
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand, positive
from kgharvest.pages.number_format import counted

CONLLU = ".conllu"


class Command(DomainCommand):
    help = "Mine prompts (for import_prompts) from sentences that contain both entities of a known fact, as LPAQA does."

    def add_arguments(self, parser):
        parser.add_argument(
            "corpus", type=Path, nargs="+", metavar="CORPUS", help="text with one sentence per line, or FILE.conllu"
        )
        add_relation_arguments(parser)
        parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder for RELATION.jsonl")
        parser.add_argument(
            "--facts",
            type=Path,
            metavar="PATH",
            help="facts in the format of the command probe; only training facts are used (default: seed tuples)",
        )
        parser.add_argument(
            "--how",
            choices=["middle", "dependency"],
            default="middle",
            help="source: words between the entities (default), or the dependency path between them (CoNLL-U only)",
        )
        parser.add_argument(
            "--most", type=positive, default=40, metavar="N", help="maximum prompts per relation (default: 40)"
        )

    def handle(self, *, corpus, output, facts, how, most, **options):
        if how == "dependency" and (plain := [path.name for path in corpus if path.suffix != CONLLU]):
            raise DomainError(
                "NotParsed", f"{plain[0]} contains no dependency trees. --how dependency requires FILE{CONLLU}."
            )
        relations = [relation for relation in chosen_relations(options) if relation.arity == 2]
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DomainError(
                "NotWritable", f"Cannot create {output} ({error.strerror}). Specify a different folder."
            ) from None
        if facts is None:
            pairs = {relation.name: [tuple(seed) for seed in relation.seed_tuples] for relation in relations}
        else:  # dev and test facts are not used
            names = [relation.name for relation in relations]
            by_part = read_facts(documents_in(facts), names)
            pairs = {name: list(by_part[name]["train"]) for name in names if name in by_part}
        sentences = chain.from_iterable(map(sentences_in, corpus))
        for name, prompts in mine_prompts(sentences, pairs, how, most).items():
            if prompts:
                write_atomically(output / f"{name}.jsonl", prompt_lines(prompts))
            self.stdout.write(f"{name}: {counted(len(prompts), 'prompt')} from {counted(len(pairs[name]), 'fact')}.")


def sentences_in(path: Path) -> Iterator[Sentence]:
    with opened(path) as file:
        lines = lines_of(file, path.name)
        yield from sentences_of_conllu(lines) if path.suffix == CONLLU else sentences_of_text(lines)


def prompt_lines(prompts: Sequence[MinedPrompt]) -> Iterator[str]:
    """Yield lines in LPAQA's format. weight: the prompt's share of the occurrences of all these prompts."""
    total = sum(prompt.n for prompt in prompts)
    for prompt in prompts:
        line = {"template": prompt.template, "weight": round(prompt.n / total, 6), "n": prompt.n}
        yield json.dumps({**line, "n_facts": prompt.n_facts}, ensure_ascii=False) + "\n"
