import json
from pathlib import Path

from annotation.rounds.services import find_round
from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.contrib.knowledge_graphs.lm_kbc.challenge_files import (
    read_questions,
    scores_by_relation,
    subjects_by_relation,
)
from kgharvest.contrib.knowledge_graphs.lm_kbc.predictions import Predictor, learn_thresholds
from kgharvest.contrib.knowledge_graphs.lm_kbc.set_scores import macro_score, mean_score
from kgharvest.engine.settings import PROMPT_SETTINGS
from kgharvest.errors import DomainError
from kgharvest.harvests.language_models import LM_NAMES_HELP, get_language_model
from kgharvest.management.command import DomainCommand, add_project_argument
from kgharvest.pages.number_format import counted
from kgharvest.relations.names import resolve_relation

COPIED = ("SubjectEntity", "SubjectEntityID", "Relation")


class Command(DomainCommand):
    help = "LM-KBC challenge: write the subjects of a data file, learn score thresholds, predict objects, and score."

    def add_arguments(self, parser):
        verbs = parser.add_subparsers(dest="verb", required=True, help="action")
        subjects = verbs.add_parser("subjects", help="write one file of heads per relation, for harvest --heads")
        learn = verbs.add_parser("learn", help="learn the score threshold of each cell from a judged round")
        predict = verbs.add_parser("predict", help="write the prediction file from finished harvests")
        score = verbs.add_parser("score", help="print precision, recall, and F1 per relation and on average")
        for verb, output in ((subjects, "FOLDER"), (predict, "F.jsonl")):
            verb.add_argument("file", type=Path, metavar="DATA", help="data file of the challenge, JSON Lines")
            verb.add_argument("--output", type=Path, required=True, metavar=output, help="output")
        learn.add_argument("--round", required=True, metavar="NAME", help="round name or project/NAME")
        predict.add_argument("--set", dest="set_name", metavar="NAME", help="relation set of the relations")
        predict.add_argument("--model", default="embedded", help=f"LM: {LM_NAMES_HELP} (default: embedded)")
        predict.add_argument("--setting", choices=PROMPT_SETTINGS, default="multi", help="setting (default: multi)")
        least_help = "minimum score of cells without a learned threshold (default: no limit)"
        predict.add_argument("--min-score", type=float, metavar="X", help=least_help)
        add_project_argument(predict)
        score.add_argument("predictions", type=Path, metavar="PREDICTIONS", help="prediction file")
        score.add_argument("gold", type=Path, metavar="GOLD", help="data file with objects")
        score.add_argument("--ids", action="store_true", help="compare ids instead of names")

    def handle(self, *, verb, **options):
        getattr(self, verb)(**options)

    def subjects(self, *, file, output, **options):
        by_relation, relation_of = subjects_by_relation(read_questions(file).values()), {}
        for relation in by_relation:
            name = f"{relation.replace('/', '_')}.txt"
            other = relation_of.setdefault(name, relation)
            if other != relation:
                reason = f"Relations {other} and {relation} share the file name {name}. Rename a relation in {file}."
                raise DomainError("SharedFileName", reason)
        output.mkdir(parents=True, exist_ok=True)
        for name, relation in relation_of.items():
            path, subjects = output / name, by_relation[relation]
            write_atomically(path, (f"{' '.join(subject.split())}\n" for subject in subjects))
            self.stdout.write(f"{path}: {counted(len(subjects), 'subject')}")

    def learn(self, *, round, **options):
        for threshold in learn_thresholds(find_round(round)):
            self.stdout.write(str(threshold))

    def predict(self, *, file, set_name, model, setting, min_score, output, project, **options):
        check_writable(output)
        questions, predictions = read_questions(file), []
        language_model, project = get_language_model(model), project_for(None, project)
        for name, subjects in subjects_by_relation(questions.values()).items():
            predictor = Predictor(resolve_relation(name, set_name), language_model, setting, project, min_score)
            self.stdout.write(str(predictor.threshold or f"{name}: no learned threshold"))
            for subject, prediction in zip(subjects, predictor.predict(subjects), strict=True):
                line = questions[subject, name].line
                predictions.append({key: line[key] for key in COPIED if key in line} | prediction)
        write_atomically(output, (f"{json.dumps(line, ensure_ascii=False)}\n" for line in predictions))
        n_null = sum(not prediction["ObjectEntities"] for prediction in predictions)
        self.stdout.write(f"{output}: {counted(len(predictions), 'subject')}, {counted(n_null, 'null answer')}.")

    def score(self, *, predictions, gold, ids, **options):
        scores, n_missing = scores_by_relation(predictions, gold, ids)
        rows = [(relation, len(of_relation), mean_score(of_relation)) for relation, of_relation in scores.items()]
        subjects = [score for of_relation in scores.values() for score in of_relation]
        rows.append(("mean over relations", len(subjects), macro_score(scores)))
        rows.append(("mean over subjects", len(subjects), mean_score(subjects)))
        width = max(len(name) for name, *_ in rows)
        self.stdout.write(f"{'relation':<{width}}  subjects  precision  recall     F1")
        for name, n, (precision, recall, f1) in rows:
            self.stdout.write(f"{name:<{width}}  {n:>8,}  {precision:>9.3f}  {recall:>6.3f}  {f1:>5.3f}")
        if n_missing:
            self.stderr.write(f"{n_missing:,} of {len(subjects):,} predictions are missing; they count as empty.")
