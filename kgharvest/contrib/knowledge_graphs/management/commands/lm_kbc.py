from pathlib import Path

from annotation.rounds.services import find_round
from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.contrib.knowledge_graphs.lm_kbc.challenge_files import (
    prediction_line,
    read_questions,
    score_lines,
    scores_by_relation,
    subjects_by_relation,
)
from kgharvest.contrib.knowledge_graphs.lm_kbc.predictions import Predictor, learn_thresholds
from kgharvest.engine.settings import PROMPT_SETTINGS
from kgharvest.harvests.language_models import LM_NAMES_HELP, get_language_model
from kgharvest.management.command import DomainCommand, add_project_argument
from kgharvest.pages.number_format import counted
from kgharvest.relations.names import resolve_relation
from kgharvest.statistics.set_scores import macro_score, mean_score


class Command(DomainCommand):
    help = "LM-KBC challenge: write the subjects of a data file, learn score thresholds, predict objects, and score."

    def add_arguments(self, parser):
        verbs = parser.add_subparsers(dest="verb", required=True, help="action")
        data_help = "data file of the challenge, JSON Lines"
        subjects = verbs.add_parser("subjects", help="write one file of heads per relation, for harvest --heads")
        subjects.add_argument("file", type=Path, metavar="DATA", help=data_help)
        subjects.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="output folder")
        learn = verbs.add_parser("learn", help="learn the score threshold of each cell from a judged round")
        learn.add_argument("--round", required=True, metavar="NAME", help="round name or project/NAME")
        predict = verbs.add_parser("predict", help="write the prediction file from finished harvests")
        predict.add_argument("file", type=Path, metavar="DATA", help=data_help)
        predict.add_argument("--set", dest="set_name", metavar="NAME", help="relation set of the relations")
        predict.add_argument("--model", default="embedded", help=f"LM: {LM_NAMES_HELP} (default: embedded)")
        predict.add_argument("--setting", choices=PROMPT_SETTINGS, default="multi", help="setting (default: multi)")
        least_help = "minimum score of cells without a learned threshold (default: no limit)"
        predict.add_argument("--min-score", type=float, metavar="X", help=least_help)
        predict.add_argument("--output", type=Path, required=True, metavar="F.jsonl", help="output file")
        add_project_argument(predict)
        score = verbs.add_parser("score", help="print precision, recall, and F1 per relation and on average")
        score.add_argument("predictions", type=Path, metavar="PREDICTIONS", help="prediction file")
        score.add_argument("gold", type=Path, metavar="GOLD", help="data file with objects")
        score.add_argument("--ids", action="store_true", help="compare ids instead of names")

    def handle(self, *, verb, **options):
        getattr(self, verb)(**options)

    def subjects(self, *, file, output, **options):
        output.mkdir(parents=True, exist_ok=True)
        for relation, subjects in subjects_by_relation(read_questions(file)).items():
            path = output / f"{relation.replace('/', '_')}.txt"
            write_atomically(path, (f"{subject}\n" for subject in subjects))
            self.stdout.write(f"{path}: {counted(len(subjects), 'subject')}")

    def learn(self, *, round, **options):
        for threshold in learn_thresholds(find_round(round)):
            self.stdout.write(str(threshold))

    def predict(self, *, file, set_name, model, setting, min_score, output, project, **options):
        check_writable(output)
        questions = read_questions(file)
        language_model, lines, n_null = get_language_model(model), [], 0
        for name in subjects_by_relation(questions):
            relation = resolve_relation(name, set_name)
            predictor = Predictor(relation, language_model, setting, project_for(None, project), min_score)
            self.stdout.write(str(predictor.threshold or f"{name}: no learned threshold"))
            for predicted in predictor.predict([question for question in questions if question.relation == name]):
                lines.append(f"{prediction_line(*predicted)}\n")
                n_null += not predicted.objects
        write_atomically(output, lines)
        self.stdout.write(f"{output}: {counted(len(lines), 'subject')}, {counted(n_null, 'null answer')}.")

    def score(self, *, predictions, gold, ids, **options):
        scores = scores_by_relation(read_questions(predictions), read_questions(gold), ids)
        means = {relation: mean_score(of_relation) for relation, of_relation in scores.items()}
        means["mean over relations"] = macro_score(scores)
        means["mean over subjects"] = mean_score([score for of_relation in scores.values() for score in of_relation])
        for line in score_lines(scores, means):
            self.stdout.write(line)
