from kgharvest.optional_apps import OptionalApp


class KnowledgeGraphsConfig(OptionalApp):
    default = True  # needed because the module also contains the base class
    name = "kgharvest.contrib.knowledge_graphs"
    label = "knowledge_graphs"
    url_configuration = "kgharvest.contrib.knowledge_graphs.urls"
    panels = {
        "harvest_list_actions": ["kgharvest.contrib.knowledge_graphs.panels.kg_import"],
        "report_actions": ["kgharvest.contrib.knowledge_graphs.panels.judged_kg"],
    }
    periodic_tasks = ["kgharvest.contrib.knowledge_graphs.imports.kg_import.delete_expired_uploads"]
