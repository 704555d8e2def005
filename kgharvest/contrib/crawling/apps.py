from kgharvest.optional_apps import OptionalApp


class CrawlingConfig(OptionalApp):
    default = True  # the module also contains the base class
    name = "kgharvest.contrib.crawling"
    label = "crawling"
    job_runners = {"crawl": "kgharvest.contrib.crawling.runner.run_crawl"}
    lm_jobs = ["crawl"]
