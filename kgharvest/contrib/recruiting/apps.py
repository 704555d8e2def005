from kgharvest.optional_apps import OptionalApp


class RecruitingConfig(OptionalApp):
    default = True  # needed because the module also contains the base class
    name = "kgharvest.contrib.recruiting"
    label = "recruiting"
    url_configuration = "kgharvest.contrib.recruiting.urls"
    panels = {
        "round_actions": ["kgharvest.contrib.recruiting.views.recruit"],
        "recruiting_panel": [  # URL name of the page of a recruitment panel
            "kgharvest.contrib.recruiting.prolific.views.platform_state",
            "kgharvest.contrib.recruiting.views.pay_summary",
        ],
    }
    hooks = {"recruitment": "kgharvest.contrib.recruiting.recruitment.PanelRecruitment"}
    outboxes = {
        "platform_commands": "kgharvest.contrib.recruiting.pay.commands.outbox",
        "panel_events": "kgharvest.contrib.recruiting.prolific.events.outbox",
    }
    job_runners = {
        "pause_panel": "kgharvest.contrib.recruiting.pay.bonuses.run_pause_job",
        "panel_reconciliation": "kgharvest.contrib.recruiting.reconciliation.run_reconciliation_job",
    }
    urgent_jobs = ["pause_panel", "panel_reconciliation"]
    periodic_tasks = [
        "kgharvest.contrib.recruiting.recruitment.forget_settled_submissions",
        "kgharvest.contrib.recruiting.pay.bonuses.pause_underpaid_panels",
        "kgharvest.contrib.recruiting.reconciliation.enqueue_due_reconciliations",
    ]
    audited = {
        "payment": "kgharvest.contrib.recruiting.pay.ledger.PAYMENTS",
        "debt": "kgharvest.contrib.recruiting.pay.ledger.DEBTS",
    }
