from kgharvest.optional_apps import OptionalApp


class ProbingConfig(OptionalApp):
    default = True  # the module also contains the base class
    name = "kgharvest.contrib.probing"
    label = "probing"
    url_configuration = "kgharvest.contrib.probing.urls"
    panels = {
        "report_list_actions": [
            "kgharvest.contrib.probing.probes.views.link_to_probes",
            "kgharvest.contrib.probing.text_tasks.views.link_to_text_tasks",
        ]
    }
    job_runners = {
        "probe": "kgharvest.contrib.probing.probes.runner.run_probe",
        "text-task": "kgharvest.contrib.probing.text_tasks.runner.run_text_task",
    }
    lm_jobs = ["probe", "text-task"]
    study_sections = ["kgharvest.contrib.probing.probes.study_section.SECTION"]
