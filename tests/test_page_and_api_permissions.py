"""Pages and API actions that do the same thing admit the same roles, according to the access tables."""

from __future__ import annotations

import pytest

from tests.evaluation.test_api_access import TABLE as EVALUATION_API
from tests.kgharvest.api.test_access import TABLE as PLATFORM_API
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
OWN_PROJECT = PEOPLE[: PEOPLE.index("stranger")]

PAGES = {f"{method} {path}": statuses for method, path, statuses in page_rows()}
API = PLATFORM_API | EVALUATION_API | PUBLISHING_API | RECRUITING_API


def admitted(statuses: list[int]) -> set[str]:
    """Return the admitted people. Anonymous visitors redirected to the login are not admitted."""
    by_person = dict(zip(PEOPLE, statuses, strict=True))
    denied = {"anonymous"} if by_person["anonymous"] == 302 else set()
    return {person for person in OWN_PROJECT if by_person[person] not in (401, 403, 404)} - denied


@pytest.mark.parametrize("page", COUNTERPARTS)
def test_a_page_and_its_api_action_admit_the_same_roles(page):
    action = COUNTERPARTS[page]

    assert admitted([int(status) for status in API[action].split()]) == admitted(PAGES[page])
