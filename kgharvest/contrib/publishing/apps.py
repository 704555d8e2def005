from kgharvest.optional_apps import OptionalApp


class PublishingConfig(OptionalApp):
    default = True  # needed because the module also contains the base class
    name = "kgharvest.contrib.publishing"
    label = "publishing"
    url_configuration = "kgharvest.contrib.publishing.urls"
    panels = {
        "draft_actions": ["kgharvest.contrib.publishing.panels.preregister_round"],
        "draft": ["kgharvest.contrib.publishing.panels.versions"],
        "round_actions": ["kgharvest.contrib.publishing.panels.preregister_round"],
        "round_badges": ["kgharvest.contrib.publishing.panels.badge"],
        "round": ["kgharvest.contrib.publishing.panels.versions"],
        "report_actions": ["kgharvest.contrib.publishing.panels.paper"],
    }
    report_sections = ["kgharvest.contrib.publishing.preregistration.report_section.SECTION"]
    report_outputs = {"pack.zip": "kgharvest.contrib.publishing.packs.pack_jobs.write_pack_of"}
    study_sections = ["kgharvest.contrib.publishing.preregistration.study_section.SECTION"]
    draft_deleted = ["kgharvest.contrib.publishing.preregistration.services.note_deletion"]
    job_runners = {"pack": "kgharvest.contrib.publishing.packs.pack_jobs.run_pack_job"}
    periodic_tasks = ["kgharvest.contrib.publishing.packs.pack_jobs.sweep"]
    audited = {"preregistration": "kgharvest.contrib.publishing.preregistration.services.PREREGISTRATIONS"}
