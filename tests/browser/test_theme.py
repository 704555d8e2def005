"""The theme follows the system until somebody chooses, and the choice stays."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PAPER = "getComputedStyle(document.body).backgroundColor"


def brightness(page) -> int:
    """Return the sum of the paper's red, green and blue as shown, 0 to 765."""
    colour = page.evaluate(PAPER)
    return sum(int(channel) for channel in colour.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.parametrize(("system", "is_bright"), [("light", True), ("dark", False)])
def test_the_theme_follows_the_system(visit, system, is_bright):
    page = visit(color_scheme=system).page

    page.goto("/accounts/login/")

    assert (brightness(page) > 382) == is_bright


def test_a_chosen_theme_outlives_the_page(visit):
    page = visit(color_scheme="light").page
    page.goto("/accounts/login/")

    page.get_by_role("button", name="Dark theme").click()
    page.goto("/accounts/login/")

    assert brightness(page) < 382


def test_choosing_the_systems_theme_follows_the_system_again(visit):
    page = visit(color_scheme="light").page
    page.goto("/accounts/login/")

    page.get_by_role("button", name="Dark theme").click()
    page.get_by_role("button", name="Light theme").click()
    page.emulate_media(color_scheme="dark")

    assert brightness(page) < 382


def test_without_scripts_there_is_no_dead_switch(visit):
    page = visit(java_script_enabled=False).page

    page.goto("/accounts/login/")

    assert page.get_by_role("button", name="theme").count() == 0
