"""HITs: what Amazon Mechanical Turk is asked to show to people, and what that costs.

A panel is one HIT, whose assignments are its places. Its question is external: a page of ours inside MTurk's frame.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any
from xml.etree import ElementTree

from django.conf import settings
from django.urls import reverse
from django.utils.crypto import salted_hmac

from annotation.models import Panel
from annotation.recruiting.platforms import Cost, PlatformRefused
from annotation.recruiting.questionnaire.questions import check_questions, who_questions

SALT = "annotation.recruiting.mturk"
QUESTION_SCHEMA = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2006-07-14/ExternalQuestion.xsd"
MINUTE, DAY = 60, 24 * 3600  # seconds
LONGEST_LIFETIME = 365 * DAY
LONGEST_AUTO_APPROVAL = 30 * DAY
# https://www.mturk.com/pricing: 20 % of the reward, 20 % more where a HIT has ten assignments or more, a cent at least.
FEE_PERCENT, FEE_PERCENT_OF_MANY, MANY = 20, 40, 10


@dataclass(frozen=True)
class HitOptions:
    """What only MTurk takes: Panel.platform_options by these names; empty texts and zeros stand for what is usual.

    assignment_minutes: how long somebody may take. qualifications: QualificationRequirements as MTurk's API has them.
    """

    title: str = ""
    description: str = ""
    keywords: str = "statements, true or false, language, judgment"
    lifetime_days: int = 7
    assignment_minutes: int = 0
    auto_approval_days: int = 3
    frame_height: int = 800
    qualifications: tuple[dict[str, Any], ...] | list[dict[str, Any]] = ()

    @classmethod
    def of(cls, panel: Panel) -> HitOptions:
        """Raises PlatformRefused."""
        known = {field.name: type(field.default) for field in fields(cls)}
        if not isinstance(panel.platform_options, dict):
            raise PlatformRefused(f"What only MTurk takes is an object with some of {', '.join(known)}.")
        for name, value in panel.platform_options.items():
            if name not in known:
                raise PlatformRefused(f"MTurk has no option {name!r:.60}; there are {', '.join(known)}.")
            wanted = list if name == "qualifications" else known[name]
            if type(value) is not wanted:
                raise PlatformRefused(f"The option {name} is {value!r:.60}; give a {wanted.__name__}.")
        return cls(**panel.platform_options)


def cost_of(panel: Panel) -> Cost:
    """Return rewards and fees of all places; bonuses cost 20 % more when they are paid."""
    percent = FEE_PERCENT_OF_MANY if panel.places >= MANY else FEE_PERCENT
    return Cost(panel.reward * panel.places, fee_on(panel.reward, percent) * panel.places)


def fee_on(amount: int, percent: int = FEE_PERCENT) -> int:
    """Return the fee on one payment in cents: half cents are rounded up, and a cent is the least."""
    return max(1, (amount * percent + 50) // 100)


def dollars(amount: int) -> str:
    """Return cents as MTurk writes them."""
    return f"{amount // 100}.{amount % 100:02}"


def cents(amount: str) -> int:
    whole, _, part = amount.partition(".")
    return int(whole) * 100 + int(part.ljust(2, "0")[:2] or 0)


def assignment_seconds(panel: Panel) -> int:
    """Return how long somebody may take, from accepting on; thrice the estimate and half an hour at least."""
    return MINUTE * (HitOptions.of(panel).assignment_minutes or max(30, 3 * panel.estimated_minutes))


def lifetime_seconds(panel: Panel) -> int:
    return min(HitOptions.of(panel).lifetime_days * DAY, LONGEST_LIFETIME)


def annotation_of(panel: Panel) -> str:
    """Return what names the panel in its HIT, for this account's eyes only, so that a HIT made before is found."""
    return f"kgharvest {request_token('panel', panel.pk)[:32]}"


def request_token(purpose: str, number: int) -> str:
    """Return the token with which MTurk does the same request once: 64 hexadecimal digits of this installation."""
    return salted_hmac(f"{SALT}.{purpose}", str(number), algorithm="sha256").hexdigest()


def new_hit(panel: Panel) -> dict[str, Any]:
    """Return the parameters of CreateHIT. Raises PlatformRefused, as MTurk would."""
    options = HitOptions.of(panel)
    if panel.currency != "USD":
        raise PlatformRefused(f"MTurk pays in USD only, and this panel pays in {panel.currency}; change its currency.")
    if panel.round.training_size or who_questions(panel.round) or check_questions(panel.round):
        raise PlatformRefused(
            "The page inside MTurk's frame has neither training nor questions; recruit for this round by a link."
        )
    return {
        "Title": options.title or f"Say whether {panel.statements_per_place} short statements are true",
        "Description": options.description or "Read short statements and say of each whether it is true in general.",
        "Keywords": options.keywords,
        "Reward": dollars(panel.reward),
        "MaxAssignments": panel.places,
        "AssignmentDurationInSeconds": assignment_seconds(panel),
        "LifetimeInSeconds": lifetime_seconds(panel),
        "AutoApprovalDelayInSeconds": min(options.auto_approval_days * DAY, LONGEST_AUTO_APPROVAL),
        "QualificationRequirements": list(options.qualifications),
        "Question": external_question(panel, options.frame_height),
        "RequesterAnnotation": annotation_of(panel),
        "UniqueRequestToken": request_token("panel", panel.pk),
    }


def external_question(panel: Panel, frame_height: int) -> str:
    """Return the XML that has MTurk show our page. Raises PlatformRefused where people do not come here by https."""
    if not settings.ORIGIN.startswith("https://"):
        raise PlatformRefused(
            f"MTurk shows pages over https only, and this server is {settings.ORIGIN}; set KGHARVEST_BASE_URL to its "
            "https address."
        )
    question = ElementTree.Element("ExternalQuestion", xmlns=QUESTION_SCHEMA)
    url = settings.ORIGIN + reverse("annotation:mturk_frame", args=[panel.token])
    ElementTree.SubElement(question, "ExternalURL").text = url
    ElementTree.SubElement(question, "FrameHeight").text = str(frame_height)
    return ElementTree.tostring(question, encoding="unicode")
