import json
from pathlib import Path

from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.contrib.knowledge_graphs.imports.conceptnet import Filter, filtered_facts, read_assertions
from kgharvest.management.command import DomainCommand, natural, positive
from kgharvest.pages.number_format import counted
from kgharvest.relations.names import relations_of_set

DEFAULTS = Filter()


class Command(DomainCommand):
    help = "Filter ConceptNet's assertions as in BertNet (Appendix B) and write them as facts for evaluate_scores."

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, metavar="FILE", help="assertions of ConceptNet 5 (.csv or .csv.gz)")
        parser.add_argument(
            "--set", dest="set_name", required=True, metavar="NAME", help="set of the relations to write"
        )
        weight_help = "write only facts with a larger weight (default: 1)"
        parser.add_argument("--min-weight", type=float, default=DEFAULTS.min_weight, help=weight_help)
        facts_help = "omit relations with fewer facts (default: 1000)"
        parser.add_argument("--min-facts", type=natural, default=DEFAULTS.min_facts, help=facts_help)
        parser.add_argument(
            "--per-relation", type=positive, metavar="N", help="draw N facts per relation (default: all)"
        )
        parser.add_argument("--seed", type=int, default=DEFAULTS.seed, help="random seed of the sample (default: 0)")
        parser.add_argument("--output", required=True, type=Path, metavar="F.jsonl", help="file of facts to write")

    def handle(self, *, file, set_name, output, **options):
        check_writable(output)
        names = {relation.name for relation in relations_of_set(set_name)}
        limits = Filter(**{name: options[name] for name in Filter._fields})
        facts = filtered_facts(read_assertions(file), names, file.name, limits)
        rows = [row | {"relation": f"{set_name}/{row['relation']}"} for row in facts.rows]
        write_atomically(output, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        n_relations = len({row["relation"] for row in rows})
        self.stdout.write(f"{output}: {counted(len(rows), 'fact')} of {counted(n_relations, 'relation')}.")
        for reason, n in facts.skipped.items():
            self.stdout.write(f"Skipped: {n:,} {reason}.")
