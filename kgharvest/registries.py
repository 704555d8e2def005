"""Registries: what rooms add to parts of the project that may not import them, by dotted path.

Panels of pages, sections of reports, hooks, kinds of jobs, periodic tasks, audited tables and metrics. They are
settings (`django.conf.settings.PANELS`), which optional apps extend (kgharvest.optional_apps).
"""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

# What apps add to pages of apps to their right: functions of (request, subject), in the page's order (pages.panels)
PANELS = {
    "navigation": ["kgharvest.pages.home.navigation", "annotation.panels.navigation", "evaluation.panels.navigation"],
    "home_steps": ["kgharvest.pages.home.home_steps", "annotation.panels.home_steps", "evaluation.panels.home_steps"],
    "home_next": [  # what to do next; the first that one of them yields is shown
        "kgharvest.pages.home.next_steps",
        "annotation.panels.first_round",
        "evaluation.panels.report_to_make",
        "annotation.panels.waiting_rounds",
    ],
    "home_under_way": ["annotation.panels.open_rounds", "kgharvest.pages.home.harvests_under_way"],
    "home_results": ["evaluation.panels.newest_report"],
    "home_return": ["annotation.panels.return_link"],  # for who judges without an account
    "home_work": ["annotation.panels.home_work"],  # what an annotator can go on with
    "harvest_list_actions": [],  # for people who can create harvests
    "relation_harvests": ["evaluation.panels.compare_relation"],  # subject: a relation with several harvests
    # subject: a harvest
    "harvest_actions": ["annotation.panels.open_round_of_harvest", "evaluation.panels.compare_harvest"],
    "harvest": ["annotation.panels.harvest_rounds"],
    "launch_actions": ["annotation.panels.open_round_of_launch"],  # subject: a launch
    "tuple": ["annotation.panels.tuple_judgments"],  # subject: a knowledge tuple
    "project": [
        "kgharvest.pages.home.project_contents",
        "annotation.panels.project_contents",
        "evaluation.panels.project_contents",
    ],
    "project_people": ["annotation.panels.erase_people"],  # subject: a project, for those who manage it
    # subject: a draft that can be opened
    "draft_actions": ["evaluation.panels.rehearse_draft"],
    "draft": [],  # subject: a draft
    # subject: a round, for those who manage it
    "round_actions": ["evaluation.panels.make_report"],
    "round_badges": [],  # subject: a round or draft, beside its status
    "round": [  # subject: a round
        "evaluation.panels.round_reports",
        "annotation.panels.who_took_part",
    ],
    "judge_run": ["evaluation.panels.judge_card"],  # subject: a judge run, below its labels
    "report_list_actions": [],
    "report_actions": [],  # subject: a report
}

# What apps ask of apps to their left: `hook(question)` returns the function.
HOOKS = {
    # user -> kgharvest.knowledge.search.TupleVerdicts: what people judged about tuples, for search
    "tuple_verdicts": "annotation.panels.JudgedTuples",
    # job, `precision:0.8` -> kgharvest.harvests.cuts.ScoreCut that judgments give
    "cut_from_judgments": "evaluation.evidence.judged_harvests.score_cut",
    # round -> the largest half-width of its averages that holds at every look, None while one is not known
    "half_width": "evaluation.panels.half_width",
    # -> heads of the audit trail that reports name, each with the report's name
    "audit_heads": "evaluation.reports.services.reported_heads",
    # ids of jobs that have ended, however; called in the transaction that ends them
    "jobs_ended": "kgharvest.harvests.launches.record_ended_jobs",
    # seal judgments that no event speaks for yet -> their number
    "seal": "annotation.judging.sealing.seal_judgments",
    # -> annotation.invites.recruitment.Recruitment; the app `recruiting` replaces it
    "recruitment": "annotation.invites.recruitment.Recruitment",
}

# Functions of (draft, user), called before a draft is deleted, in the same transaction.
DRAFT_DELETED: list[str] = []

# Sections that optional apps add to reports: instances of evaluation.reports.report_sections.ReportSection.
REPORT_SECTIONS: list[str] = []

# Outboxes (kgharvest.jobs.outbox.Outbox) by their kind of job.
OUTBOXES = {
    "deliver_webhooks": "kgharvest.webhooks.delivery.outbox",
}

# What runs each kind of job: functions of (job, heartbeat) that return what stores the result (kgharvest.jobs.ledger).
JOB_RUNNERS = {
    "harvest": "kgharvest.harvests.runner.run_harvest",
    "harvest-part": "kgharvest.harvests.parts.sharing.run_part",
    "mark_sensitive": "kgharvest.knowledge.sensitive_words.mark_sensitive",
    "evaluate_scores": "evaluation.scores.score_jobs.run_score_job",
    "judge": "annotation.judges.runner.run_judge",
    **OUTBOXES,
}
# Kinds of jobs by what their workers need; a kind in neither is light (kgharvest.jobs.queues). Urgent ones are short,
# and somebody waits: until the tuples are marked, exports and rounds go by the old list of words.
URGENT_JOBS = ["mark_sensitive", *OUTBOXES]
LM_JOBS = [
    "harvest",
    "harvest-part",
    "evaluate_scores",
    "judge",
]  # load an LM, or may, on the `device` of their payload

# What every worker does every few seconds, besides recovering lost jobs: functions of the time.
PERIODIC_TASKS = [
    "annotation.rounds.services.note_complete_rounds",
    "annotation.rounds.services.close_due_rounds",
    "annotation.judging.sealing.seal_due_judgments",
    "kgharvest.events.chain.seal_due_events",
    "annotation.questionnaire.withdrawal.finish_withdrawals",
    "kgharvest.jobs.outbox.enqueue_due_outboxes",
    "kgharvest.accounts.sign_in.session_store.delete_expired_sessions",
]

# Tables whose rows `audit verify` compares with what the audit trail recorded, by the names that its entries have for
# them, which stay (kgharvest.audit.tables).
AUDITED = {
    "judgment": "annotation.judging.sealing.JUDGMENTS",
    "adjudication": "annotation.quality.adjudication.ADJUDICATIONS",
    "exclusion": "annotation.quality.exclusion.EXCLUSIONS",
    "reinstatement": "annotation.quality.exclusion.REINSTATEMENTS",
    "withdrawal": "annotation.questionnaire.withdrawal.WITHDRAWALS",
    "gold-decision": "annotation.gold.candidates.GOLD_DECISIONS",
    "gold-withdrawal": "annotation.gold.candidates.GOLD_WITHDRAWALS",
    "curation": "kgharvest.knowledge.curation.CURATIONS",
    "report": "evaluation.reports.services.REPORTS",
}

# Event types of optional apps: sequences of kgharvest.events.types.EventType
EVENT_TYPES: list[str] = []

# What is measured at each scrape: functions of the time that return operations.metrics.Readings.
METRICS = [
    "kgharvest.operations.metrics.job_metrics",
    "kgharvest.operations.metrics.webhook_metrics",
    "annotation.panels.judgment_metrics",
]


def hook(question: str) -> Callable[..., Any]:
    """Return the function of another app that answers a question; HOOKS says what each takes and returns."""
    return import_string(settings.HOOKS[question])
