"""Registries: dotted paths to extensions, for packages that may not import the extensions.

Panels of pages, report sections, hooks, job kinds, periodic tasks, audited tables, and metrics. They are settings
(`django.conf.settings.PANELS`), which optional apps extend (kgharvest.optional_apps).
"""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

# Links of the main navigation: label and URL name, in workflow order
NAVIGATION = [
    ("Relations", "kgharvest:relation_list"),
    ("Harvests", "kgharvest:harvest_list"),
    ("Knowledge base", "kgharvest:tuple_list"),
    ("Rounds", "annotation:round_list"),
    ("Reports", "evaluation:report_list"),
]

# Panels by page region: functions of (request, subject), in the order in which the page shows their panels
# (pages.panels)
PANELS = {
    "navigation": [],  # links shown after those of NAVIGATION
    # stages of the study, for researchers
    "home_stages": [
        "kgharvest.pages.home.home_stages",
        "annotation.panels.home_stages",
        "evaluation.panels.home_stages",
    ],
    "home_return": ["annotation.panels.return_link"],  # shown to guest annotators
    "home_work": ["annotation.panels.home_work"],  # rounds of an annotator
    "harvest_list_actions": [],  # shown to people who can create harvests
    "relation_harvests": ["evaluation.panels.compare_relation"],  # subject: a relation with several harvests
    # subject: a harvest
    "harvest_next": ["annotation.panels.open_round_of_harvest"],  # primary action
    "harvest_actions": ["evaluation.panels.compare_harvest"],  # entries of the menu
    "harvest": ["annotation.panels.harvest_rounds"],
    "launch_actions": ["annotation.panels.open_round_of_launch"],  # subject: a launch
    "tuple": ["annotation.panels.tuple_judgments"],  # subject: a knowledge tuple
    "project": [
        "kgharvest.pages.home.project_contents",
        "annotation.panels.project_contents",
        "evaluation.panels.project_contents",
    ],
    "project_people": ["annotation.panels.erase_people"],  # subject: a project; for its owners
    # subject: a draft that can be opened; entries of a menu
    "draft_actions": ["evaluation.panels.rehearse_draft"],
    "draft": [],  # subject: a draft
    # subject: a round; for its managers. round_actions are entries of a menu
    "round_report": ["evaluation.panels.make_report"],
    "round_actions": ["evaluation.panels.study_of_round"],
    "round_badges": [],  # subject: a round or draft; next to its status
    "round": [  # subject: a round
        "evaluation.panels.round_reports",
        "annotation.panels.who_took_part",
    ],
    "judge_run": ["evaluation.panels.judge_card"],  # subject: a judge run; below its labels
    "report_list_actions": ["evaluation.panels.studies"],
    "report_actions": [],  # subject: a report
}

# Functions that other apps provide: `hook(question)` returns the function.
HOOKS = {
    # Takes a user. Returns the verdicts on tuples for search, as a kgharvest.knowledge.search.TupleVerdicts.
    "tuple_verdicts": "annotation.panels.JudgedTuples",
    # Takes a job and a cut such as `precision:0.8`. Returns a kgharvest.harvests.cuts.ScoreCut estimated from
    # judgments.
    "cut_from_judgments": "evaluation.evidence.judged_harvests.score_cut",
    # Takes a round. Returns the largest half-width of the round's fixed-width intervals, or None while any is
    # undefined.
    "half_width": "evaluation.panels.half_width",
    # Takes a user. Returns the next action on the home page, as an evaluation.next_action.NextAction, or None.
    "next_action": "evaluation.next_action.next_action",
    # Yields the name of each report, and the head of the audit log that the report contains.
    "audit_heads": "evaluation.reports.services.reported_heads",
    # Takes the ids of finished, failed, or canceled jobs. It is called in the transaction that ends these jobs.
    "jobs_ended": "kgharvest.harvests.launches.record_ended_jobs",
    # Seals pending judgments, and returns their number.
    "seal": "annotation.judging.sealing.seal_judgments",
    # Returns an annotation.invites.recruitment.Recruitment. The app `recruiting` replaces this function.
    "recruitment": "annotation.invites.recruitment.Recruitment",
}

# Functions of (draft, user), called in the transaction before a draft is deleted
DRAFT_DELETED: list[str] = []

# Report sections of optional apps: instances of evaluation.reports.report_sections.ReportSection
REPORT_SECTIONS: list[str] = []

# Files that studies write in addition to report files, by file name: functions of (report, path)
REPORT_OUTPUTS = {
    "pack.zip": "evaluation.studies.outputs.refuse_pack",  # the app `publishing` replaces it
}

# Sections of study files: instances of evaluation.studies.sections.StudySection
STUDY_SECTIONS = ["evaluation.studies.scores.SECTION"]

# Outboxes (kgharvest.jobs.outbox.Outbox) by job kind
OUTBOXES = {
    "deliver_webhooks": "kgharvest.webhooks.delivery.outbox",
}

# Runners by job kind: functions of (job, heartbeat) that run the job and return a function that stores the result
# (jobs.ledger)
JOB_RUNNERS = {
    "harvest": "kgharvest.harvests.runner.run_harvest",
    "harvest-part": "kgharvest.harvests.parts.sharing.run_part",
    "mark_sensitive": "kgharvest.knowledge.sensitive_words.mark_sensitive",
    "evaluate_scores": "evaluation.scores.score_jobs.run_score_job",
    "judge": "annotation.judges.runner.run_judge",
    "send_audit_heads": "kgharvest.audit.heads.send_heads",
    "verify_audit_log": "kgharvest.audit.heads.run_verification",
    **OUTBOXES,
}
# Job kinds by queue. All other kinds are light (kgharvest.jobs.queues). Urgent jobs are short, and users wait for them:
# for example, exports and rounds use the old word list until tuples are marked.
URGENT_JOBS = ["mark_sensitive", *OUTBOXES]
# Kinds of jobs that can load an LM on the `device` of their payload.
LM_JOBS = ["harvest", "harvest-part", "evaluate_scores", "judge"]

# Periodic tasks, which every worker runs every few seconds: functions of the current time
PERIODIC_TASKS = [
    "annotation.rounds.services.note_complete_rounds",
    "annotation.rounds.services.close_due_rounds",
    "annotation.judging.sealing.seal_due_judgments",
    "kgharvest.events.chain.seal_due_events",
    "kgharvest.audit.heads.enqueue_due_jobs",
    "annotation.questionnaire.withdrawal.finish_withdrawals",
    "kgharvest.jobs.outbox.enqueue_due_outboxes",
    "kgharvest.accounts.sign_in.session_store.delete_expired_sessions",
]

# Audited tables, compared by `audit verify` with the audit log. Names are stored in entries and must not change
# (kgharvest.audit.tables).
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
    "round": "annotation.rounds.services.ROUNDS",
    "stratum": "annotation.rounds.services.STRATA",
    "statement": "annotation.rounds.services.STATEMENTS",
    "judge-run": "annotation.judges.runs.JUDGE_RUNS",
    "harvest": "kgharvest.harvests.runner.HARVESTS",
    "relation": "kgharvest.relations.services.RELATIONS",
    "member": "kgharvest.accounts.projects.MEMBERS",
    "token": "kgharvest.accounts.tokens.TOKENS",
    "account": "kgharvest.accounts.account_events.ACCOUNTS",
}

# Checks of `audit verify` besides the hashes: functions that yield errors, one sentence each
AUDIT_CHECKS = ["annotation.judging.verdict_check.wrong_verdicts"]

# Event types of optional apps: sequences of kgharvest.events.types.EventType
EVENT_TYPES: list[str] = []

# Metrics for each scrape: functions of the current time that return operations.metrics.Readings
METRICS = [
    "kgharvest.operations.metrics.job_metrics",
    "annotation.panels.judgment_metrics",
]


def hook(question: str) -> Callable[..., Any]:
    """Return the function for a key of HOOKS. HOOKS documents the arguments and results of each function."""
    return import_string(settings.HOOKS[question])
