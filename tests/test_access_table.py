"""Access table of all pages, written by hand and compared with the URL configuration.

A row is a request and its expected status for each kind of person. Each new URL needs a row. The changes of a request
are rolled back, so that all rows see the same data.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import get_resolver, resolve
from django.utils import timezone

from annotation.gold.candidates import decide_on_gold, gold_candidates
from annotation.invites.services import join_round
from annotation.judging.reservations import reserve_statements
from annotation.rounds.services import create_draft
from evaluation.models import ScoreEvaluation, Study
from evaluation.reports.services import create_report
from evaluation.sharing.services import share_report
from kgharvest.accounts.projects import create_invite
from kgharvest.accounts.tokens import create_token
from kgharvest.accounts.views import Logout
from kgharvest.api.views import ApiView
from kgharvest.contrib.probing.models import Probe, ProbedRelation, TextTask
from kgharvest.contrib.publishing.models import PaperPack
from kgharvest.contrib.recruiting.panels.services import enter
from kgharvest.models import Role, Webhook
from kgharvest.webhooks.outbox import send_test
from tests import factories
from tests.api import rolled_back
from tests.kgharvest.contrib.knowledge_graphs.kg_factories import make_uploaded_kg
from tests.kgharvest.contrib.publishing.preregistration.planning import freeze, planned
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel

# anonymous, an annotator of the round; viewer, adjudicator, researcher, owner of the project; a superuser; the owner of
# another project
PEOPLE = ("anonymous", "annotator", "viewer", "adjudicator", "researcher", "owner", "superuser", "stranger")

# Media types that browsers may show. Responses of other types must be named files.
SHOWN_MEDIA_TYPES = {"text/html", "application/json", "image/svg+xml", "text/javascript"}
SHOWN_MEDIA_TYPES |= {"application/vnd.oai.openapi", "text/plain"}  # API schema, health checks

TABLE = """
# projects
GET    /projects/                                                       302 403 200 200 200 200 200 200
GET    /projects/new/                                                   302 403 403 403 200 200 200 200
POST   /projects/new/                                                   302 403 403 403 200 200 200 200
GET    /projects/default/                                               302 403 200 200 200 200 200 404
POST   /projects/default/rename/                                        302 403 403 403 403 200 200 404
POST   /projects/default/publish/                                       302 403 403 403 403 200 200 404
POST   /projects/default/members/{member}/role/                         302 403 403 403 403 302 302 404
POST   /projects/default/members/{member}/hand-over/                    302 403 403 403 403 302 302 404
POST   /projects/default/members/{member}/remove/                       302 403 403 403 403 302 302 404
GET    /projects/default/annotators/new/                                302 403 403 403 403 200 200 404
POST   /projects/default/annotators/new/                                302 403 403 403 403 200 200 404
POST   /projects/default/invites/                                       302 403 403 403 403 200 200 404
POST   /projects/default/invites/{invite}/revoke/                       302 403 403 403 403 302 302 404
POST   /projects/default/tokens/revoke/                                 302 403 403 403 403 302 302 404
POST   /projects/default/tokens/{bound_token}/revoke/                   302 403 403 403 403 302 302 404
GET    /projects/default/audit/                                         302 403 403 403 403 200 200 404
GET    /projects/default/erase/                                         302 403 403 403 403 200 200 404
POST   /projects/default/erase/                                         302 403 403 403 403 200 200 404
GET    /projects/default/webhooks/                                      302 403 403 403 403 200 200 404
POST   /projects/default/webhooks/                                      302 403 403 403 403 200 200 404
GET    /projects/default/webhooks/{webhook}/                            302 403 403 403 403 200 200 404
POST   /projects/default/webhooks/{webhook}/                            302 403 403 403 403 200 200 404
POST   /projects/default/webhooks/{webhook}/test/                       302 403 403 403 403 302 302 404
POST   /projects/default/webhooks/{webhook}/enable/                     302 403 403 403 403 302 302 404
POST   /projects/default/webhooks/{webhook}/disable/                    302 403 403 403 403 302 302 404
POST   /projects/default/webhooks/{webhook}/rotate/                     302 403 403 403 403 200 200 404
POST   /projects/default/webhooks/{webhook}/delete/                     302 403 403 403 403 302 302 404
POST   /projects/default/webhooks/{webhook}/deliveries/{delivery}/send-again/ 302 403 403 403 403 302 302 404
GET    /member/{secret}/                                                200 200 302 302 302 302 200 200
POST   /member/{secret}/                                                200 302 302 302 302 302 302 302
GET    /member/made-up/                                                 404 404 404 404 404 404 404 404
# relations
GET    /relations/                                                      302 403 200 200 200 200 200 200
GET    /relations/new/                                                  302 403 403 403 200 200 200 200
POST   /relations/new/                                                  302 403 403 403 200 200 200 200
GET    /relations/new/?copy={relation}                                  302 403 403 403 200 200 200 404
GET    /relations/import/                                               302 403 403 403 200 200 200 200
POST   /relations/import/                                               302 403 403 403 200 200 200 200
POST   /relations/shipped/                                              302 403 403 403 302 302 302 302
GET    /relations/{relation}/                                           302 403 200 200 200 200 200 404
GET    /relations/{shipped}/                                            302 403 200 200 200 200 200 200
GET    /relations/{relation}/edit/                                      302 403 403 403 200 200 200 404
POST   /relations/{relation}/edit/                                      302 403 403 403 200 200 200 404
GET    /relations/{shipped}/edit/                                       302 403 404 404 404 404 404 404
GET    /relations/{relation}/delete/                                    302 403 403 403 200 200 200 404
POST   /relations/{relation}/delete/                                    302 403 403 403 302 302 302 404
POST   /relations/{shipped}/delete/                                     302 403 404 404 404 404 404 404
GET    /relations/sets/{set}/edit/                                      302 403 403 403 200 200 200 404
POST   /relations/sets/{set}/edit/                                      302 403 403 403 200 200 200 404
GET    /relations/sets/{set}/prompts/                                   302 403 403 403 200 200 200 404
POST   /relations/sets/{set}/prompts/                                   302 403 403 403 200 200 200 404
GET    /relations/sets/{set}/entities/                                  302 403 403 403 200 200 200 404
POST   /relations/sets/{set}/entities/                                  302 403 403 403 200 200 200 404
GET    /relations/sets/{set}/duplicate/                                 302 403 403 403 200 200 200 404
POST   /relations/sets/{set}/duplicate/                                 302 403 403 403 200 200 200 404
GET    /relations/sets/{shipped_set}/duplicate/                         302 403 403 403 200 200 200 200
GET    /relations/sets/{set}/delete/                                    302 403 403 403 200 200 200 404
POST   /relations/sets/{set}/delete/                                    302 403 403 403 302 302 302 404
GET    /relations/sets/{set}/relations.json                             302 403 200 200 200 200 200 404
GET    /relations/sets/{shipped_set}/relations.json                     302 403 200 200 200 200 200 200
# workers
GET    /workers/                                                        302 403 200 200 200 200 200 200
POST   /workers/{worker}/drain/                                         302 403 403 403 403 403 302 403
POST   /workers/{worker}/undrain/                                       302 403 403 403 403 403 302 403
# harvests
GET    /harvests/                                                       302 403 200 200 200 200 200 200
GET    /harvests/new/                                                   302 403 403 403 200 200 200 200
POST   /harvests/new/                                                   302 403 403 403 200 200 200 200
GET    /harvests/import/                                                302 403 403 403 200 200 200 200
POST   /harvests/import/                                                302 403 403 403 200 200 200 200
GET    /harvests/import/{upload}/                                       302 403 403 403 200 200 200 404
POST   /harvests/import/{upload}/                                       302 403 403 403 200 200 200 404
GET    /harvests/launches/                                              302 403 200 200 200 200 200 200
GET    /harvests/launches/{launch}/                                     302 403 200 200 200 200 200 404
GET    /harvests/launches/{launch}/progress.json                        302 403 200 200 200 200 200 404
POST   /harvests/launches/{launch}/cancel/                              302 403 403 403 302 302 302 404
POST   /harvests/launches/{launch}/retry-failed/                        302 403 403 403 302 302 302 404
POST   /harvests/launches/{launch}/retry-cancelled/                     302 403 403 403 302 302 302 404
GET    /harvests/{harvest}/                                             302 403 200 200 200 200 200 404
POST   /harvests/{queued}/cancel/                                       302 403 403 403 302 302 302 404
POST   /harvests/{queued}/retry/                                        302 403 403 403 302 302 302 404
GET    /harvests/{harvest}/tuples.jsonl                                 302 403 200 200 200 200 200 404
# knowledge base: tuples of the project, and tuples that it publishes
GET    /knowledge/                                                      302 403 200 200 200 200 200 200
GET    /knowledge/tuples/{tuple}/                                       302 403 200 200 200 200 200 404
GET    /knowledge/tuples/{published}/                                   302 403 200 200 200 200 200 200
POST   /knowledge/tuples/{tuple}/                                       302 403 403 403 200 200 200 404
POST   /knowledge/tuples/{published}/                                   302 403 403 403 200 200 200 403
GET    /knowledge/entity/?name=dog                                      302 403 200 200 200 200 200 404
GET    /knowledge/entity/?name=cow                                      302 403 200 200 200 200 200 200
GET    /knowledge/entity.svg?name=dog                                   302 403 200 200 200 200 200 200
GET    /knowledge/sensitive-words/                                      302 403 200 200 200 200 200 200
POST   /knowledge/sensitive-words/                                      302 403 403 403 403 403 200 403
# gold
GET    /rounds/gold/                                                    302 403 200 200 200 200 200 200
GET    /rounds/gold/{relation}/                                         302 403 200 200 200 200 200 404
POST   /rounds/gold/{relation}/                                         302 403 403 403 302 302 302 404
POST   /rounds/gold/{shipped}/                                          302 403 403 403 302 302 302 302
POST   /rounds/gold/{relation}/withdraw/{decision}/                     302 403 403 403 302 302 302 404
# rounds
GET    /rounds/                                                         302 403 200 200 200 200 200 200
GET    /rounds/new/                                                     302 403 403 403 200 200 200 200
POST   /rounds/new/                                                     302 403 403 403 200 200 200 200
POST   /rounds/plan/                                                    302 403 403 403 200 200 200 200
GET    /projects/default/rounds/pilot/                                  302 403 200 200 200 200 200 404
GET    /projects/default/rounds/draft/                                  302 403 200 200 200 200 200 404
GET    /projects/default/rounds/draft/edit/                             302 403 403 403 200 200 200 404
POST   /projects/default/rounds/draft/edit/                             302 403 403 403 200 200 200 404
GET    /projects/default/rounds/draft/preview/                          302 403 403 403 200 200 200 404
GET    /projects/default/rounds/draft/rehearsal/                        302 403 403 403 200 200 200 404
GET    /projects/default/rounds/draft/preregister/                      302 403 403 403 200 200 200 404
POST   /projects/default/rounds/draft/preregister/                      302 403 403 403 200 200 200 404
GET    /projects/default/rounds/draft/preregistrations/1/               302 403 200 200 200 200 200 404
GET    /projects/default/rounds/draft/preregistrations/1/preregistration.md 302 403 200 200 200 200 200 404
GET    /projects/default/rounds/draft/instructions/{relation}/          302 403 403 403 200 200 200 404
POST   /projects/default/rounds/draft/instructions/{relation}/          302 403 403 403 200 200 200 404
POST   /projects/default/rounds/draft/open/                             302 403 403 403 302 302 302 404
GET    /projects/default/rounds/draft/delete/                           302 403 403 403 200 200 200 404
POST   /projects/default/rounds/draft/delete/                           302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/clone/                            302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/pause/                            302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/reopen/                           302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/archive/                          302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/restore/                          302 403 403 403 302 302 302 404
GET    /projects/default/rounds/pilot/close/                            302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/close/                            302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/release/                          302 403 403 403 302 302 302 404
GET    /projects/default/rounds/pilot/judgments.csv                     302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/progress.json                     302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/events/                           302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/events.jsonl                      302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/statements/                       302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/statements/{task}/                302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/adjudicate/                       302 403 403 200 200 200 200 404
POST   /projects/default/rounds/pilot/adjudicate/                       302 403 403 400 400 400 400 404
GET    /projects/default/rounds/pilot/limits/                           302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/limits/                           302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/annotators/                       302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/annotators/{code}/                302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/annotators/{code}/exclude/        302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/annotators/{code}/exclude/        302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/annotators/{code}/pause/          302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/annotators/{code}/resume/         302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/annotators/{code}/reinstate/      302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/annotators/{code}/withdraw/       302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/annotators/{code}/erase/          302 403 403 403 403 302 302 404
GET    /projects/default/rounds/pilot/invites/                          302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/invites/                          302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/invites/revoke/                   302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/invites/revoke/                   302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/invites/joining/                  302 403 403 403 302 302 302 404
GET    /projects/default/rounds/pilot/reservations/                     302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/reservations/                     302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/reservations/{reservation}/release/ 302 403 403 403 302 302 302 404
GET    /projects/default/rounds/pilot/invites.csv                       302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/report/                           302 403 403 403 302 302 302 404
GET    /projects/default/rounds/pilot/study.toml                        302 403 200 200 200 200 200 404
# studies
GET    /studies/                                                        302 403 200 200 200 200 200 200
GET    /studies/{study}/                                                302 403 200 200 200 200 200 404
GET    /studies/{study}/study.toml                                      302 403 200 200 200 200 200 404
# LM judges
GET    /projects/default/rounds/pilot/judges/                           302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/judges/new/                       302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/judges/new/                       302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/judges/lm/                        302 403 200 200 200 200 200 404
GET    /projects/default/rounds/pilot/judges/lm/answers/jsonl/          302 403 200 200 200 200 200 404
POST   /projects/default/rounds/pilot/judges/lm/cancel/                 302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/judges/lm/continue/               302 403 403 403 302 302 302 404
# panels
GET    /projects/default/rounds/pilot/panels/                           302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/panels/new/                       302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/panels/new/                       302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/panels/open/                      302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/panels/open/participants.csv      302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/panels/open/edit/                 302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/panels/open/edit/                 302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/panels/open/publish/              302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/panels/open/publish/              302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/panels/open/pause/                302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/panels/open/resume/               302 403 403 403 302 302 302 404
GET    /projects/default/rounds/pilot/panels/open/stop/                 302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/panels/open/stop/                 302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/panels/open/delete/               302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/panels/open/free/                 302 403 403 403 404 404 404 404
GET    /projects/default/rounds/pilot/panels/study/prolific/            302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/panels/study/prolific/            302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/panels/open/prolific/             302 403 403 403 404 404 404 404
POST   /projects/default/rounds/pilot/panels/study/reconcile/           302 403 403 403 302 302 302 404
POST   /recruiting/prolific/events/                                     403 403 403 403 403 403 403 403
GET    /projects/default/rounds/pilot/panels/paying/pay/                302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/panels/paying/pay/review/         302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/panels/paying/pay/review/         302 403 403 403 302 302 302 404
GET    /projects/default/rounds/pilot/panels/paying/pay/people/{submission}/ 302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/panels/paying/pay/people/{submission}/ 302 403 403 403 200 200 200 404
POST   /projects/default/rounds/pilot/panels/paying/pay/floor/          302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/panels/paying/pay/commands/{command}/ 302 403 403 403 302 302 302 404
POST   /projects/default/rounds/pilot/panels/paying/pay/noted/          302 403 403 403 302 302 302 404
GET    /projects/default/rounds/pilot/panels/paying/pay/bonuses-table.csv 302 403 403 403 200 200 200 404
GET    /projects/default/rounds/pilot/panels/paying/pay/ledger.csv      302 403 403 403 200 200 200 404
# judging, for annotators of the round
GET    /judge/offline_worker.js                                         200 200 200 200 200 200 200 200
GET    /judge/{round}/                                                  302 200 404 404 404 404 404 404
POST   /judge/{round}/page/                                             302 302 404 404 404 404 404 404
GET    /judge/{round}/skip/                                             405 405 405 405 405 405 405 405
POST   /judge/{round}/skip/                                             302 400 404 404 404 404 404 404
POST   /judge/{round}/skipped/                                          302 302 404 404 404 404 404 404
GET    /judge/{round}/report/                                           405 405 405 405 405 405 405 405
POST   /judge/{round}/report/                                           302 400 404 404 404 404 404 404
GET    /judge/{round}/answers/                                          302 200 404 404 404 404 404 404
GET    /judge/{round}/instructions/                                     302 200 404 404 404 404 404 404
POST   /judge/{round}/layout/                                           302 302 404 404 404 404 404 404
GET    /judge/{round}/questions/                                        302 302 404 404 404 404 404 404
POST   /judge/{round}/questions/                                        302 302 404 404 404 404 404 404
GET    /judge/{round}/withdraw/                                         404 200 404 404 404 404 404 404
POST   /judge/{round}/withdraw/                                         404 200 404 404 404 404 404 404
GET    /judge/{round}/training/                                         302 404 404 404 404 404 404 404
POST   /judge/{round}/training/                                         302 404 404 404 404 404 404 404
GET    /judge/{round}/device/                                           302 200 302 302 302 302 302 302
POST   /judge/{round}/device/                                           302 302 302 302 302 302 302 302
GET    /judge/{round}/done/                                             302 302 302 302 302 302 302 302
GET    /enter/{entry}/?participant=p1                                   200 409 200 200 200 200 200 200
POST   /enter/{entry}/                                                  400 400 400 400 400 400 400 400
GET    /enter/made-up/                                                  404 404 404 404 404 404 404 404
GET    /join/{join}/                                                    200 302 200 200 200 200 200 200
POST   /join/{join}/                                                    200 302 302 302 302 302 302 302
GET    /join/made-up/                                                   404 404 404 404 404 404 404 404
GET    /invite/made-up/                                                 404 404 404 404 404 404 404 404
GET    /return/                                                         200 200 200 200 200 200 200 200
POST   /return/                                                         200 200 200 200 200 200 200 200
GET    /return/1-AAAA-AAAA-AAAA-AAAA/                                   404 404 404 404 404 404 404 404
POST   /return/1-AAAA-AAAA-AAAA-AAAA/                                   404 404 404 404 404 404 404 404
GET    /rounds/pilot/                                                   302 403 302 302 302 302 302 404
POST   /rounds/pilot/                                                   302 403 307 307 307 307 307 404
GET    /rounds/pilot/limits/                                            302 403 302 302 302 302 302 404
POST   /rounds/pilot/limits/                                            302 403 307 307 307 307 307 404
GET    /rounds/pilot/judge/                                             302 302 404 404 404 404 404 404
# reports, comparisons, scores, probes
GET    /reports/                                                        302 403 200 200 200 200 200 200
GET    /reports/{report}/                                               302 403 200 200 200 200 200 404
POST   /reports/{report}/archive/                                       302 403 403 403 302 302 302 404
POST   /reports/{report}/restore/                                       302 403 403 403 302 302 302 404
GET    /reports/{report}/sections/method/                               302 403 200 200 200 200 200 404
GET    /reports/{report}/report.json                                    302 403 200 200 200 200 200 404
GET    /reports/{report}/report.evidence                               302 403 200 200 200 200 200 404
GET    /reports/{report}/tables/cells.csv                               302 403 200 200 200 200 200 404
GET    /reports/{report}/figures/none.svg?width=640                     302 403 404 404 404 404 404 404
GET    /reports/{report}/figures/none.svg                               302 403 404 404 404 404 404 404
GET    /reports/{report}/comparisons/1/                                 302 403 404 404 404 404 404 404
GET    /reports/{report}/tuples/                                        302 403 200 200 200 200 200 404
GET    /reports/{report}/pack/                                          302 403 200 200 200 200 200 404
POST   /reports/{report}/pack/                                          302 403 403 403 302 302 302 404
POST   /reports/{report}/pack/{pack}/cancel/                            302 403 403 403 302 302 302 404
GET    /reports/{report}/pack/{pack}/pack.zip                           302 403 404 404 404 404 404 404
GET    /reports/{report}/kg/                                            302 403 200 200 200 200 200 404
GET    /reports/{report}/kg/file/?format=nt                             302 403 200 200 200 200 200 404
GET    /reports/{report}/shares/                                        302 403 403 403 200 200 200 404
POST   /reports/{report}/shares/                                        302 403 403 403 200 200 200 404
POST   /reports/{report}/shares/{share}/revoke/                         302 403 403 403 302 302 302 404
GET    /reports/{report}/paper/statements/                              302 403 200 200 200 200 200 404
POST   /reports/{report}/paper/statements/                              302 403 403 403 302 302 302 404
GET    /shared/{shared}/                                                200 200 200 200 200 200 200 200
POST   /shared/{shared}/                                                403 403 403 403 403 403 403 403
GET    /shared/made-up/                                                 404 404 404 404 404 404 404 404
GET    /knowledge/compare/?relation={relation}                          302 403 200 200 200 200 200 404
GET    /knowledge/compare/set/?a={harvest}&b={harvest}                  302 403 200 200 200 200 200 404
GET    /reports/published/                                              302 403 200 200 200 200 200 200
GET    /reports/compare/?a={report}&b=paper                             302 403 200 200 200 200 200 404
GET    /reports/scores/                                                 302 403 200 200 200 200 200 200
GET    /reports/scores/new/                                             302 403 403 403 200 200 200 200
POST   /reports/scores/new/                                             302 403 403 403 200 200 200 200
GET    /reports/scores/{scores}/                                        302 403 200 200 200 200 200 404
POST   /reports/scores/{scores}/cancel/                                 302 403 403 403 302 302 302 404
GET    /reports/scores/{scores}/scores.svg?width=640                    302 403 404 404 404 404 404 404
GET    /reports/scores/{scores}/scores.json                             302 403 404 404 404 404 404 404
GET    /reports/probes/                                                 302 403 200 200 200 200 200 200
GET    /reports/probes/new/                                             302 403 403 403 200 200 200 200
POST   /reports/probes/new/                                             302 403 403 403 200 200 200 200
GET    /reports/probes/{probe}/                                         302 403 200 200 200 200 200 404
POST   /reports/probes/{probe}/cancel/                                  302 403 403 403 302 302 302 404
POST   /reports/probes/{probe}/retry/                                   302 403 403 403 302 302 302 404
GET    /reports/probes/{probe}/prompts/{probed}/                        302 403 200 200 200 200 200 404
GET    /reports/probes/{probe}/records.jsonl                            302 403 200 200 200 200 200 404
GET    /reports/probes/{probe}/prompts.jsonl                            302 403 200 200 200 200 200 404
GET    /reports/probes/{probe}/tables.tex                               302 403 200 200 200 200 200 404
GET    /reports/probes/{probe}/tables/none.csv                          302 403 404 404 404 404 404 404
GET    /reports/probes/{probe}/figures/none.svg                         302 403 404 404 404 404 404 404
GET    /reports/text-tasks/                                             302 403 200 200 200 200 200 200
GET    /reports/text-tasks/new/                                         302 403 403 403 200 200 200 200
POST   /reports/text-tasks/new/                                         302 403 403 403 200 200 200 200
GET    /reports/text-tasks/{text_task}/                                 302 403 200 200 200 200 200 404
POST   /reports/text-tasks/{text_task}/cancel/                          302 403 403 403 302 302 302 404
POST   /reports/text-tasks/{text_task}/retry/                           302 403 403 403 302 302 302 404
GET    /reports/text-tasks/{text_task}/records.jsonl                    302 403 200 200 200 200 200 404
GET    /reports/text-tasks/{text_task}/figure.svg                       302 403 404 404 404 404 404 404
# accounts
GET    /accounts/                                                       302 200 200 200 200 200 200 200
GET    /accounts/login/                                                 200 200 200 200 200 200 200 200
POST   /accounts/login/                                                 200 200 200 200 200 200 200 200
POST   /accounts/logout/                                                302 302 302 302 302 302 302 302
GET    /accounts/password_change/                                       302 200 200 200 200 200 200 200
POST   /accounts/password_change/                                       302 200 200 200 200 200 200 200
GET    /accounts/password_change/done/                                  302 200 200 200 200 200 200 200
GET    /accounts/password_reset/                                        200 200 200 200 200 200 200 200
POST   /accounts/password_reset/                                        200 200 200 200 200 200 200 200
GET    /accounts/password_reset/done/                                   200 200 200 200 200 200 200 200
GET    /accounts/reset/MQ/made-up/                                      200 200 200 200 200 200 200 200
POST   /accounts/reset/MQ/made-up/                                      200 200 200 200 200 200 200 200
GET    /accounts/welcome/MQ/made-up/                                    200 200 200 200 200 200 200 200
POST   /accounts/welcome/MQ/made-up/                                    200 200 200 200 200 200 200 200
GET    /accounts/welcome/done/                                          200 200 200 200 200 200 200 200
GET    /accounts/reset/done/                                            200 200 200 200 200 200 200 200
GET    /accounts/second-factor/                                         302 302 302 302 302 302 302 302
POST   /accounts/second-factor/                                         302 302 302 302 302 302 302 302
GET    /accounts/second-factor/set-up/                                  302 404 404 404 404 404 404 404
POST   /accounts/second-factor/set-up/                                  302 404 404 404 404 404 404 404
GET    /accounts/second-factor/recovery-codes/                          302 404 404 404 404 404 404 404
POST   /accounts/second-factor/recovery-codes/                          302 404 404 404 404 404 404 404
GET    /accounts/second-factor/remove/                                  302 404 404 404 404 404 404 404
POST   /accounts/second-factor/remove/                                  302 404 404 404 404 404 404 404
GET    /accounts/openid/                                                404 404 404 404 404 404 404 404
GET    /accounts/openid/link/                                           302 404 404 404 404 404 404 404
POST   /accounts/openid/link/                                           302 404 404 404 404 404 404 404
GET    /accounts/openid/callback/                                       404 404 404 404 404 404 404 404
POST   /accounts/openid/1/unlink/                                       302 404 404 404 404 404 404 404
GET    /accounts/tokens/                                                302 200 200 200 200 200 200 200
POST   /accounts/tokens/                                                302 200 200 200 200 200 200 200
POST   /accounts/tokens/{token}/revoke/                                 302 404 404 404 404 302 404 404
# the installation
GET    /                                                                200 200 200 200 200 200 200 200
GET    /audit/                                                          302 403 403 403 403 403 200 403
GET    /healthz                                                         200 200 200 200 200 200 200 200
GET    /readyz                                                          200 200 200 200 200 200 200 200
GET    /metrics                                                         200 200 200 200 200 200 200 200
GET    /api/v1/schema/                                                  401 200 200 200 200 200 200 200
GET    /api/v1/docs/                                                    401 200 200 200 200 200 200 200
GET    /api/schema/                                                     301 301 301 301 301 301 301 301
POST   /api/schema/                                                     301 301 301 301 301 301 301 301
"""


def rows() -> Iterator[tuple[str, str, list[int]]]:
    """Yield method, path and the expected statuses."""
    for line in TABLE.strip().splitlines():
        if line and not line.startswith("#"):
            method, path, *statuses = line.split()
            assert len(statuses) == len(PEOPLE), line
            yield method, path, [int(status) for status in statuses]


def routes(patterns, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every method and route except those of the admin, protected by Django, and of the API.

    The tables of the API have a row per method: tests/kgharvest/api/test_access.py and
    tests/evaluation/test_api_access.py.
    """
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if not hasattr(pattern, "url_patterns"):
            if not issubclass(getattr(pattern.callback, "cls", object), ApiView):
                yield from ((method, route) for method in methods_of(pattern.callback))
        elif route != "admin/":
            yield from routes(pattern.url_patterns, route)


def methods_of(view) -> list[str]:
    """Return the methods that the view handles: GET, POST, or both. A function handles POST if it names POST."""
    if hasattr(view, "view_class"):
        methods = [method for method in ("GET", "POST") if hasattr(view.view_class, method.lower())]
        return methods if view.view_class is not Logout else ["POST"]
    source = inspect.getsource(inspect.unwrap(view))
    if "@require_POST" in source:
        return ["POST"]
    return ["GET", "POST"] if "POST" in source else ["GET"]


@pytest.fixture
def places(db) -> dict[str, object]:
    """One object of each kind in the project `default`, by its name in the table."""
    relation = factories.make_relation("can", relation_set=factories.make_relation_set("own"))
    shipped = factories.make_relation("can", relation_set=factories.make_relation_set("demo", is_shipped=True))
    launch = factories.make_launch()
    harvest = factories.make_harvest([("dog", "swim"), ("cat", "climb")], relation=relation, launch=launch)
    published = factories.make_harvest([("cow", "graze")], relation=shipped, launch=launch)
    queued = factories.make_harvest_job(relation=relation, launch=launch, setting="human")
    cells = [{"job": harvest.pk, "n": None}]
    round = factories.make_round(3, name="pilot", who_can_join="link")
    freeze(create_draft({"name": "draft", "cells": cells}, project=round.project), planned())
    factories.make_judge_run(round, "lm")
    annotator = join_round(round, factories.make_user("ann"))
    factories.judge(annotator, factories.next_batch(annotator, timezone.now())[0])
    decide_on_gold(relation, {gold_candidates(relation)[0].code: True})
    lm, project = harvest.language_model, round.project
    scores = ScoreEvaluation.objects.create(kind="evaluate_scores", language_model=lm, project=project)
    probe = Probe.objects.create(
        kind="probe", language_model=lm, project=project, name="own", methods=["manual"], facts="own"
    )
    probed = ProbedRelation.objects.create(probe=probe, name="can", type="1-1", prompts=["a"], facts={"train": []})
    text_task = TextTask.objects.create(
        kind="text-task", task="classify", language_model=lm, project=project, name="own", payload={"options": {}}
    )
    owner = factories.make_member(Role.OWNER, project, "owner")
    invite, secret = create_invite(project, Role.VIEWER, timezone.now() + timedelta(days=1))
    webhook = Webhook.objects.create(project_id=project.pk, url="https://example.org/", events=["report.made"])
    report = create_report(round)
    pack = PaperPack.objects.create(kind=PaperPack.KIND, report=report, project=project)
    submission = enter(make_panel(round, name="paying"), "person", "", timezone.now())
    share = share_report(report, "Reviewers", 1, timezone.now(), password="correct horse")
    make_panel(round, "draft", name="study", platform="prolific")
    sections = {"relations": [{"set": "own"}], "harvests": [{"models": ["lm"], "settings": ["human"]}], "round": {}}
    study = Study.objects.create(project=project, name="study", document={"name": "study", **sections}, round=round)
    return {
        "pack": pack.pk,
        "upload": make_uploaded_kg("a\tr\tb\n").pk,
        "share": share.pk,
        "study": study.pk,
        "shared": share.secret,
        "webhook": webhook.pk,
        "delivery": send_test(webhook).pk,
        "relation": relation.pk,
        "shipped": shipped.pk,
        "set": relation.relation_set_id,
        "shipped_set": shipped.relation_set_id,
        "harvest": harvest.pk,
        "queued": queued.pk,
        "worker": factories.make_worker(timezone.now() + timedelta(hours=1)).pk,
        "launch": launch.pk,
        "tuple": harvest.tuples.first().knowledge_tuple_id,
        "published": published.tuples.get().knowledge_tuple_id,
        "decision": relation.gold_decisions.get().pk,
        "round": round.pk,
        "reservation": reserve_statements(round, [annotator.code], pk__in=[round.tasks.last().pk]).pk,
        "join": round.join_token,
        "entry": make_panel(round, name="open").token,
        "submission": submission.pk,
        "command": submission.commands.create(kind="bonus", key="bonus:1", amount=10).pk,
        "task": round.tasks.order_by("position").first().pk,
        "code": annotator.code,
        "report": report.pk,
        "scores": scores.pk,
        "probe": probe.pk,
        "probed": probed.pk,
        "text_task": text_task.pk,
        "member": project.members.get(user=owner).pk,
        "invite": invite.pk,
        "secret": secret,
        "bound_token": create_token(owner, "bound", "read", 1, timezone.now(), project=project).token.pk,
        "token": create_token(owner, "mine", "read", 1, timezone.now()).token.pk,
    }


@pytest.fixture
def clients(places) -> dict[str, Client]:
    users = get_user_model().objects
    people = {role.value: factories.make_member(role) for role in (Role.VIEWER, Role.ADJUDICATOR, Role.RESEARCHER)}
    people |= {"annotator": users.get(username="ann"), "owner": users.get(username="owner")}
    people["superuser"] = factories.make_user(is_superuser=True)
    people["stranger"] = factories.make_member(Role.OWNER, factories.make_project())
    clients = {name: Client() for name in PEOPLE}
    for name, user in people.items():
        clients[name].force_login(user)
    return clients


def status_of(client: Client, method: str, path: str) -> int:
    """Return the status of a request. Roll back its changes, including cookies."""
    cookies, client.cookies = client.cookies, deepcopy(client.cookies)
    with rolled_back():
        response = client.generic(method, path, "", "application/x-www-form-urlencoded")
    client.cookies = cookies
    assert has_safe_media_type(response), f"{method} {path}: {dict(response.headers)}"
    return response.status_code


def has_safe_media_type(response) -> bool:
    """Return True if no browser guesses the media type of the response, and files have a name."""
    media_type = response.headers.get("Content-Type", "").partition(";")[0]
    is_shown = response.status_code >= 300 or media_type in SHOWN_MEDIA_TYPES
    is_file = re.fullmatch(r'attachment; filename="[-\w.]+\.\w+"', response.headers.get("Content-Disposition", ""))
    return response.headers.get("X-Content-Type-Options") == "nosniff" and bool(is_shown or is_file)


@pytest.mark.slow
def test_statuses_of_all_urls_match_the_table(places, clients, enqueued):
    wrong = []
    for method, path, expected in rows():
        address = path.format(**places)
        statuses = [status_of(clients[name], method, address) for name in PEOPLE]
        if statuses != expected:
            wrong.append(f"{method} {path}: {' '.join(map(str, statuses))}, not {' '.join(map(str, expected))}")

    assert wrong == []


def test_every_url_and_method_has_a_row(places):
    covered = {(method, resolve(path.format(**places).partition("?")[0]).route) for method, path, _ in rows()}

    handled = {(method, route) for method, route in routes(get_resolver().url_patterns) if "admin/" not in route}
    assert handled - covered == set()
