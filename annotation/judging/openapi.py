"""The OpenAPI description of judging, whose addresses are those of the pages (annotation.judging.views).

Written by hand: drf-spectacular describes Django REST framework's views only, and these are plain views that answer
forms as well. Its negotiation and parsing would come on top of each judgment.
"""

from __future__ import annotations

from typing import Any

from annotation.models import LONGEST_COMMENT, Label, StatementReport

Schema = dict[str, Any]

FORM = "application/x-www-form-urlencoded"
UUID = "7f3c1a52-6d0e-4a9b-9c55-0d6f2d1f8e21"
NAME_OF_7 = "9f86d081884c7d65"
TASKS = {"tasks": [{"task": NAME_OF_7, "parts": [["A dog", True], [" can ", False], ["swim", True], [".", False]]}]}


def describe_judging(result: Schema, **_: Any) -> Schema:
    """Add judging to the description (settings.SPECTACULAR_SETTINGS, POSTPROCESSING_HOOKS)."""
    result["paths"] |= {f"/rounds/{{name}}/judge/{path}": operations for path, operations in PATHS.items()}
    return result


def fields(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}


def reply(description: str, schema: Schema, **examples: Any) -> Schema:
    shown = {name: {"value": value} for name, value in examples.items()}
    return {"description": description, "content": {"application/json": {"schema": schema, "examples": shown}}}


def refusal(description: str, *codes: str, message: str, **more: Any) -> Schema:
    """Describe {"error": {"code", "message"}}; the example has the first code."""
    code = {"type": "string", "enum": list(codes)}
    error = fields(["code", "message"], code=code, message=TEXT, fields={"type": "object"})
    example = {"error": {"code": codes[0], "message": message, **more}}
    return reply(description, fields(["error"], error=error), refused=example)


def operation(summary: str, replies: Schema, body: Schema | None = None, **example: Any) -> Schema:
    request = {} if body is None else {"requestBody": {"content": {FORM: {"schema": body, "example": example}}}}
    return {
        "operationId": summary.lower().replace(" ", "_"),
        "tags": ["judging"],
        "summary": summary,
        "parameters": [ROUND],
        **request,
        "responses": {"200": replies, **REFUSALS},
    }


TEXT = {"type": "string"}
ID = {"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "A name that only this annotator has for it."}
PART = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"oneOf": [TEXT, {"type": "boolean"}]}}
STATEMENT = fields(["task", "parts"], task=ID, parts={"type": "array", "items": PART})
STATEMENTS = {
    "type": "array",
    "items": STATEMENT,
    "description": "The annotator's assigned tasks, oldest first; of each its stretches of text, `true` for entities.",
}

ROUND = {"name": "name", "in": "path", "required": True, "schema": TEXT, "description": "The round's name."}
REFUSALS = {
    "400": refusal(
        "The fields are not valid.",
        "Invalid",
        message="The answer is not valid.",
        fields={"label": ["Select a valid choice. maybe is not one of the available choices."]},
    ),
    "403": refusal(
        "Nobody who judges this round is known here.",
        "NotJoined",
        message="Nobody who judges this round is known here; come back with your link or log in, and reload the page.",
    ),
    "409": refusal(
        "The round, the annotator's part in it or the statement does not allow it.",
        "RoundNotOpen",
        *("AnnotatorNotActive", "TrainingFirst", "NotAssigned", "BadAnswer", "UuidReused"),
        message="The round pilot is closed; judgments are taken only while it is open.",
    ),
}

ANSWER = fields(
    ["task", "label", "client_uuid"],
    task=ID,
    label={"type": "string", "enum": Label.values},
    client_uuid={"type": "string", "format": "uuid", "description": "One for each answer; sent again it counts once."},
    seconds={"type": "number", "minimum": 0, "description": "How long the statement was actively in sight."},
    comment={"type": "string", "maxLength": LONGEST_COMMENT},
    more={"type": "string", "enum": ["", "1"], "description": "Whether the reply is to bring the next statements."},
)
STORED = fields(
    ["stored", "late"],
    stored={"type": "string", "format": "uuid"},
    late={"type": "boolean", "description": "Whether its lease was over: kept, and counted only if still wanted."},
    tasks=STATEMENTS,
)
REPORT = fields(
    ["task", "report-reason"],
    **{
        "task": ID,
        "report-reason": {"type": "string", "enum": StatementReport.Reason.values},
        "report-comment": {"type": "string", "maxLength": LONGEST_COMMENT},
    },
)

PATHS = {
    "": {
        "get": operation(
            "The next statements", reply("Assigned now.", fields(["tasks"], tasks=STATEMENTS), statements=TASKS)
        ),
        "post": operation(
            "Answer a statement",
            reply(
                "The answer is stored. `tasks` only where more are asked for and can be had.",
                STORED,
                stored={"stored": UUID, "late": False},
                more={"stored": UUID, "late": False, **TASKS},
            ),
            ANSWER,
            task=NAME_OF_7,
            label="true",
            client_uuid=UUID,
            seconds=2.5,
            comment="",
            more="1",
        ),
    },
    "skip/": {
        "post": operation(
            "Leave a statement to others",
            reply("It was released.", fields(["skipped"], skipped=ID), skipped={"skipped": NAME_OF_7}),
            fields(["task"], task=ID),
            task=NAME_OF_7,
        ),
    },
    "report/": {
        "post": operation(
            "Report a broken statement",
            reply("The report is stored.", fields(["reported"], reported=ID), reported={"reported": NAME_OF_7}),
            REPORT,
            **{"task": NAME_OF_7, "report-reason": "unreadable", "report-comment": "There is no verb."},
        ),
    },
}
