"""JSON Schemas of the used part of Prolific's API: requests and responses by method and path.

Written from docs.prolific.com/api-reference and from its OpenAPI document as of
github.com/prolific-oss/cli, contract_test/publicapi.yaml at 6e71d85f (operations StudiesCreateStudy,
StudiesPublishStudy, StudiesCalculateStudyCost, SubmissionsTransitionSubmission, SubmissionsRequestSubmissionReturn,
SubmissionsBulkApproveSubmissions, BonusesCreateBonusPayments, BonusesPayBonusPayments, WellKnownEndpointsGetStudyJwks);
webhooks from docs.prolific.com/api-reference/webhooks. Requests must not contain any other fields.
"""

from __future__ import annotations

import re
from typing import Any

import jsonschema

TEXT, WHOLE, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
SOME_TEXT = {"type": "string", "minLength": 1}
TIME = {"type": ["string", "null"]}


def record(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def one_of(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


def array(of: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": of, **more}


ACTIONS = {
    "oneOf": [
        record({"action": one_of("AUTOMATICALLY_APPROVE", "MANUALLY_REVIEW")}),
        record({"action": one_of("REQUEST_RETURN"), "return_reason": SOME_TEXT}),
        record({"action": one_of("FIXED_SCREEN_OUT_PAYMENT"), "fixed_screen_out_reward": WHOLE, "slots": WHOLE}),
    ]
}
CODE_TYPES = one_of(
    "COMPLETED", "FAILED_ATTENTION_CHECK", "FOLLOW_UP_STUDY", "GIVE_BONUS", "INCOMPATIBLE_DEVICE", "NO_CONSENT",
    "OTHER", "FIXED_SCREENOUT",
)  # fmt: skip
CODE = record({"code": SOME_TEXT, "code_type": CODE_TYPES, "actions": array(ACTIONS)}, actor=one_of("participant"))
SELECT_FILTER = record({"filter_id": SOME_TEXT, "selected_values": array(TEXT)})
RANGE_FILTER = record({"filter_id": SOME_TEXT, "selected_range": record({}, lower=NUMBER, upper=NUMBER)})
STUDY = record(
    {
        "name": SOME_TEXT,
        "description": SOME_TEXT,
        "external_study_url": {
            "type": "string",
            "pattern": r"^https?://.+\{\{%PROLIFIC_PID%\}\}.+\{\{%STUDY_ID%\}\}.+\{\{%SESSION_ID%\}\}",
        },
        "prolific_id_option": one_of("url_parameters"),
        "completion_codes": array(CODE, minItems=1),
        "total_available_places": {"type": "number", "minimum": 1},
        "estimated_completion_time": {"type": "number", "minimum": 1},
        "reward": {"type": "number", "minimum": 1},
        "device_compatibility": array(one_of("desktop", "tablet", "mobile")),
        "filters": array({"oneOf": [SELECT_FILTER, RANGE_FILTER]}),
    },
    internal_name=TEXT,
    maximum_allowed_time=NUMBER,
    study_labels=array(one_of("annotation", "survey", "ai_annotation", "other"), maxItems=1),
    content_warnings=array(one_of("sensitive", "explicit"), maxItems=1),
    content_warning_details=TEXT,
    project=TEXT,
    is_external_study_url_secure=FLAG,
)
REJECTIONS = one_of(
    "TOO_QUICKLY", "TOO_SLOWLY", "FAILED_INSTRUCTIONS", "INCOMP_LONGITUDINAL", "FAILED_CHECK", "LOW_EFFORT",
    "MALINGERING", "NO_CODE", "BAD_CODE", "NO_DATA", "UNSUPP_DEVICE", "OTHER",
)  # fmt: skip
SUBMISSION_MOVE = {
    "oneOf": [
        record({"action": one_of("APPROVE")}),
        record({"action": one_of("SCREEN_OUT")}, completion_code=SOME_TEXT),
        record(
            {
                "action": one_of("REJECT"),
                "message": {"type": "string", "minLength": 100},
                "rejection_category": REJECTIONS,
            }
        ),
    ]
}
BONUS_LINE = r"^([0-9a-f]{24},[0-9]+\.[0-9]{2}\n?)+$"

NOTHING = None
REQUESTS: dict[str, Any] = {
    "GET /api/v1/studies/": NOTHING,
    "POST /api/v1/studies/": STUDY,
    "GET /api/v1/studies/ID/": NOTHING,
    "PATCH /api/v1/studies/ID/": STUDY,
    "POST /api/v1/studies/ID/transition/": record({"action": one_of("PUBLISH", "PAUSE", "START", "STOP")}),
    "POST /api/v1/study-cost-calculator/": record({"reward": NUMBER, "total_available_places": NUMBER}),
    "GET /api/v1/submissions/": NOTHING,
    "GET /api/v1/submissions/ID/": NOTHING,
    "POST /api/v1/submissions/ID/transition/": SUBMISSION_MOVE,
    "POST /api/v1/submissions/ID/request-return/": record({"request_return_reasons": array(SOME_TEXT, minItems=1)}),
    "POST /api/v1/submissions/bulk-approve/": record({"submission_ids": array(SOME_TEXT, maxItems=1000)}),
    "POST /api/v1/submissions/bonus-payments/": record(
        {"study_id": SOME_TEXT, "csv_bonuses": {"type": "string", "pattern": BONUS_LINE}}
    ),
    "POST /api/v1/bulk-bonus-payments/ID/pay/": NOTHING,
    "GET /api/v1/hooks/subscriptions/": NOTHING,
    "POST /api/v1/hooks/subscriptions/": record({"workspace_id": TEXT, "event_type": TEXT, "target_url": SOME_TEXT}),
    "POST /api/v1/hooks/subscriptions/ID/": record({"secret": SOME_TEXT}),
    "GET /.well-known/study/jwks.json": NOTHING,
}
QUERIES = {
    "GET /api/v1/submissions/": {"study", "page", "page_size", "ordering", "status"},
    "GET /api/v1/hooks/subscriptions/": {"workspace_id"},
    "GET /api/v1/studies/": {"state"},
}

STUDY_STATUS = one_of("UNPUBLISHED", "SCHEDULED", "PUBLISHING", "ACTIVE", "AWAITING REVIEW", "PAUSED", "COMPLETED")
SUBMISSION_STATUS = one_of(
    "RESERVED", "ACTIVE", "TIMED-OUT", "AWAITING REVIEW", "APPROVED", "RETURNED", "REJECTED", "SCREENED OUT",
)  # fmt: skip
STUDY_ANSWER = record({"id": TEXT, "status": STUDY_STATUS, **STUDY["properties"]})
STUDY_ANSWER["required"] = ["id", "status", "name"]
STUDY_ROW = record({"id": TEXT, "name": TEXT}, internal_name=TEXT, status=STUDY_STATUS)
SUBMISSION_ROW = record(
    {"participant_id": TEXT, "started_at": TEXT, "has_siblings": FLAG, "id": TEXT, "status": SUBMISSION_STATUS},
    completed_at=TIME,
    study_code={"type": ["string", "null"]},
    return_requested=TIME,
)
SUBMISSION_ANSWER = record(
    {"started_at": TEXT, "status": SUBMISSION_STATUS, "study_id": TEXT, "id": TEXT, "participant": TEXT},
    completed_at=TIME,
    entered_code={"type": ["string", "null"]},
    bonus_payments=array(NUMBER),
    return_requested=TIME,
)
SUBSCRIPTION = record({"id": TEXT, "event_type": TEXT, "target_url": TEXT, "workspace_id": TEXT, "is_enabled": FLAG})
ANSWERS: dict[str, Any] = {
    "GET /api/v1/studies/": record({"results": array(STUDY_ROW)}),
    "POST /api/v1/studies/": STUDY_ANSWER,
    "GET /api/v1/studies/ID/": STUDY_ANSWER,
    "PATCH /api/v1/studies/ID/": STUDY_ANSWER,
    "POST /api/v1/studies/ID/transition/": STUDY_ANSWER,
    "POST /api/v1/study-cost-calculator/": record({"total_cost": NUMBER}),
    "GET /api/v1/submissions/": record({"results": array(SUBMISSION_ROW)}),
    "GET /api/v1/submissions/ID/": SUBMISSION_ANSWER,
    "POST /api/v1/submissions/ID/transition/": SUBMISSION_ANSWER,
    "POST /api/v1/submissions/ID/request-return/": record(
        {"id": TEXT, "status": SUBMISSION_STATUS, "participant": TEXT, "return_requested": TIME}
    ),
    "POST /api/v1/submissions/bulk-approve/": TEXT,
    "POST /api/v1/submissions/bonus-payments/": record(
        {"id": TEXT, "total_amount": NUMBER}, study=TEXT, amount=NUMBER, fees=NUMBER, vat=NUMBER
    ),
    "POST /api/v1/bulk-bonus-payments/ID/pay/": TEXT,
    "GET /api/v1/hooks/subscriptions/": record({"results": array(SUBSCRIPTION)}),
    "POST /api/v1/hooks/subscriptions/": SUBSCRIPTION,
    "POST /api/v1/hooks/subscriptions/ID/": SUBSCRIPTION,
    "GET /.well-known/study/jwks.json": record(
        {
            "keys": array(
                record(
                    {
                        "kty": one_of("RSA"),
                        "kid": TEXT,
                        "alg": one_of("RS256"),
                        "n": TEXT,
                        "e": TEXT,
                        "use": one_of("sig"),
                        "key_ops": array(one_of("verify")),
                    }
                )
            )
        }
    ),
}


def operation(method: str, path: str) -> str:
    """Return the key of the operation in the tables, such as `POST /api/v1/studies/ID/transition/`."""
    return f"{method} {re.sub('/[0-9a-f]{24}/', '/ID/', path)}"


def faults_of_request(method: str, path: str, query: dict[str, list[str]], body: Any) -> list[str]:
    """Return one message for each violation of the table by a request."""
    name = operation(method, path)
    if name not in REQUESTS:
        return [f"{name} is not an operation of the table"]
    faults = [f"{name}: unknown parameter {key}" for key in query if key not in QUERIES.get(name, set())]
    if REQUESTS[name] is None:
        return faults + [f"{name} takes no body"] * (body is not None)
    errors = jsonschema.Draft202012Validator(REQUESTS[name]).iter_errors(body)
    return faults + [f"{name}: {error.json_path} {error.message}" for error in errors]


def check_answer(method: str, path: str, answer: Any) -> None:
    """Raise ValidationError if a response of the fake violates Prolific's schema."""
    jsonschema.validate(answer, ANSWERS[operation(method, path)], jsonschema.Draft202012Validator)
