"""Theme: it follows the system until the user selects one, and the selection persists."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def brightness(page) -> int:
    """Return the sum of the background's red, green, and blue values, 0 to 765."""
    color = page.evaluate(BACKGROUND)
    return sum(int(channel) for channel in color.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.parametrize(("system", "is_bright"), [("light", True), ("dark", False)])
def test_theme_follows_the_system(visit, system, is_bright):
    page = visit(color_scheme=system).page

    page.goto("/accounts/login/")

    assert (brightness(page) > 382) == is_bright


def test_selected_theme_persists_across_pages(visit):
    page = visit(color_scheme="light").page
    page.goto("/accounts/login/")

    page.get_by_role("button", name="Dark theme").click()
    page.goto("/accounts/login/")

    assert brightness(page) < 382


def test_selecting_the_system_theme_restores_following(visit):
    page = visit(color_scheme="light").page
    page.goto("/accounts/login/")

    page.get_by_role("button", name="Dark theme").click()
    page.get_by_role("button", name="Light theme").click()
    page.emulate_media(color_scheme="dark")

    assert brightness(page) < 382


def test_theme_button_is_absent_without_javascript(visit):
    page = visit(java_script_enabled=False).page

    page.goto("/accounts/login/")

    assert page.get_by_role("button", name="theme").count() == 0
