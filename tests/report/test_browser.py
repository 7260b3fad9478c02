"""The page in a real browser: silent console, no requests, no overflow, and everything reachable by keyboard."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from algorist import report

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser() -> Iterator:
    api = pytest.importorskip("playwright.sync_api", reason="needs the Python package playwright")
    if not Path(CHROMIUM).is_file():
        pytest.skip("needs chromium on the path or at /usr/bin/chromium")
    with api.sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield instance
        instance.close()


@pytest.fixture(scope="module")
def address(demo_run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    copy = Path(shutil.copytree(demo_run, tmp_path_factory.mktemp("browser") / "run"))
    return report.build(copy).as_uri()


@pytest.fixture
def open_page(browser, address: str) -> Iterator:
    contexts, troubles = [], []

    def go(width: int = 1280, scheme: str = "light", fragment: str = "", **more: object):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("request", lambda r: None if r.url.startswith("file:") else troubles.append(f"request: {r.url}"))
        page.goto(address + fragment)
        return page

    yield go
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.parametrize("width", [1280, 700, 390, 320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_and_hostile_text_does_nothing(open_page, width: int, scheme: str) -> None:
    page = open_page(width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    wide = page.evaluate(
        """() => [...document.querySelectorAll('main *')]
             .filter(e => e.checkVisibility() && !e.closest('.scroll, svg, pre'))
             .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.className || e.tagName)"""
    )
    assert wide == []
    assert page.title() == "arithmetic-demo · Algorist report"


def test_theme_follows_the_system_and_the_button_changes_it(open_page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = open_page(scheme="light"), open_page(scheme="dark")
    white, black = light.evaluate(background), dark.evaluate(background)
    assert white != black
    assert light.text_content("#theme") == "Dark page"
    light.click("#theme")
    assert light.evaluate(background) == black
    assert light.text_content("#theme") == "Light page"
    light.reload()
    assert light.evaluate(background) == black
    light.click("#theme")
    assert light.evaluate(background) == white


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_wcag_asks_for(open_page, scheme: str) -> None:
    page = open_page(scheme=scheme)
    ratios = page.evaluate(
        """() => { const style = getComputedStyle(document.documentElement);
             const hex = (name) => style.getPropertyValue(name).trim().slice(1);
             const l = (name) => { const c = hex(name).length === 3 ? hex(name).replace(/./g, '$&$&') : hex(name);
               const [r, g, b] = [0, 2, 4].map(i => parseInt(c.slice(i, i + 2), 16) / 255)
                 .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
               return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
             const ratio = (a, b) => (Math.max(l(a), l(b)) + 0.05) / (Math.min(l(a), l(b)) + 0.05);
             return ['--ink', '--soft', '--accent', '--good', '--other', '--bad'].flatMap(
               a => ['--bg', '--panel'].map(b => [a + ' on ' + b, ratio(a, b)])); }"""
    )
    assert {name: round(value, 2) for name, value in ratios if value < 4.5} == {}


def test_picker_shows_one_group_and_filters(open_page) -> None:
    page = open_page()
    visible = "[...document.querySelectorAll('article.group')].filter(a => a.checkVisibility()).map(a => a.id)"
    assert page.evaluate(visible) == [page.input_value("#group")]
    assert "mixed" in page.get_attribute(f"#{page.input_value('#group')}", "data-kinds")
    before = page.input_value("#group")
    page.click("#previous")
    assert page.evaluate(visible) == [page.input_value("#group")] != [before]
    page.select_option("#filter", "all-wrong")
    kinds = page.evaluate(
        "[...document.querySelectorAll('#group option')].map(o => document.getElementById(o.value).dataset.kinds)"
    )
    assert kinds
    assert all("all-wrong" in k for k in kinds)
    assert page.evaluate(visible) == [page.input_value("#group")]
    page.focus("#group")
    page.keyboard.press("End")
    assert page.is_disabled("#next")


def test_a_link_to_a_group_opens_it(open_page) -> None:
    first = open_page().evaluate("document.querySelector('article.group').id")
    assert open_page(fragment=f"#{first}").input_value("#group") == first


def test_without_scripts_every_group_and_chart_is_shown(open_page) -> None:
    page = open_page(java_script_enabled=False)
    assert page.locator("article.group:visible").count() == page.locator("article.group").count() > 10
    assert page.locator("#picker").is_hidden()
    assert page.locator("figure.chart svg").first.is_visible()


def test_charts_read_out_values_by_pointer_and_by_keyboard(open_page) -> None:
    page = open_page()
    drawing = page.locator("figure.chart .draw.wide svg").first
    drawing.scroll_into_view_if_needed()
    drawing.hover()
    readout = page.locator("figure.chart .readout").first
    assert "rollout batch" in readout.text_content()
    assert "training reward" in readout.text_content()
    page.mouse.move(0, 0)
    assert readout.text_content() == ""
    drawing.focus()
    page.keyboard.press("ArrowRight")
    assert readout.text_content().startswith("rollout batch 0: ")
    page.keyboard.press("ArrowRight")
    assert readout.text_content().startswith("rollout batch 1: ")
    page.keyboard.press("Escape")
    assert readout.text_content() == ""


def test_everything_that_scrolls_can_be_reached_by_keyboard(open_page) -> None:
    page = open_page()
    out_of_reach = page.evaluate(
        """() => [...document.querySelectorAll('.scroll, pre')].filter(e => e.checkVisibility()
             && (e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1) && e.tabIndex < 0).length"""
    )
    assert out_of_reach == 0
