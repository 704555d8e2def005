import json
from pathlib import Path

from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.contrib.knowledge_graphs.imports.completion import COMET_TEMPLATE, read_pairs, scored
from kgharvest.contrib.knowledge_graphs.management.commands.complete_heads import TEMPLATE_HELP
from kgharvest.management.command import DomainCommand, add_device_argument
from kgharvest.pages.number_format import counted
from kgharvest.progress_bar import ProgressBar


class Command(DomainCommand):
    help = "Score tuples by log P(tail | head, relation) of a text-to-text model such as COMET, for evaluate_scores."

    def add_arguments(self, parser):
        tuples_help = "JSON lines with relation and two entities, for example of evaluate_scores --samples"
        parser.add_argument("file", type=Path, metavar="FILE", help=tuples_help)
        parser.add_argument("--model", required=True, help="text-to-text model: hub id or folder")
        parser.add_argument("--template", default=COMET_TEMPLATE, help=TEMPLATE_HELP.replace("%", "%%"))
        system_help = "name of the scores (default: last part of the model's name)"
        parser.add_argument("--system", metavar="NAME", help=system_help)
        add_device_argument(parser)
        parser.add_argument("--output", required=True, type=Path, metavar="F.jsonl", help="file of scores to write")

    def handle(self, *, file, model, template, system, device, output, **options):
        from kgharvest.engine.language_models.loading import load_seq2seq

        check_writable(output)
        pairs = read_pairs(file)
        with ProgressBar("scoring") as bar:
            rows = scored(load_seq2seq(model, device=device), pairs, template, system or Path(model).name, bar)
            write_atomically(output, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        self.stdout.write(f"{output}: scores of {counted(len(pairs), 'tuple')}.")
