"""Requests drawn from the API's own description as every role: no 5xx, no status or answer that it does not describe.

    python benches/fuzz_api.py [--cases 5000] [--seed 0] [--role owner] [--only "POST /api/v1/relations/"]

schemathesis draws valid and invalid requests for each operation; numbers in addresses and bodies are bent towards rows
that there are. They go to the application as gunicorn serves it, on an empty database of its own (DATABASE_URL and
DEBUG=1 choose another). Prints each failure with the request, and how many answers had which status; ends with status 1
if one failed.
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

NEAR = 6  # ids of rows that there are: 1 to this
FAILURES_SHOWN = 40
REFERENCES = {"relation", "relations", "sets", "copy_of", "job", "jobs", "round", "report", "task", "language_model"}
Send = Callable[[Any], None]


def near(value: Any) -> Any:
    """Bend a number towards an id that there is, in three of four cases."""
    if isinstance(value, list):
        return [near(item) for item in value]
    is_id = isinstance(value, int) and not isinstance(value, bool)
    return 1 + value % NEAR if is_id and value % 4 else value


def bend(value: Any, is_reference: bool = False) -> Any:
    """Return a body whose references are bent."""
    if isinstance(value, dict):
        return {name: bend(item, name in REFERENCES) for name, item in value.items()}
    return near(value) if is_reference else value


class Fuzz:
    """Draws requests for the operations of the description and counts what is answered.

    names: of rows that addresses name by text, by the parameter's name.
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
        """Send `n` requests as a role, as many for each operation. headers: with the role's token.

        chosen: whether an operation, of this number, is drawn; all without.
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
        case.body = bend(case.body)
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
        return near(value)


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
    """Fill the database with some of everything; return the headers of each role, and names for addresses."""
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
    parser.add_argument("--cases", type=int, default=5000, help="for each role")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--role", default="")
    parser.add_argument("--only", default="", help='one operation, such as "POST /api/v1/relations/"')
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
