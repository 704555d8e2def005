"""Runner of judge runs: sends open questions to the judge and stores each answer on arrival."""

from functools import partial
from typing import Any

from annotation.judges.chat_judges import ChatJudge
from annotation.judges.models import OUT_OF_BUDGET, JudgeKind, JudgeRun
from annotation.judges.runs import open_questions, store_answers, usage_of
from kgharvest.chat_models.spending import BudgetSpent
from kgharvest.engine.types import Progress
from kgharvest.harvests.language_models import LOADING
from kgharvest.jobs import ledger
from kgharvest.models import Job

ASKING = "asking the judge"


def run_judge(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Run a judge as a job. A job that was interrupted continues with the questions that have no answer."""
    run = JudgeRun.objects.select_related("round__project", "created_by").get(pk=job.pk)
    heartbeat(Progress(LOADING, 0))
    with heartbeat.kept_alive():
        questions, total = open_questions(run)
        judge: Any
        if run.judge_kind == JudgeKind.CHAT:
            judge = ChatJudge(run, usage_of(run))
        else:
            # Imports torch, which only local judges need.
            from annotation.judges.lm_judges import CausalJudge, ScoreJudge

            judge = (CausalJudge if run.judge_kind == JudgeKind.CAUSAL else ScoreJudge)(run)
    done = total - len(questions)

    def tick() -> None:
        heartbeat(Progress(ASKING, done, total))

    try:
        for answers in judge.answers(questions, tick):
            heartbeat.store(partial(store_answers, run, answers))
            done += sum(answer.is_answer for answer in answers)
            tick()
    except BudgetSpent:
        heartbeat(Progress(OUT_OF_BUDGET, done, total))
        raise
    return lambda: JudgeRun.objects.filter(pk=run.pk).update(done=total, total=total)  # heartbeats may skip updates
