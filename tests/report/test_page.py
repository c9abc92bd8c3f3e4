"""The page in a real browser: light and dark, on a phone and on a desktop."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from penstock.api.record import open_run
from penstock.models.mst.prediction import fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.report.mst_curve import mst_curve
from penstock.report.page import run_page
from penstock.report.run_report import run_report
from penstock.store import StoreReader
from tests.support.sample_profiles import profiled
from tests.support.sample_runs import HOSTILE, START_S, eventful

pytestmark = pytest.mark.browser

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Boxes outside the window, except in elements that scroll.
STICKING_OUT = """() => [...document.body.querySelectorAll("*")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width && !one.closest(".scroll, .graph, svg") && (box.right > innerWidth + 1 || box.left < -1);
}).map(one => one.outerHTML.slice(0, 200))"""

# Labels of axes and of changes that overlap.
OVERLAPPING = """() => [...document.querySelectorAll(".plot, .labels")].flatMap(plot => {
    const boxes = [...plot.querySelectorAll(".x, .y, .chip")].map(one => one.getBoundingClientRect())
        .filter(one => one.width);
    return boxes.flatMap((one, index) => boxes.slice(index + 1).filter(other =>
        one.left < other.right - 1 && other.left < one.right - 1 &&
        one.top < other.bottom - 1 && other.top < one.bottom - 1).map(other => [one, other]));
}).length"""

# Texts of a node that are taller than its box.
CLIPPED = """() => [...document.querySelectorAll(".node")].filter(one => one.scrollHeight > one.clientHeight + 1)
    .map(one => one.textContent)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if executable is None:
        pytest.skip("there is no Chromium here, so no page was looked at: 'sh tools/chromium.sh' installs one")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a page with all possible parts, whose names contain markup."""
    at = tmp_path_factory.mktemp("run")
    eventful(at, name=HOSTILE)
    trials = {1: [950.0, 1010.0], 2: [1900.0, 1850.0], 3: [2700.0, 2790.0]}
    model = fit_mst(ThroughputSamples.of("grep", trials), max_vms=6, resamples=200)
    curve = mst_curve(HOSTILE, [(count, rate) for count, rates in trials.items() for rate in rates], model)
    with StoreReader(at) as reader:
        made = run_report(at, reader, now_s=START_S + 1e6, price_per_slot_hour=0.05, mst=(curve,))
    (at / "report.html").write_text(run_page(made))
    return at / "report.html"


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_overlaps_and_no_accessibility_violations(
    browser: Browser, page_file: Path, width: int, scheme: str
) -> None:
    _check_page(browser, page_file, width, scheme)


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_the_page_of_a_profile(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    for slots in (4, 8):
        profiled(tmp_path / f"slots-{slots}", rate=25.0 * slots, reason=HOSTILE)
    _check_page(browser, open_run(tmp_path / "slots-8").report(), width, scheme)


def _check_page(browser: Browser, page_file: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    messages: list[str] = []
    asked_for: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("dialog", lambda dialog: messages.append(dialog.message))
    page.on("request", lambda request: asked_for.append(request.url))
    page.goto(page_file.as_uri())
    for details in page.query_selector_all("details"):  # folded parts are checked too
        details.evaluate("element => element.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(STICKING_OUT) == []
    assert page.evaluate(OVERLAPPING) == 0
    assert page.evaluate(CLIPPED) == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background.removeprefix("rgb(").removesuffix(")").split(","))) < 3 * 128) is (scheme == "dark")
    _accessible(page)
    assert page.locator("script, img").count() == 0
    assert messages == []
    assert [url for url in asked_for if not url.startswith("data:")] == [page_file.as_uri()]
    context.close()


def _accessible(page: Page) -> None:
    """Contrast, names, landmarks and the other WCAG rules of axe."""
    violations = Axe().run(page).response["violations"]
    assert [
        (violation["id"], [node["html"][:160] for node in violation["nodes"]][:3]) for violation in violations
    ] == []
