"""Fuzz the API as every role with requests drawn from its own description. No 5xx, no undocumented status or answer.

    python benches/fuzz_api.py [--cases 5000] [--seed 0] [--role owner] [--only "POST /api/v1/relations/"]

schemathesis draws valid and invalid requests for each operation. Most numbers in addresses and bodies are replaced with
ids of existing rows. The requests go to the application as gunicorn serves it, on a new empty database (DATABASE_URL
and DEBUG=1 choose another). Prints each failure with its request, and the number of answers by status. Exits with
status 1 if a request failed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.installation import migrate, set_up_django

N_IDS = 6  # existing rows have ids from 1 to this
FAILURES_SHOWN = 40
REFERENCES = {"relation", "relations", "sets", "copy_of", "job", "jobs", "round", "report", "task", "language_model"}
Send = Callable[[Any], None]


def existing_id(value: Any) -> Any:
    """Replace a number with an existing id, in three of four cases."""
    if isinstance(value, list):
        return [existing_id(item) for item in value]
    is_id = isinstance(value, int) and not isinstance(value, bool)
    return 1 + value % N_IDS if is_id and value % 4 else value


def with_existing_ids(value: Any, is_reference: bool = False) -> Any:
    """Return a body in which most references are existing ids."""
    if isinstance(value, dict):
        return {name: with_existing_ids(item, name in REFERENCES) for name, item in value.items()}
    return existing_id(value) if is_reference else value


class Fuzz:
    """Draws requests for the described operations and counts the answers.

    names: names of rows that addresses contain as text, by parameter name.
    """

    def __init__(self, names: Mapping[str, list[str]]):
        import schemathesis
        from schemathesis import checks

        from kgharvest.wsgi import application

        self.schema = schemathesis.openapi.from_dict(description())
        self.schema.app = application
        self.names = names
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        self.checks = [
            checks.not_a_server_error,
            *(check for check in checks.CHECKS.get_all() if check.__name__ in CONFORMANCE),
        ]

    def operations(self) -> Iterator[Any]:
        for result in self.schema.get_all_operations():
            operation = result.ok()
            if operation.path.startswith("/api/v1/"):
                yield operation

    def run(
        self, role: str, headers: Mapping[str, str], n: int, seed: int, chosen: Callable[[int, Any], bool] | None = None
    ) -> None:
        """Send `n` requests as a role, the same number for each operation. headers: include the role's token.

        chosen: returns whether an operation with this number is tested; if None, all operations are.
        """
        numbered = enumerate(self.operations())
        operations = [op for number, op in numbered if chosen is None or chosen(number, op)]
        for number, operation in enumerate(operations):
            n_here = n // len(operations) + (number < n % len(operations))
            if n_here:
                self._draw(operation, lambda case: self._send(role, headers, case), n_here, seed)

    def _draw(self, operation: Any, send: Send, n: int, seed: int) -> None:
        import hypothesis
        from hypothesis import HealthCheck, Phase
        from schemathesis import GenerationMode

        drawn = [
            operation.as_strategy(generation_mode=mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        ]
        options = hypothesis.settings(
            max_examples=n,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )

        @hypothesis.seed(seed)
        @options
        @hypothesis.given(case=hypothesis.strategies.one_of(drawn))
        def test(case: Any) -> None:
            send(case)

        test()

    def _send(self, role: str, headers: Mapping[str, str], case: Any) -> None:
        from schemathesis.core.failures import FailureGroup

        case.path_parameters = {
            name: self._existing(name, value) for name, value in (case.path_parameters or {}).items()
        }
        case.body = with_existing_ids(case.body)
        response = case.call(headers=dict(headers))
        self.statuses[response.status_code] += 1
        try:
            case.validate_response(response, checks=self.checks)
        except FailureGroup as group:
            request = f"{role}: {case.method} {case.formatted_path} {case.query or ''} {str(case.body)[:300]}"
            reasons = "; ".join(str(error).replace("\n", " ")[:300] for error in group.exceptions)
            self.failures.append(f"{request}\n    -> {response.status_code} {response.text[:300]}\n    {reasons}")

    def _existing(self, name: str, value: Any) -> Any:
        if name in self.names and isinstance(value, str) and len(value) % 4:
            return self.names[name][len(value) % len(self.names[name])]
        return existing_id(value)


CONFORMANCE = {
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
}


def description() -> dict[str, Any]:
    from drf_spectacular.generators import SchemaGenerator

    document = SchemaGenerator().get_schema(request=None, public=True)
    document["servers"] = [{"url": "http://localhost"}]
    return document


def populate() -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """Fill the database with sample rows. Return the headers of each role, and names for addresses."""
    from django.utils import timezone

    from kgharvest.accounts.projects import default_project
    from kgharvest.accounts.tokens import create_token
    from kgharvest.models import Role, Webhook
    from kgharvest.webhooks.outbox import send_test
    from tests import factories

    people = {role.value: factories.make_member(role) for role in Role}
    people["superuser"] = factories.make_user(is_superuser=True)
    people["annotator"] = factories.make_user()
    scopes = dict.fromkeys(people, "write") | {"annotator": "judge"}
    headers = {
        name: {"Authorization": f"Bearer {create_token(user, 'fuzz', scopes[name], 1, timezone.now()).secret}"}
        for name, user in people.items()
    }
    headers["reader"] = {
        "Authorization": f"Bearer {create_token(people['owner'], 'fuzz', 'read', 1, timezone.now()).secret}"
    }
    headers["nobody"] = {}
    researcher = people["researcher"]
    factories.make_relation_set("demo", is_shipped=True)
    done = factories.make_round([["a", "b"], ["c", "d"], ["e", "f"]], by=researcher, name="done")
    factories.judge_all(done, ["true", "true", "false"], ["false", "false", "false"])
    factories.make_round(3, by=researcher, name="open")
    for status in ("failed", "queued", "cancelled"):
        factories.make_harvest_job(status, launch=factories.make_launch())
    send_test(Webhook.objects.create(project_id=default_project().pk, url="https://1.1.1.1/", events=["report.made"]))
    usernames = [user.username for user in people.values()]
    return headers, {"slug": [default_project().slug], "username": usernames, "name": ["done", "open"]}


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000, help="number of requests per role")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--role", default="")
    parser.add_argument("--only", default="", help='test only this operation, such as "POST /api/v1/relations/"')
    options = parser.parse_args()
    set_up_django()
    from django.conf import settings

    logging.disable(logging.CRITICAL)
    settings.API_LIMITS = dict.fromkeys(settings.API_LIMITS, (10**9, 60))
    migrate()
    roles, names = populate()
    fuzz = Fuzz(names)

    def chosen(number: int, operation: Any) -> bool:
        return options.only in ("", f"{operation.method.upper()} {operation.path}")

    for role, headers in roles.items():
        if options.role in ("", role):
            fuzz.run(role, headers, options.cases, options.seed, chosen)
    print(*dict.fromkeys(fuzz.failures[:FAILURES_SHOWN]), sep="\n\n")
    print(f"{fuzz.statuses.total()} requests, seed {options.seed}: {dict(sorted(fuzz.statuses.items()))}")
    print(f"{len(fuzz.failures)} failed")
    return not fuzz.failures


if __name__ == "__main__":
    sys.exit(not main())
