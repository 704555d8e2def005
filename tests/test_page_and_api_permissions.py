"""Pages and API actions that do the same thing admit the same people, according to the access tables.

Each row of the access tables has a counterpart, or a reason for the missing counterpart. Each API operation has a row
here, and each URL in test_access_table.
"""

from __future__ import annotations

import pytest
from django.urls import get_resolver

from tests.api import blanked, operations_of, url_patterns
from tests.evaluation.test_api_access import TABLE as EVALUATION_API
from tests.kgharvest.api.test_access import TABLE as PLATFORM_API
from tests.kgharvest.contrib.knowledge_graphs.test_api_access import TABLE as KNOWLEDGE_GRAPH_API
from tests.kgharvest.contrib.publishing.test_api_access import TABLE as PUBLISHING_API
from tests.kgharvest.contrib.recruiting.test_api_access import TABLE as RECRUITING_API
from tests.test_access_table import PEOPLE
from tests.test_access_table import rows as page_rows

DEFAULT = "/projects/default"
PILOT, DRAFT = f"{DEFAULT}/rounds/pilot", f"{DEFAULT}/rounds/draft"

# Pages and their API actions.
COUNTERPARTS = {
    "GET /projects/": "GET projects/",
    "POST /projects/new/": "POST projects/",
    f"GET {DEFAULT}/": "GET projects/{slug}/",
    f"POST {DEFAULT}/rename/": "PATCH projects/{slug}/",
    f"POST {DEFAULT}/members/{{member}}/role/": "PATCH projects/{slug}/members/{username}/",
    f"POST {DEFAULT}/invites/": "POST projects/{slug}/invites/",
    f"POST {DEFAULT}/invites/{{invite}}/revoke/": "DELETE projects/{slug}/invites/{invite}/",
    f"GET {DEFAULT}/audit/": "GET projects/{slug}/audit/",
    "GET /audit/": "GET audit/",
    f"GET {DEFAULT}/webhooks/": "GET projects/{slug}/webhooks/",
    f"POST {DEFAULT}/webhooks/{{webhook}}/rotate/": "POST projects/{slug}/webhooks/{webhook}/secret/",
    f"POST {DEFAULT}/webhooks/{{webhook}}/delete/": "DELETE projects/{slug}/webhooks/{webhook}/",
    "GET /relations/import/": "POST relation-sets/import/",
    "GET /relations/{relation}/": "GET relations/{relation}/",
    "GET /relations/{relation}/edit/": "PATCH relations/{relation}/",
    "POST /relations/{relation}/delete/": "DELETE relations/{relation}/",
    "GET /relations/sets/{set}/edit/": "PATCH relation-sets/{set_id}/",
    "GET /relations/sets/{set}/prompts/": "POST relation-sets/{set_id}/prompts/",
    "GET /relations/sets/{set}/entities/": "GET relation-sets/{set_id}/entities/",
    "GET /relations/sets/{set}/relations.json": "GET relation-sets/{set_id}/export/",
    "GET /workers/": "GET workers/",
    "POST /workers/{worker}/drain/": "POST workers/{worker}/drain/",
    "GET /harvests/": "GET harvests/",
    "GET /harvests/{harvest}/": "GET harvests/{harvest}/",
    "GET /harvests/{harvest}/tuples.jsonl": "GET harvests/{harvest}/export/",
    "GET /harvests/launches/{launch}/": "GET launches/{launch}/",
    "POST /harvests/launches/{launch}/cancel/": "POST launches/{launch}/cancel/",
    "POST /harvests/{queued}/cancel/": "POST jobs/{queued}/cancel/",
    "GET /knowledge/": "GET knowledge/",
    "POST /knowledge/tuples/{tuple}/": "POST knowledge/{tuple}/curations/",
    "POST /knowledge/sensitive-words/": "PUT sensitive-words/",
    "GET /rounds/gold/": "GET gold/decisions/",
    "GET /rounds/gold/{relation}/": "GET gold/candidates/{relation}/",
    "POST /rounds/gold/{relation}/": "POST gold/candidates/{relation}/",
    "POST /rounds/gold/{relation}/withdraw/{decision}/": "POST gold/decisions/{decision}/withdraw/",
    "GET /rounds/": "GET rounds/",
    f"GET {PILOT}/": "GET rounds/{open}/",
    f"GET {DRAFT}/preview/": "GET rounds/{draft}/preview/",
    f"GET {DRAFT}/rehearsal/": "GET rounds/{draft}/rehearsal/",
    f"POST {DRAFT}/open/": "POST rounds/{draft}/open/",
    f"POST {DRAFT}/delete/": "DELETE rounds/{draft}/",
    f"POST {PILOT}/close/": "POST rounds/{open}/close/",
    f"POST {PILOT}/archive/": "POST rounds/{done}/archive/",
    f"POST {PILOT}/restore/": "POST rounds/{done}/restore/",
    f"POST {PILOT}/release/": "POST rounds/{open}/release/",
    f"GET {PILOT}/judgments.csv": "GET rounds/{done}/judgments.csv",
    f"GET {PILOT}/events/": "GET rounds/{done}/events/",
    f"GET {PILOT}/statements/{{task}}/": "GET rounds/{done}/tasks/{task}/",
    f"GET {PILOT}/adjudicate/": "GET rounds/{done}/adjudication/",
    f"GET {PILOT}/limits/": "PUT rounds/{done}/limits/",
    f"GET {PILOT}/annotators/": "GET rounds/{done}/annotators/",
    f"GET {PILOT}/annotators/{{code}}/exclude/": "GET rounds/{done}/annotators/{code}/exclusion/",
    f"POST {PILOT}/annotators/{{code}}/erase/": "POST rounds/{done}/annotators/{code}/erase/",
    f"POST {PILOT}/invites/joining/": "PATCH rounds/{open}/",
    f"GET {PILOT}/invites/": "GET rounds/{open}/invites/",
    f"GET {PILOT}/reservations/": "GET rounds/{open}/reservations/",
    f"POST {PILOT}/reservations/{{reservation}}/release/": "DELETE rounds/{open}/reservations/{reservation}/",
    f"GET {PILOT}/judges/": "GET rounds/{open}/judge-runs/",
    f"GET {PILOT}/judges/new/": "POST rounds/{open}/judge-runs/",
    f"GET {PILOT}/panels/": "GET rounds/{open}/panels/",
    f"POST {PILOT}/panels/open/pause/": "POST rounds/{open}/panels/{open_panel}/pause/",
    f"GET {PILOT}/panels/paying/pay/": "GET rounds/{open}/panels/{open_panel}/pay/",
    "GET /reports/": "GET reports/",
    "GET /reports/{report}/": "GET reports/{report}/",
    "POST /reports/{report}/archive/": "POST reports/{report}/archive/",
    "POST /reports/{report}/restore/": "POST reports/{report}/restore/",
    "GET /reports/{report}/tuples/": "GET reports/{report}/tuples/",
    "POST /reports/{report}/pack/": "POST reports/{report}/packs/",
    "GET /reports/{report}/shares/": "GET reports/{report}/shares/",
    "POST /reports/{report}/shares/{share}/revoke/": "DELETE reports/{report}/shares/{share}/",
    "GET /reports/scores/": "GET score-evaluations/",
    "GET /reports/probes/": "GET probes/",
    "GET /reports/probes/{probe}/": "GET probes/{probe}/",
    "GET /reports/text-tasks/": "GET text-tasks/",
    "GET /reports/text-tasks/new/": "POST text-tasks/",
    "GET /reports/text-tasks/{text_task}/": "GET text-tasks/{text_task}/",
}
# The API plans a round description; the page plans an unsaved form.
COUNTERPARTS |= {"POST /rounds/plan/": "POST rounds/plan/", "GET /rounds/new/": "POST rounds/"}
COUNTERPARTS |= {
    "GET /projects/new/": "POST projects/",
    f"POST {DEFAULT}/publish/": "PATCH projects/{slug}/",
    f"POST {DEFAULT}/tokens/revoke/": "POST projects/{slug}/tokens/revoke/",
    f"POST {DEFAULT}/tokens/{{bound_token}}/revoke/": "DELETE projects/{slug}/tokens/{bound_token}/",
    f"GET {DEFAULT}/webhooks/{{webhook}}/": "GET projects/{slug}/webhooks/{webhook}/",
    f"POST {DEFAULT}/webhooks/{{webhook}}/test/": "POST projects/{slug}/webhooks/{webhook}/test/",
    f"POST {DEFAULT}/webhooks/{{webhook}}/enable/": "POST projects/{slug}/webhooks/{webhook}/enable/",
    f"POST {DEFAULT}/webhooks/{{webhook}}/disable/": "POST projects/{slug}/webhooks/{webhook}/disable/",
    f"POST {DEFAULT}/webhooks/{{webhook}}/deliveries/{{delivery}}/send-again/": (
        "POST projects/{slug}/webhooks/{webhook}/deliveries/{delivery}/send-again/"
    ),
    "GET /relations/": "GET relations/",
    "GET /relations/new/": "POST relations/",
    "GET /relations/sets/{shipped_set}/duplicate/": "POST relation-sets/",
    "POST /relations/sets/{set}/delete/": "DELETE relation-sets/{set_id}/",
    "POST /workers/{worker}/undrain/": "POST workers/{drained}/undrain/",
    "GET /harvests/new/": "POST launches/plan/",
    "POST /harvests/new/": "POST launches/",
    "GET /harvests/import/": "POST harvests/import-kg/",
    "POST /harvests/import/": "POST harvests/import/",
    "GET /harvests/launches/": "GET launches/",
    "GET /harvests/launches/{launch}/progress.json": "GET launches/{launch}/",
    "POST /harvests/launches/{launch}/retry-failed/": "POST launches/{launch}/retry/",
    "POST /harvests/launches/{launch}/retry-cancelled/": "POST launches/{launch}/retry/",
    "POST /harvests/{queued}/retry/": "POST jobs/{failed}/retry/",
    "GET /knowledge/tuples/{tuple}/": "GET knowledge/{tuple}/",
    "GET /knowledge/tuples/{published}/": "GET knowledge/{published}/",
    "POST /knowledge/tuples/{published}/": "POST knowledge/{published}/curations/",
    "GET /knowledge/entity/?name=dog": "GET entity/",
    "GET /knowledge/sensitive-words/": "GET sensitive-words/",
    "GET /knowledge/compare/?relation={relation}": "GET comparisons/harvests/",
    "GET /knowledge/compare/set/?a={harvest}&b={harvest}": "GET comparisons/sets/",
    f"GET {DRAFT}/": "GET rounds/{draft}/plan/",
    f"GET {DRAFT}/edit/": "PUT rounds/{draft}/",
    f"GET {DRAFT}/preregister/": "POST rounds/{draft}/preregistrations/",
    f"POST {DRAFT}/preregister/": "POST rounds/{draft}/preregistrations/",
    f"GET {DRAFT}/preregistrations/1/": "GET rounds/{draft}/preregistrations/{preregistration}/",
    f"GET {DRAFT}/preregistrations/1/preregistration.md": (
        "GET rounds/{draft}/preregistrations/{preregistration}/preregistration.json"
    ),
    f"GET {DRAFT}/instructions/{{relation}}/": "PUT rounds/{draft}/instructions/{relation}/",
    f"POST {PILOT}/clone/": "POST rounds/{open}/clone/",
    f"POST {PILOT}/pause/": "POST rounds/{open}/pause/",
    f"POST {PILOT}/reopen/": "POST rounds/{done}/reopen/",
    f"GET {PILOT}/progress.json": "GET rounds/{open}/progress/",
    f"GET {PILOT}/events.jsonl": "GET rounds/{done}/events/",
    f"GET {PILOT}/statements/": "GET rounds/{done}/tasks/",
    f"GET {PILOT}/annotators/{{code}}/": "GET rounds/{done}/annotators/{code}/",
    f"POST {PILOT}/annotators/{{code}}/pause/": "POST rounds/{done}/annotators/{code}/pause/",
    f"POST {PILOT}/annotators/{{code}}/resume/": "POST rounds/{done}/annotators/{code}/resume/",
    f"POST {PILOT}/annotators/{{code}}/reinstate/": "DELETE rounds/{done}/annotators/{code}/exclusion/",
    f"POST {PILOT}/annotators/{{code}}/withdraw/": "POST rounds/{done}/annotators/{code}/withdraw/",
    f"POST {PILOT}/invites/revoke/": "DELETE rounds/{open}/invites/{invite}/",
    f"GET {PILOT}/invites.csv": "GET rounds/{open}/invites/",
    f"POST {PILOT}/reservations/": "POST rounds/{open}/reservations/",
    f"POST {PILOT}/report/": "POST reports/",
    f"GET {PILOT}/judges/lm/": "GET judge-runs/{judge_run}/",
    f"GET {PILOT}/judges/lm/answers/jsonl/": "GET judge-runs/{judge_run}/answers.jsonl",
    f"POST {PILOT}/judges/lm/cancel/": "POST judge-runs/{judge_run}/cancel/",
    f"POST {PILOT}/judges/lm/continue/": "POST judge-runs/{failed_judge_run}/continue/",
    f"GET {PILOT}/panels/new/": "POST rounds/{open}/panels/",
    f"POST {PILOT}/panels/new/": "POST rounds/{open}/panels/",
    f"GET {PILOT}/panels/open/": "GET rounds/{open}/panels/{draft_panel}/",
    f"GET {PILOT}/panels/open/participants.csv": "GET rounds/{open}/panels/{open_panel}/participants/",
    f"GET {PILOT}/panels/open/edit/": "PATCH rounds/{open}/panels/{draft_panel}/",
    f"GET {PILOT}/panels/open/publish/": "GET rounds/{open}/panels/{draft_panel}/cost/",
    f"POST {PILOT}/panels/open/publish/": "POST rounds/{open}/panels/{draft_panel}/publish/",
    f"POST {PILOT}/panels/open/resume/": "POST rounds/{open}/panels/{draft_panel}/resume/",
    f"GET {PILOT}/panels/open/stop/": "POST rounds/{open}/panels/{open_panel}/stop/",
    f"POST {PILOT}/panels/open/stop/": "POST rounds/{open}/panels/{open_panel}/stop/",
    f"POST {PILOT}/panels/open/delete/": "DELETE rounds/{open}/panels/{draft_panel}/",
    f"GET {PILOT}/panels/study/prolific/": "GET rounds/{open}/panels/{open_panel}/reconciliation/",
    f"POST {PILOT}/panels/study/reconcile/": "POST rounds/{open}/panels/{open_panel}/reconciliation/",
    f"GET {PILOT}/panels/paying/pay/review/": "GET rounds/{open}/panels/{open_panel}/pay/commands/",
    f"POST {PILOT}/panels/paying/pay/review/": "POST rounds/{open}/panels/{open_panel}/pay/approve/",
    f"GET {PILOT}/panels/paying/pay/people/{{submission}}/": "POST rounds/{open}/panels/{open_panel}/pay/commands/",
    f"POST {PILOT}/panels/paying/pay/floor/": "POST rounds/{open}/panels/{open_panel}/pay/floor/",
    f"POST {PILOT}/panels/paying/pay/commands/{{command}}/": (
        "POST rounds/{open}/panels/{open_panel}/pay/commands/{command}/settle/"
    ),
    f"POST {PILOT}/panels/paying/pay/noted/": "POST rounds/{open}/panels/{open_panel}/pay/bonuses/paid/",
    f"GET {PILOT}/panels/paying/pay/bonuses-table.csv": "GET rounds/{open}/panels/{open_panel}/pay/bonuses/",
    f"GET {PILOT}/panels/paying/pay/ledger.csv": "GET rounds/{open}/panels/{open_panel}/pay/entries.csv",
    "GET /judge/{round}/": "GET judging/{open}/",
    "POST /judge/{round}/page/": "POST judging/{open}/",
    "POST /judge/{round}/skip/": "POST judging/{open}/skip/",
    "POST /judge/{round}/skipped/": "POST judging/{open}/skipped/",
    "POST /judge/{round}/report/": "POST judging/{open}/report/",
    "GET /judge/{round}/answers/": "GET judging/{open}/recent/",
    "GET /judge/{round}/instructions/": "GET judging/{open}/instructions/",
    "GET /judge/{round}/questions/": "GET judging/{open}/questions/",
    "GET /judge/{round}/withdraw/": "POST judging/{open}/withdraw/",
    "GET /reports/{report}/report.json": "GET reports/{report}/report.csv",
    "GET /reports/{report}/sections/method/": "GET reports/{report}/",
    "GET /reports/{report}/tables/cells.csv": "GET reports/{report}/tables/cells.csv",
    "GET /reports/{report}/pack/": "GET reports/{report}/packs/",
    "POST /reports/{report}/pack/{pack}/cancel/": "POST reports/{report}/packs/{pack}/cancel/",
    "GET /reports/{report}/pack/{pack}/pack.zip": "GET reports/{report}/packs/{pack}/pack.zip",
    "GET /reports/{report}/kg/file/?format=nt": "GET reports/{report}/kg/",
    "POST /reports/{report}/shares/": "POST reports/{report}/shares/",
    "GET /reports/{report}/paper/statements/": "GET reports/{report}/paper/statements/",
    "POST /reports/{report}/paper/statements/": "PATCH reports/{report}/paper/statements/",
    "GET /reports/compare/?a={report}&b=paper": "GET comparisons/reports/",
    "GET /reports/scores/new/": "POST score-evaluations/",
    "GET /reports/scores/{scores}/": "GET score-evaluations/{scores}/",
    "POST /reports/scores/{scores}/cancel/": "POST score-evaluations/{scores}/cancel/",
    "GET /reports/probes/new/": "POST probes/",
    "GET /reports/probes/{probe}/records.jsonl": "GET probes/{probe}/records/",
    "GET /reports/probes/{probe}/prompts.jsonl": "GET probes/{probe}/prompts/",
    "POST /reports/probes/{probe}/cancel/": "POST jobs/{queued}/cancel/",
    "POST /reports/probes/{probe}/retry/": "POST jobs/{failed}/retry/",
    "POST /reports/text-tasks/{text_task}/cancel/": "POST jobs/{queued}/cancel/",
    "POST /reports/text-tasks/{text_task}/retry/": "POST jobs/{failed}/retry/",
    "GET /accounts/tokens/": "GET tokens/",
    "POST /accounts/tokens/{token}/revoke/": "DELETE tokens/{token}/",
}

# Paths of pages without an API action, by reason. An entry with * stands for all paths that start with it.
PAGES_WITHOUT_ACTION = {
    "The API changes two roles instead.": [f"{DEFAULT}/members/{{member}}/hand-over/"],
    "The rows of the tables remove different members.": [f"{DEFAULT}/members/{{member}}/remove/"],
    "Accounts, passwords, and second factors need a browser session.": [
        f"{DEFAULT}/annotators/new/", f"{DEFAULT}/erase/", "/accounts/", "/accounts/login/",
        "/accounts/password*", "/accounts/reset/*", "/accounts/welcome/*", "/accounts/second-factor/*",
        "/accounts/openid/*", "/accounts/logout/",
    ],
    "Links are opened in a browser; the secret link gives access.": [
        "/member/*", "/join/*", "/invite/*", "/enter/*", "/return/*", "/shared/*",
    ],
    "Another row of the same page has the counterpart.": [
        "/relations/new/?copy={relation}", "/relations/{shipped}/*", "/relations/sets/{shipped_set}/relations.json",
        "/rounds/gold/{shipped}/", "/knowledge/entity/?name=cow",
        "/reports/{report}/kg/", f"{PILOT}/panels/open/prolific/",
    ],
    "Second step of an import; the API imports in one request.": ["/harvests/import/{upload}/"],
    "Commands and studies load built-in sets.": ["/relations/shipped/"],
    "The API names the set in the request body, so a set of another project is an invalid value.": [
        "/relations/sets/{set}/duplicate/",
    ],
    "Layouts, scripts, and other devices exist in browsers only.": [
        "/judge/offline_worker.js", "/judge/{round}/layout/", "/judge/{round}/device/", "/judge/{round}/done/",
    ],
    "The round of the table has no training.": ["/judge/{round}/training/"],
    "Old addresses redirect to the pages of the round.": ["/rounds/pilot/*"],
    "Drawings; the API has the data.": [
        "/knowledge/entity.svg?name=dog", "/reports/{report}/figures/*", "/reports/scores/{scores}/scores.*",
        "/reports/probes/{probe}/figures/*", "/reports/text-tasks/{text_task}/figure.svg",
        "/reports/{report}/comparisons/1/", "/reports/{report}/report.evidence",
    ],
    "Tables of a document that the API returns as a whole.": [
        "/reports/probes/{probe}/prompts/{probed}/", "/reports/probes/{probe}/tables*",
        "/reports/text-tasks/{text_task}/records.jsonl",
    ],
    "Studies are files, which commands run.": ["/studies/*", f"{PILOT}/study.toml"],
    "Platforms call this address with a signature.": ["/recruiting/prolific/events/"],
    "The panel of the table has no place to free.": [f"{PILOT}/panels/open/free/"],
    "Results of papers, the same for all.": ["/reports/published/"],
    "Pages of the installation, without data of projects.": ["/", "/healthz", "/readyz", "/metrics", "/api/*"],
}  # fmt: skip

# API actions without a page, by reason
ACTIONS_WITHOUT_PAGE = {
    "Part of the page of a project.": [
        "GET projects/{slug}/members/", "GET projects/{slug}/members/{username}/",
        "DELETE projects/{slug}/members/{username}/", "GET projects/{slug}/invites/",
        "GET projects/{slug}/invites/{invite}/", "GET projects/{slug}/tokens/",
    ],
    "Part of the page of webhooks.": [
        "POST projects/{slug}/webhooks/", "PATCH projects/{slug}/webhooks/{webhook}/",
        "GET projects/{slug}/webhooks/{webhook}/deliveries/",
    ],
    "Part of the page of tokens, which needs a browser session to create one.": [
        "POST tokens/", "GET tokens/{token}/",
    ],
    "Part of a page with other rows: sets, entities, workers, jobs, LMs, and tuples of a harvest.": [
        "GET relation-sets/", "GET relation-sets/{set_id}/", "POST relation-sets/{set_id}/entities/",
        "DELETE relation-sets/{set_id}/entities/", "GET workers/{worker}/", "GET jobs/", "GET jobs/{queued}/",
        "GET language-models/", "GET harvests/{harvest}/tuples/",
    ],
    "Part of the page of a round.": [
        "GET rounds/{open}/assigned/", "GET rounds/{open}/instructions/", "POST rounds/{open}/invites/",
        "GET rounds/{done}/judgments/", "GET rounds/{done}/questionnaire/", "GET rounds/{done}/limits/",
        "POST rounds/{done}/tasks/{task}/adjudications/", "POST rounds/{done}/annotators/{code}/exclusion/",
        "GET rounds/{draft}/preregistrations/",
    ],
    "Commands do this.": ["POST rounds/import/", "POST rounds/{open}/judge-runs/import/"],
    "Part of the page of a judge run.": [
        "POST rounds/{open}/judge-runs/estimate/", "GET judge-runs/{judge_run}/answers/",
    ],
    "Part of the pages of judging.": [
        "GET judging/", "POST judging/", "POST judging/{open}/release/", "POST judging/{open}/questions/",
        "GET judging/{open}/training/", "POST judging/{open}/training/",
    ],
    "Part of the pages of a report.": [
        "GET reports/{report}/figures/heat-map.svg", "GET reports/{report}/shares/{share}/",
        "GET reports/{report}/packs/{pack}/", "GET score-evaluations/{scores}/scores.json",
    ],
    "Part of the pages of pay.": [
        "POST rounds/{open}/panels/{open_panel}/pay/bonuses/", "GET rounds/{open}/panels/{open_panel}/pay/entries/",
        "POST rounds/{open}/panels/{open_panel}/pay/commands/{command}/resend/",
    ],
}  # fmt: skip

PAGES = {f"{method} {path}": statuses for method, path, statuses in page_rows()}
API = PLATFORM_API | EVALUATION_API | PUBLISHING_API | RECRUITING_API | KNOWLEDGE_GRAPH_API


def outcomes(statuses: list[int]) -> dict[str, str]:
    """Return by person whether a request is admitted, forbidden, or not found.

    Anonymous visitors are admitted or forbidden: pages redirect them to the login, and the API answers 401.
    """
    refusals = {403: "forbidden", 404: "not found"}
    by_person = dict(zip(PEOPLE, statuses, strict=False))
    result = {person: refusals.get(status, "admitted") for person, status in by_person.items()}
    return result | {"anonymous": "admitted" if by_person["anonymous"] == 200 else "forbidden"}


@pytest.mark.parametrize("page", COUNTERPARTS)
def test_a_page_and_its_api_action_have_the_same_outcomes(page):
    action = COUNTERPARTS[page]

    assert outcomes([int(status) for status in API[action].split()]) == outcomes(PAGES[page])


def test_every_page_has_an_api_action_or_a_reason():
    exceptions = [path for paths in PAGES_WITHOUT_ACTION.values() for path in paths]

    def is_exception(page: str) -> bool:
        path = page.split()[1]
        return any(path.startswith(entry[:-1]) if entry.endswith("*") else path == entry for entry in exceptions)

    def is_covered(page: str) -> bool:
        """Return True if the page, or the same page by another method with the same outcomes, has a counterpart."""
        others = [other for other in COUNTERPARTS if other.split()[1] == page.split()[1]]
        return page in others or any(outcomes(PAGES[other]) == outcomes(PAGES[page]) for other in others)

    handled = [page for page, statuses in PAGES.items() if set(statuses) != {405}]
    assert [page for page in handled if is_covered(page) == is_exception(page)] == []


def test_every_api_action_has_a_page_or_a_reason():
    exceptions = [action for actions in ACTIONS_WITHOUT_PAGE.values() for action in actions]

    assert sorted([*exceptions, *set(COUNTERPARTS.values())]) == sorted(API)


def test_every_api_operation_has_a_row():
    apps = {app for app, _ in url_patterns(get_resolver())}

    assert operations_of(*apps) == set(map(blanked, API))
