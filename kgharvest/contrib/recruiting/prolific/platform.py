"""Prolific as a recruiting platform: study, submissions, and pay of one panel.

Options specific to Prolific are in `panel.platform_options`, under the names in STUDY_OPTIONS.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from kgharvest.contrib.recruiting.models import Panel, Platform, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.identifiers import digest
from kgharvest.contrib.recruiting.panels.links import BadEntryLink, with_parameters
from kgharvest.contrib.recruiting.panels.links import parameters as parameter_names
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.presets import PRESETS
from kgharvest.contrib.recruiting.pay.commands import GROUNDS, SHORTEST_REJECTION
from kgharvest.contrib.recruiting.platforms import (
    PlatformRefused,
    PlatformUnavailable,
    RecruitingPlatform,
    RemoteSubmission,
)
from kgharvest.contrib.recruiting.prolific.client import Client

CURRENCIES = {"USD": 800, "GBP": 600}  # Prolific's minimum hourly rates in minor units
DEVICES = {"desktop": "computers", "tablet": "tablets", "mobile": "phones"}
CONTENT_WARNINGS = {"": "none", "sensitive": "sensitive content", "explicit": "explicit content"}
LONGEST_ALLOWED = 24 * 60 - 1  # maximum allowed time in minutes
MOST_SLOTS = 100_000

Rule = tuple[Callable[[Any], bool], str]  # predicate for valid values, and their description


def _text(most: int) -> Rule:
    return (
        lambda value: isinstance(value, str) and len(value) <= most and "\0" not in value,
        f"a text of at most {most:,} characters",
    )


def _number(most: int) -> Rule:
    return (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most,
        f"a whole number from 1 to {most:,}",
    )


STUDY_OPTIONS: dict[str, Rule] = {
    "title": _text(120),
    "description": _text(6000),
    "devices": (
        lambda value: isinstance(value, list) and all(device in list(DEVICES) for device in value),
        f"a list of {', '.join(DEVICES)}",
    ),
    "content_warning": (lambda value: value in list(CONTENT_WARNINGS), "sensitive, explicit, or empty"),
    "content_warning_details": _text(500),
    "filters": (lambda value: not any(filter_problems(value)), "a list of filters"),
    "maximum_minutes": _number(LONGEST_ALLOWED),
    "screen_out_slots": _number(MOST_SLOTS),
    "project": _text(50),
    "signs_entry": (lambda value: isinstance(value, bool), "true or false"),
}

APPROVES_ITSELF_AFTER = timedelta(days=21)  # time after completion at which Prolific approves a submission

Status, Kind = Submission.Status, PlatformCommand.Kind

STATUSES = {
    "RESERVED": Status.ACTIVE,
    "ACTIVE": Status.ACTIVE,
    "AWAITING REVIEW": Status.COMPLETED,
    "APPROVED": Status.APPROVED,
    "PARTIALLY APPROVED": Status.APPROVED,
    "REJECTED": Status.REJECTED,
    "RETURNED": Status.RETURNED,
    "TIMED-OUT": Status.TIMED_OUT,
    "SCREENED OUT": Status.SCREENED_OUT,
}
STUDY_STATUSES = {  # AWAITING REVIEW means that all places are taken; current participants can continue
    "ACTIVE": Panel.Status.PUBLISHED,
    "PUBLISHING": Panel.Status.PUBLISHED,
    "AWAITING REVIEW": Panel.Status.PUBLISHED,
    "PAUSED": Panel.Status.PAUSED,
    "COMPLETED": Panel.Status.STOPPED,
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")  # form of valid submission ids; a forged link can contain any text
SHOWS_WITHIN = timedelta(minutes=1)  # time after which Prolific's API shows every participant who opened the entry link
GONE = "GONE"  # platform status of a submission that Prolific does not have

# Signed entry token
PARAMETER = "prolific_token"
ISSUER = "https://www.prolific.com"
LEEWAY_S = 60  # maximum difference between the clocks
KEYS_LAST_S = 3600  # time in the cache; Prolific asks for a daily refresh
BAD_LINK = "Prolific did not issue this link. Go back to Prolific and open the study from there again."


class Prolific(RecruitingPlatform):
    has_api = True

    @cached_property
    def client(self) -> Client:
        return Client()

    def check_entry(self, parameters: Mapping[str, str]) -> bool:
        """Return True if Prolific signed the parameters of the entry link, False if there is no signature.

        The signature is a JWT signed with a key from /.well-known/study/jwks.json. It is valid for two minutes, and
        only for this host, these parameters, and this submission (`is_external_study_url_secure` in Prolific's API
        documentation). Raises BadEntryLink if the signature is invalid, or if the study requires one and there is none.
        Raises PlatformUnavailable if Prolific's keys cannot be fetched.
        """
        token = parameters.get(PARAMETER, "")
        if not token:
            if self.panel.platform_options.get("signs_entry"):
                raise BadEntryLink(BAD_LINK)
            return False
        claims = _claims(token)
        signed, audience = claims.get("prolific"), claims.get("aud")
        has_parameters = isinstance(signed, dict) and all(
            signed.get(name, "") == parameters.get(name, "") for name in parameter_names(self.panel) if name
        )
        has_submission = claims.get("sub") == parameters.get(self.panel.session_parameter)
        has_host = isinstance(audience, str) and urlsplit(audience).netloc == urlsplit(settings.ORIGIN).netloc
        if not (has_parameters and has_submission and has_host):
            raise BadEntryLink(BAD_LINK)
        return True

    def option_problems(self) -> Iterator[str]:
        for name, value in self.panel.platform_options.items():
            if name not in STUDY_OPTIONS:
                yield f"Unknown Prolific option {name!r:.50}. Use {', '.join(STUDY_OPTIONS)}."
                continue
            is_valid, description = STUDY_OPTIONS[name]
            if not is_valid(value):
                yield next(filter_problems(value)) if name == "filters" else f"{name} must be {description}."

    def cost(self) -> int:
        """Return the cost of the places according to Prolific's calculator, without paid screen-outs and bonuses."""
        return self.client.cost(self.panel.reward, self.panel.places)

    def publish(self) -> str:
        """Create the study or reuse its draft, and publish the study. Return its id. Idempotent."""
        document = study_document(self.panel)
        if self.panel.external_id:
            study = self.client.study(self.panel.external_id)
        else:  # if Prolific did not confirm the creation of a study, it is found by its internal name
            drafts = [row for row in self.client.studies() if row.get("internal_name") == document["internal_name"]]
            study = drafts[0] if drafts else self.client.create_study(document)
        if study["status"] == "UNPUBLISHED":
            self.client.update_study(study["id"], document)
            self._transition(study, "PUBLISH")
            return study["id"]
        # If the answer to an earlier publication was lost, the reward may have been edited since.
        reward = self.client.study(study["id"])["reward"]
        if reward != self.panel.reward:
            raise PlatformRefused(
                f"The study is already published on Prolific with a reward of {money(reward, self.panel.currency)}. "
                "Set the panel's reward to this amount, or stop the study there and create another panel."
            )
        if study["status"] == "PAUSED":
            self._transition(study, "START")
        elif study["status"] == "COMPLETED":
            raise PlatformRefused("This study has ended on Prolific. Create another panel to recruit participants.")
        return study["id"]

    def pause(self) -> None:
        self._move("PAUSE", "ACTIVE")

    def resume(self) -> None:
        check_ready(self.panel)
        self._move("START", "PAUSED")

    def stop(self) -> None:
        self._move("STOP", "ACTIVE", "PAUSED")

    def _move(self, action: str, *from_statuses: str) -> None:
        """Send the action if the study has one of these statuses. Otherwise, the action has already taken effect."""
        study = self.client.study(self.panel.external_id)
        if study["status"] in from_statuses:
            self._transition(study, action)

    def _transition(self, study: dict[str, Any], action: str) -> None:
        try:
            self.client.move_study(study["id"], action)
        except PlatformRefused:  # also raised if an earlier attempt succeeded but Prolific's answer was lost
            if self.client.study(study["id"])["status"] == study["status"]:
                raise

    def status(self) -> str | None:
        return STUDY_STATUSES.get(self.client.study(self.panel.external_id)["status"])

    def submissions(self) -> Iterator[RemoteSubmission]:
        """Yield every submission of the study. Submissions with an uncertain payment are yielded with their bonuses.

        A submission that was entered with a forged link does not exist on Prolific. It is yielded with the status
        RETURNED.
        """
        uncertain = self.panel.submissions.filter(
            commands__kind=Kind.BONUS, commands__state=PlatformCommand.State.UNCERTAIN
        )
        single_requests = {submission.session_id for submission in uncertain}
        listed = set()
        for row, asked_at in self.client.submissions(self.panel.external_id):
            listed.add(row["id"])
            if row["id"] not in single_requests:
                yield remote_submission(self.panel, row, row["participant_id"], asked_at)
        unfinished = self.panel.submissions.filter(
            status__in=[Status.ACTIVE, Status.COMPLETED], entered_at__lt=datetime.now(UTC) - SHOWS_WITHIN
        )
        unlisted = {submission.session_id for submission in unfinished} - listed
        for session in sorted(single_requests | unlisted - {""}):
            yield self.submission(session)

    def submission(self, session: str) -> RemoteSubmission:
        """Return the current state of a submission with its bonuses.

        If Prolific does not have it, its status is RETURNED.
        """
        asked_at = datetime.now(UTC)
        row = self.client.submission(session) if NAME.fullmatch(session) else None
        if row is None or row["study_id"] != self.panel.external_id:
            return RemoteSubmission("", session, Status.RETURNED, GONE, asked_at)
        return remote_submission(self.panel, row, row["participant"], asked_at)

    def execute(self, command: PlatformCommand) -> None:
        session = command.submission.session_id
        if not NAME.fullmatch(session):
            raise PlatformRefused("This submission has no Prolific id. Process it manually on Prolific.")
        if command.kind == Kind.APPROVE:
            self._approve(session)
        elif command.kind == Kind.REJECT:
            if command.category not in GROUNDS or len(command.message) < SHORTEST_REJECTION:
                reason = f"A rejection requires a valid category and at least {SHORTEST_REJECTION} characters of text."
                raise PlatformRefused(reason)
            fields = {"message": command.message, "rejection_category": command.category}
            self.client.move_submission(session, "REJECT", **fields)
        elif command.kind == Kind.RETURN:
            self.client.request_return(session, command.message or "Other")
        elif command.kind == Kind.SCREEN_OUT:
            code = {"completion_code": self.panel.screen_out_code} if self.panel.screen_out_code else {}
            self.client.move_submission(session, "SCREEN_OUT", **code)
        else:
            self._pay_bonus(command, session)

    def approve_all(self, submissions: Sequence[Submission]) -> None:
        sessions = [submission.session_id for submission in submissions]
        self.client.approve_all([session for session in sessions if NAME.fullmatch(session)])

    def _approve(self, session: str) -> None:
        try:
            self.client.move_submission(session, "APPROVE")
        except PlatformRefused:
            row = self.client.submission(session)
            if row is None or STATUSES.get(row["status"]) != Status.ACTIVE:
                raise
            sentence = "The participant has not entered the code on Prolific yet. The approval will be retried."
            raise PlatformUnavailable(sentence) from None

    def _pay_bonus(self, command: PlatformCommand, session: str) -> None:
        """Set up the bonus, store its id, and then pay it.

        If this is interrupted before the last step, nothing is paid.
        """
        if not command.external_id:
            bonus = self.client.set_up_bonus(self.panel.external_id, session, command.amount)
            if bonus.get("amount") is not None and round(bonus["amount"]) != command.amount:
                raise PlatformRefused(
                    f"Not paid: Prolific set up a bonus of {bonus['amount']} cents instead of {command.amount}."
                )
            sending = PlatformCommand.objects.filter(state=PlatformCommand.State.UNCERTAIN)
            claim = sending.filter(pk=command.pk, n_tries=command.n_tries)
            if not claim.update(external_id=bonus["id"]):
                raise PlatformRefused("Not paid: this bonus was sent or settled in the meantime.")
            command.external_id = bonus["id"]
        self.client.pay_bonus(command.external_id)


def _claims(token: str) -> dict:
    """Return the claims of a token with a valid signature and validity period. Raises BadEntryLink."""
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, JoseError
    from joserfc.jwk import KeySet

    try:
        try:
            decoded = jwt.decode(token, KeySet.import_key_set(_keys()), algorithms=["RS256"])
        except InvalidKeyIdError:  # Prolific may have new keys
            decoded = jwt.decode(token, KeySet.import_key_set(_keys(refresh=True)), algorithms=["RS256"])
        jwt.JWTClaimsRegistry(
            leeway=LEEWAY_S, iss={"essential": True, "value": ISSUER}, exp={"essential": True}, sub={"essential": True}
        ).validate(decoded.claims)
    except (JoseError, ValueError):
        raise BadEntryLink(BAD_LINK) from None
    return decoded.claims


def _keys(refresh: bool = False) -> Any:
    """Return Prolific's keys from the cache. If `refresh` is set, fetch them again, at most once a minute."""
    keys, is_fresh = cache.get("prolific:keys"), cache.get("prolific:keys:fresh")
    if keys is None or (refresh and not is_fresh):
        keys = Client().keys()
        cache.set("prolific:keys", keys, KEYS_LAST_S)
        cache.set("prolific:keys:fresh", True, 60)
    return keys


def remote_submission(panel: Panel, row: dict[str, Any], participant: str, asked_at: datetime) -> RemoteSubmission:
    """Parse a submission from a list, or from the response for a single submission.

    Only a single submission contains bonuses.
    """
    status = STATUSES.get(row["status"], Status.ACTIVE)
    paid = {Status.APPROVED: panel.reward, Status.SCREENED_OUT: panel.screen_out_reward}
    is_full = row["status"] != "PARTIALLY APPROVED"  # Prolific does not state the amount that a partial approval pays
    completed_at = parse_datetime(row.get("completed_at") or "")
    awaits_review = status == Status.COMPLETED and completed_at is not None
    bonuses = row.get("bonus_payments")
    return RemoteSubmission(
        participant=participant,
        session=row["id"],
        status=status,
        platform_status=row["status"],
        at=asked_at,
        approves_itself_at=completed_at + APPROVES_ITSELF_AFTER if awaits_review else None,
        paid_bonuses=None if bonuses is None else [round(amount) for amount in bonuses],
        reward_paid=paid.get(status) if is_full else None,
    )


# Studies


def filter_problems(filters: Any) -> Iterator[str]:
    """Yield one sentence per problem. A filter must have either selected_values or a selected_range."""
    if not isinstance(filters, list):
        yield "The filters must be a list."
        return
    for number, filter_ in enumerate(filters, start=1):
        if not isinstance(filter_, dict) or not isinstance(filter_.get("filter_id"), str):
            yield f"Filter {number} has no filter_id."
            continue
        values, bounds = filter_.get("selected_values"), filter_.get("selected_range")
        is_choice = isinstance(values, list) and values and all(isinstance(value, str) for value in values)
        is_range = (
            isinstance(bounds, dict)
            and bounds
            and all(name in ("lower", "upper") and type(bound) in (int, float) for name, bound in bounds.items())
        )
        if bool(is_choice) == bool(is_range) or len(filter_) != 2:
            yield (
                f"Filter {number} ({filter_['filter_id']:.40}) needs either selected_values (a list of texts) or "
                "selected_range (lower, upper, or both, as numbers)."
            )


class Code(NamedTuple):
    """Completion code. actions: Prolific's actions for the code. kind, consequence: descriptions for researchers."""

    code: str
    code_type: str
    actions: list[dict[str, Any]]
    kind: str
    consequence: str


def study_document(panel: Panel) -> dict[str, Any]:
    """Return the body of POST /studies/. Raises PlatformRefused if the panel is not ready."""
    check_ready(panel)
    options = panel.platform_options
    address = settings.ORIGIN + reverse("recruiting:panel_enter", args=[panel.token])
    document = {
        "name": options["title"],
        # A unique name, by which an unconfirmed draft is found.
        "internal_name": f"{panel.name} {digest(f'study:{panel.token}')[:16]}",
        "description": options["description"],
        "external_study_url": with_parameters(address, panel, PRESETS[Platform.PROLIFIC].values),
        "prolific_id_option": "url_parameters",
        "completion_codes": [
            {"code": code.code, "code_type": code.code_type, "actions": code.actions, "actor": "participant"}
            for code in codes(panel)
        ],
        "total_available_places": panel.places,
        "estimated_completion_time": panel.estimated_minutes,
        "maximum_allowed_time": options.get("maximum_minutes") or least_allowed_minutes(panel.estimated_minutes),
        "reward": panel.reward,
        "device_compatibility": options.get("devices") or list(DEVICES),
        "filters": options.get("filters") or [],
        "study_labels": ["annotation"],
    }
    if options.get("content_warning"):
        document["content_warnings"] = [options["content_warning"]]
        document["content_warning_details"] = options.get("content_warning_details", "")
    if options.get("project"):
        document["project"] = options["project"]
    if options.get("signs_entry"):
        document["is_external_study_url_secure"] = True
    return document


def codes(panel: Panel) -> Iterator[Code]:
    """Yield the completion codes of the panel. Completed submissions are reviewed manually."""
    review = "awaits your review; automatic approval after 21 days"
    yield Code(panel.completion_code, "COMPLETED", [{"action": "MANUALLY_REVIEW"}], "all statements judged", review)
    if panel.screen_out_code and panel.screen_out_reward:
        payment = {
            "action": "FIXED_SCREEN_OUT_PAYMENT",
            "fixed_screen_out_reward": panel.screen_out_reward,
            "slots": screen_out_slots(panel),
        }
        pays = f"pays {money(panel.screen_out_reward, panel.currency)} and releases the place"
        yield Code(panel.screen_out_code, "FIXED_SCREENOUT", [payment], "screen-out", pays)
    elif panel.screen_out_code:
        yield _return_code(panel.screen_out_code, "You did not pass the comprehension check.", "screen-out")
    if panel.quota_full_code:
        yield _return_code(panel.quota_full_code, "All places of the study were taken.", "quota full")


def _return_code(code: str, reason: str, kind: str) -> Code:
    actions = [{"action": "REQUEST_RETURN", "return_reason": reason}]
    return Code(code, "OTHER", actions, kind, "asks the participant to return the place")


def screen_out_slots(panel: Panel) -> int:
    """Return the maximum number of paid screen-outs, after which Prolific pauses the study."""
    return panel.platform_options.get("screen_out_slots") or panel.places


def least_allowed_minutes(estimated_minutes: int) -> int:
    """Return Prolific's minimum time limit for an estimate e: 2 + 2 e + 2 sqrt(e) minutes."""
    return min(math.ceil(2 + 2 * estimated_minutes + 2 * math.sqrt(estimated_minutes)), LONGEST_ALLOWED)


def too_few_minutes(least: int) -> str:
    return f"Prolific requires at least {least} minutes for this study. Increase the maximum allowed time."


def check_ready(panel: Panel) -> None:
    """Raise PlatformRefused with the first problem that prevents publication on Prolific."""
    for problem in publication_problems(panel):
        raise PlatformRefused(problem)


def publication_problems(panel: Panel) -> Iterator[str]:
    options = panel.platform_options
    if not options.get("title") or not options.get("description"):
        yield "Enter a title and a description of the study for participants."
    if panel.currency not in CURRENCIES:
        yield f"Prolific pays in {' or '.join(CURRENCIES)}, not in {panel.currency}. Change the panel's currency."
    elif panel.hourly_reward < CURRENCIES[panel.currency]:
        yield (
            f"The reward is {panel.hourly_reward / 100:.2f} {panel.currency} per hour. Prolific requires at least "
            f"{CURRENCIES[panel.currency] / 100:.2f}. Increase the reward."
        )
    if panel.screen_out_reward >= max(panel.reward, 1):
        yield "The screen-out reward must be lower than the reward on Prolific. Reduce the screen-out reward."
    panel_codes = [code.code for code in codes(panel)]
    if not panel.completion_code or len(set(panel_codes)) < len(panel_codes):
        yield "Prolific requires a completion code, and all codes must differ. Change the panel's codes."
    if not (panel.study_parameter and panel.session_parameter):
        yield "Link parameter missing: Prolific sends study and session. Enter names for both in the panel."
    least = least_allowed_minutes(panel.estimated_minutes)
    if options.get("maximum_minutes") and options["maximum_minutes"] < least:
        yield too_few_minutes(least)
