"""The page in a real browser, on a real controller with real jobs."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.live.browser import Tab, chromium
from tests.live.controller import LiveController, awaited, running

# It reports until it is told to end by a file, and saves nothing.
TRAIN = """
import os, sys, time
epoch = 0
while not os.path.exists(sys.argv[1]):
    epoch += 1
    print(f"\\x1b[32mepoch\\x1b[0m {epoch} loss={1 / epoch:.4f} acc={1 - 1 / (1 + epoch):.4f}", flush=True)
    time.sleep(0.1)
"""
TRIAL = r"""
import sys
for epoch in (1, 2, 3):
    print(f"epoch {epoch} acc={epoch * float(sys.argv[1]):.4f}", flush=True)
"""
VIEWS = {
    "/": ".queue li", "/jobs": ".virtual .row", "/jobs/net": ".story li", "/past": ".gpu.held",
    "/submit": "#field-gpus", "/whatif": ".what-if-result table", "/studies": ".studies td",
    "/studies/sweep": ".study td",
}  # fmt: skip
HOSTILE = "<img src=x onerror=document.title='owned'> * [a] %2F"
HOSTILE_WORDS = [
    HOSTILE,
    "<script>document.title = 'owned'</script>",
    "</pre></textarea><svg onload=alert(1)>",
    "\u202eesrever\u2066",
    "\x07\x1b]0;owned\x07\x1b[31mred",
    "javascript:document.title='owned'",
    "'\"`$(true);",
    "x" * 1_000_000,
]
TYPES = """typed => {
    for (const name of ["owner", "until", "after", "env", "command", "name"]) {
        const field = document.getElementById(`field-${name}`);
        field.value = name === "command" ? typed : typed.slice(0, 5000);
        field.dispatchEvent(new Event("input", { bubbles: true }));
    }
}"""
LAST_EPOCH = (
    "Math.max(...[...document.querySelectorAll('.line')].map(l => /epoch ([0-9]+)/.exec(l.textContent)?.[1] ?? 0))"
)
NAMES = "[...document.querySelectorAll('.virtual .cell.name')].map(cell => cell.textContent).sort()"
PRINTS = r"""
print("<script>document.title = 'owned'</script>\x1b]0;owned\x07\x1b[31mred\x1b[0m \u202eesrever\x00\x08 end")
print("x" * 1_000_000)
print("the last line")
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def controller(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveController]:
    assert browser.is_connected()  # Without one, no controller is started.
    root = tmp_path_factory.mktemp("page")
    (root / "train.py").write_text(TRAIN)
    (root / "prints.py").write_text(PRINTS)
    (root / "trial.py").write_text(TRIAL)
    with running(root, "--gpus", "2", "--name", "gpu-1") as found:
        submit(found, id="net", until="acc >= 100%", command=train(found, "net"), gpus=1, owner="ana")
        submit(found, id="other", command=train(found, "other"), gpus=1, owner="bob")
        submit(found, id="queued", command=train(found, "queued"), gpus=2, owner="bob")
        awaited(lambda: all(found.jobs()[name]["state"] == "running" for name in ("net", "other")), "both run")
        yield found


@pytest.fixture
def tab(browser: Any, controller: LiveController) -> Iterator[Tab]:
    found = Tab(browser, controller.url)
    link = json.loads(controller.types("open", "--json").stdout)["url"]
    found.page.goto(link)
    found.page.wait_for_selector(".tile")
    yield found
    found.close()


def is_history(pid: str) -> bool:
    return b"hocket.service.history_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()


def train(controller: LiveController, name: str) -> list[str]:
    return [sys.executable, str(controller.root / "train.py"), str(controller.root / f"{name}.end")]


def submit(controller: LiveController, **job: Any) -> None:
    (told,) = controller.call("POST", "/v1/jobs", {"jobs": [{"preempt": "never"} | job]})["jobs"]
    assert not told["refused"], told


@pytest.mark.slow
def test_the_overview_shows_devices_queue_and_shares(tab: Tab) -> None:
    page = tab.page
    tab.awaits("document.querySelector('.tile strong').textContent === '2 of 2'")
    assert "link=" not in page.url, "what signs in does not stay in the address"
    assert page.locator(".queue li").all_inner_texts()[0].startswith("queued")
    assert sorted(page.locator(".share a").all_inner_texts()) == ["ana", "bob"]
    # The lanes are a drawing: what it was drawn from is asked where the pointer is.
    box = page.locator(".lanes-canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 9, box["y"] + 20 + 44 + 8 + 10)
    page.wait_for_selector(".tip:not([hidden])")
    assert page.locator(".tip strong").inner_text() == "net"
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector(".job h1")
    assert page.locator(".job h1").inner_text() == "net"


@pytest.mark.slow
def test_a_job_is_chosen_and_opened_on_the_lanes_by_keys(tab: Tab) -> None:
    page = tab.page
    tab.awaits("document.querySelector('.tile strong').textContent === '2 of 2'")
    page.locator(".lanes").focus()
    seen = []
    for _key in range(2):
        page.keyboard.press("ArrowDown")
        seen.append(page.locator(".tip:not([hidden]) strong").inner_text())
    assert sorted(seen) == ["net", "other"]
    page.keyboard.press("Escape")
    assert not page.locator(".tip").is_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".job h1")
    assert page.locator(".job h1").inner_text() == seen[0]


@pytest.mark.slow
def test_a_job_shows_why_its_curve_its_story_and_its_log_as_it_grows(tab: Tab, controller: LiveController) -> None:
    page = tab.page
    tab.go("/jobs/net")
    page.wait_for_selector(".story li")
    assert page.locator(".why .lead").inner_text() == controller.call("GET", "/v1/jobs/net/why")["now"]
    assert "started" in page.locator(".story").inner_text()
    label = "document.querySelector('.chart canvas').ariaLabel"
    tab.awaits(f"/^acc over time, at last .*goal >= 100%, believed to be [0-9.]+ ± /.test({label})")
    page.wait_for_selector(".line .ansi-fg-2")
    seen = page.evaluate(LAST_EPOCH)
    tab.awaits(f"seen => {LAST_EPOCH} > seen", seen)
    page.get_by_label("Search the log").fill("epoch 1")
    tab.awaits("document.querySelector('.log .current mark')?.textContent === 'epoch'")
    assert "of" in page.locator(".log [role=status]").inner_text()
    assert "Memory in use" in page.locator(".facts").inner_text()
    page.locator(".job header select").first.select_option("use mem_mib")
    tab.awaits(f"/^Memory in use [(]MiB[)] over time, at last [0-9.]+$/.test({label})")


@pytest.mark.slow
def test_jobs_are_filtered_sorted_paused_and_resumed(tab: Tab, controller: LiveController) -> None:
    page = tab.page
    tab.go("/jobs")
    page.wait_for_selector(".virtual .row")
    page.get_by_label("Filter jobs").fill("owner:bob")
    tab.awaits("document.querySelectorAll('.virtual .row').length === 2")
    page.get_by_role("button", name="Job", exact=True).click()
    assert page.locator(".virtual .cell.name").all_inner_texts() == ["other", "queued"]
    page.get_by_label("Select job queued").check()
    page.get_by_role("button", name="Pause 1").click()
    awaited(lambda: controller.jobs()["queued"]["state"] == "held", "it is held")
    tab.awaits("[...document.querySelectorAll('.virtual .pill')].some(pill => pill.textContent.includes('held'))")
    page.get_by_role("button", name="Undo").click()
    awaited(lambda: controller.jobs()["queued"]["state"] == "waiting", "it waits again")


@pytest.mark.slow
def test_a_job_is_checked_while_it_is_typed_and_submitted(tab: Tab, controller: LiveController) -> None:
    page = tab.page
    page.set_viewport_size({"width": 400, "height": 800})
    tab.go("/jobs")
    page.wait_for_selector(".virtual .row")
    page.locator("h1").first.focus()
    page.keyboard.press("n")
    page.wait_for_selector("#field-command")
    tab.awaits("document.activeElement.id === 'field-command'")
    page.keyboard.type(f"{sys.executable} {controller.root}/train.py '{controller.root}/typed.end'")
    page.get_by_label("GPUs", exact=True).fill("64")
    tab.awaits("document.getElementById('field-gpus-problem').textContent.includes('the largest that fits is 2')")
    assert page.get_by_label("GPUs", exact=True).get_attribute("aria-invalid") == "true"
    page.get_by_label("Until").fill("acc > ")
    tab.awaits("document.getElementById('field-until-problem').textContent.startsWith('at column')")
    assert "Until" in page.locator(".submit [role=status]").inner_text()
    page.get_by_label("GPUs", exact=True).fill("0")
    page.get_by_label("Until").fill("acc >= 100%")
    page.get_by_label("Name", exact=True).fill("<b>typed")
    page.get_by_label("Environment").fill("A=1 2\nB=3")
    page.get_by_text("How it runs").click()
    page.get_by_label("Name of secret 1").fill("KEY")
    page.get_by_label("Value of secret 1").fill("s3cret")
    tab.awaits("document.querySelector('.submit [role=status]').textContent.startsWith('Ready')")
    tab.awaits("document.querySelector('.same').textContent.includes('secret = [\"KEY\"]')")
    shown = page.locator(".same").inner_text()
    assert "--name '<b>typed'" in shown
    assert "--env 'A=1 2' --env B=3" in shown
    assert 'until = "acc >= 100%"' in shown
    assert "s3cret" not in page.locator("main").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= 400"), "nothing is cut off or scrolls sideways"
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".job h1")
    assert page.locator(".job h1").inner_text() == "<b>typed"
    made = controller.call("GET", "/v1/jobs/%3Cb%3Etyped")["job"]
    assert (made["env"], made["secrets"], made["until"], made["gpus"]) == (["A", "B"], ["KEY"], "acc >= 100%", 0)
    controller.call("POST", "/v1/job-requests", {"request": "stop", "jobs": ["<b>typed"]})


@pytest.mark.slow
def test_the_past_is_shown_cycle_by_cycle_and_decision_by_decision(tab: Tab, controller: LiveController) -> None:
    page = tab.page
    threads = Path(f"/proc/{controller.pid}/task")
    started = lambda: [pid for found in threads.glob("*/children") for pid in found.read_text().split()]  # noqa: E731
    awaited(lambda: any(is_history(pid) for pid in started()), "the past is ready before it is asked for")
    tab.go("/past")
    tab.awaits("/^#.past.[0-9]+$/.test(location.hash)")
    assert page.locator(".gpu.held").all_inner_texts() == ["net", "other"]
    assert page.locator(".past .queue a").all_inner_texts() == ["queued"]
    page.get_by_label("First cycle").click()
    tab.awaits("location.hash === '#/past/1'")
    page.locator("h1").click()  # The keys are not the slider's.
    decisions = []
    while page.get_by_label("Next decision").is_enabled():
        page.keyboard.press("ArrowRight")
        tab.awaits("before => location.hash !== before", f"#/past/{decisions[-1]}" if decisions else "#/past/1")
        decisions.append(int(page.url.rpartition("/")[2]))
    first = controller.call("GET", f"/v1/at/{decisions[0]}")
    (job, change), *_ = first["decision"]["changes"].items()
    tab.go(f"/past/{decisions[0]}")
    tab.awaits("document.querySelectorAll('.changes li').length > 0")
    told = page.locator(".changes li").first.inner_text()
    assert told.startswith(f"{job} {change}")
    assert first["decision"]["reasons"][job] in told
    assert page.locator(".gpu.held").count() < 2, "only one of the jobs was there"
    page.get_by_label("Time", exact=True).fill("10000")
    tab.awaits("last => Number(location.hash.split('/')[2]) >= last", decisions[-1])
    tab.go("/past/99999999")
    tab.awaits("document.querySelector('.trouble:not([hidden])')?.textContent.includes('nothing is kept of cycle')")
    tab.errors = [error for error in tab.errors if "404" not in error]  # The browser's own word for that answer.


@pytest.mark.slow
def test_a_query_shows_its_answer(tab: Tab, controller: LiveController) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'hocket[query]'")
    data = controller.root / "data"
    data.mkdir()
    rows = "SELECT 'shop ' || i % 3 AS shop, (i * 37 % 1000)::DOUBLE AS price FROM range(60000) r(i)"
    duckdb.connect().execute(f"COPY ({rows}) TO '{data}/sold.parquet'")
    query = "SELECT shop, count(*) AS n, avg(price) AS price FROM sold GROUP BY shop ORDER BY shop"
    controller.types("submit", "--query", query, "--data", str(data), "-n", "asked", "--owner", "ana")
    tab.go("/jobs/asked")
    tab.awaits("document.querySelector('.answer [role=status]')?.textContent.startsWith('Exact')")
    assert tab.page.locator(".answer tbody tr").all_inner_texts()[0].split() == ["shop", "0", "20,000", "499.5"]


ANSWER = """{columns: ['shop', 'n'], rows: [['<b>a', %d], ['b', 30]], half_widths: [[null, %s], [null, %s]],
            fraction: %s, elapsed_s: 1, accuracy: 0.5, exact: %s, confidence: 0.95, batches: %d}"""
SHRINKS = f"""[{ANSWER % (10, 8, 6, 0.1, "false", 1)}, {ANSWER % (12, 2, 1, 0.5, "false", 2)},
              {ANSWER % (11, "null", "null", 1, "true", 3)}].map(answer => {{
    view.show(answer);
    const cell = view.element.querySelector('td');
    const [widest, now] = cell.querySelectorAll('i');
    const name = view.element.querySelector('th[scope=row]').textContent;
    return [name, cell.textContent, widest.style.width, now.style.width];
}})"""


@pytest.mark.slow
def test_the_intervals_of_an_answer_shrink(tab: Tab) -> None:
    found = tab.page.evaluate(
        f"import('/page/answer.js').then(m => {{ const view = new m.AnswerView(); return {SHRINKS}; }})"
    )
    assert [cells[:2] for cells in found] == [["<b>a", "10 ± 8"], ["<b>a", "12 ± 2"], ["<b>a", "11"]]
    widest, now = ([float(cells[n].rstrip("%")) for cells in found] for n in (2, 3))
    assert widest[0] == widest[1] == widest[2] == now[0]
    assert now[0] > now[1] > now[2]


@pytest.mark.slow
def test_the_past_is_run_again_under_another_policy(tab: Tab, controller: LiveController) -> None:
    page = tab.page
    tab.go("/whatif")
    tab.awaits("document.querySelectorAll('#what-if-policy option').length > 30")
    page.get_by_label("Policy").select_option("fifo")
    page.get_by_text("Parameters").click()
    page.get_by_label("over").select_option("")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector(".what-if-result table")
    shown = page.locator(".what-if-result").inner_text()
    assert "las, recorded" in shown
    assert "fifo, what if" in shown
    assert "How far to trust it" in shown or "cannot be compared" in shown
    assert page.locator(".what-if-result canvas").count() == 2
    result = controller.call("GET", "/v1/whatif")["result"]
    assert {"net", "other"} <= {span["job"] for span in result["schedules"][0]["held"]}
    page.set_viewport_size({"width": 400, "height": 800})
    tab.awaits("document.documentElement.scrollWidth <= 400")


@pytest.mark.slow
def test_a_study_shows_its_trials_as_lines_curves_and_a_table(tab: Tab, controller: LiveController) -> None:
    page = tab.page
    said = ["--space", "rate=choice:0.1,0.2,0.25,0.3", "--space", "kind=choice:<b>x,<b>y", "--from-env"]
    search = ["--search", "halving", "--trials", "6", "--units", "3", "--metric", "acc", "--name", "sweep"]
    command = [sys.executable, str(controller.root / "trial.py"), "{rate}"]
    told = controller.types(
        "tune", *said, *search, "--gpus", "0", "--cores", "0.1", "--owner", "ana", "--out",
        str(controller.root / "sweep"), "--json", "--", *command,
    )  # fmt: skip
    best = json.loads(told.stdout)["best"]
    page.locator("h1").first.focus()
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.get_by_role("link", name="sweep", exact=True).click()
    page.wait_for_selector(".study tbody tr")
    lead = page.locator(".study .lead").inner_text()
    assert lead.startswith(f"Best: acc 0.9, trial {best['trial']}: rate 0.3, kind <b>")
    assert page.locator(".study .pill").inner_text().endswith("done")
    rows = page.locator(".study tbody tr")
    assert rows.count() == 6
    assert rows.first.locator("td").all_inner_texts()[:2] == ["0.9", "3 of 3"]
    # The lines are drawings: what they were drawn from is asked where the pointer is.
    box = page.locator(".study-chart canvas").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 71, box["y"] + 27)
    assert ": rate 0.3, kind <b>" in page.locator(".pointed").inner_text()
    rows.last.locator("a").focus()
    assert page.locator(".pointed").inner_text().startswith(f"trial {rows.last.locator('th').inner_text()}:")
    page.set_viewport_size({"width": 400, "height": 800})
    tab.awaits("document.documentElement.scrollWidth <= 400")
    rows.first.locator("a").click()
    page.wait_for_selector(".job h1")
    assert page.locator(".job h1").inner_text() == f"sweep-{best['trial']}"


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_view_breaks_a_rule_of_accessibility(browser: Any, controller: LiveController, colours: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.base", reason="pip install axe-playwright-python")
    tab = Tab(browser, controller.url, color_scheme=colours)
    tab.page.goto(json.loads(controller.types("open", "--json").stdout)["url"])
    for view, ready in VIEWS.items():
        tab.go(view)
        tab.page.wait_for_selector(ready)
        tab.page.evaluate(axe.AXE_SCRIPT)  # not as an element of the page, which would refuse it
        found = tab.page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})")
        assert len(found["passes"]) > 10, "it has looked"
        broken = [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in found["violations"]]
        assert broken == [], f"{view}: {broken}"
    tab.close()


@pytest.mark.slow
def test_what_users_wrote_is_shown_as_text(tab: Tab, controller: LiveController) -> None:
    page = tab.page
    prints = [sys.executable, str(controller.root / "prints.py")]
    submit(controller, id=HOSTILE, command=prints, gpus=0, cores=0.1, owner="<b>eve</b>")
    awaited(lambda: controller.jobs()[HOSTILE]["state"] == "finished", "it has printed")
    tab.go("/jobs")
    page.get_by_role("link", name=HOSTILE).click()
    page.wait_for_selector(".log .line")
    tab.awaits("document.querySelector('.log-lines').textContent.includes('the last line')")
    assert page.locator(".job h1").inner_text() == HOSTILE
    while page.get_by_role("button", name="Load earlier lines").is_visible():  # Of a log, the end is loaded first.
        before = page.locator(".log-lines .virtual-body").bounding_box()["height"]
        page.get_by_role("button", name="Load earlier lines").click()
        tab.awaits("high => document.querySelector('.log-lines .virtual-body').offsetHeight > high", before)
    page.locator(".log-lines").evaluate("lines => lines.scrollTo(0, 0)")
    tab.awaits("document.querySelector('.log-lines').textContent.includes('<script>')")
    lines = sorted(page.locator(".line").all_inner_texts())
    assert lines[0] == "<script>document.title = 'owned'</script>red ‹U+202E›esrever␀␈ end"
    assert [line[:3] for line in lines[1:]] == ["the", *["xxx"] * (len(lines) - 2)]
    assert all("more characters" in line for line in lines[2:])
    assert page.evaluate("document.querySelector('main').innerText.length") < 50_000, "a long line is not laid out"
    assert page.title() == f"{HOSTILE} · Hocket"
    turned = f"\u202e{HOSTILE}"
    trial = {"number": 0, "job": HOSTILE, "config": {turned: turned}, "results": [[1, 0.5]], "failed": turned}
    study = {
        "name": HOSTILE, "state": "failed", "search": turned, "metric": turned, "goal": "max", "unit": turned,
        "units": 1, "done": 1, "total": 1, "seconds": 1, "trials": [trial], "best": 0, "owner": turned,
        "space": [{"name": turned, "kind": "choice", "values": [turned]}],
        "importance": {"shares": {turned: 1.0}, "units": 1, "trials": 4},
    }  # fmt: skip
    place = quote(HOSTILE, safe="")
    controller.call("PUT", f"/v1/studies/{place}", study)
    views = {
        "/": ".tile",
        "/jobs": ".row",
        "/past": ".gpu",
        "/studies": ".studies td",
        f"/studies/{place}": ".study td",
    }
    for view, ready in views.items():
        tab.go(view)
        page.wait_for_selector(ready)
        assert page.locator("img:not([src='page/icon.svg'])").count() == 0, view
        assert "owned · " not in page.title()
        assert "\u202e" not in page.locator("main").inner_text(), view
    assert "‹U+202E›<img" in page.locator(".study tbody").inner_text()
    tab.go("/whatif")
    tab.awaits("document.querySelectorAll('#what-if-policy option').length > 30")
    page.get_by_role("button", name="Run").click()
    tab.awaits("document.querySelector('.what-if-result')?.textContent.includes('<b>eve</b>')")
    assert HOSTILE in page.locator(".what-if-result").inner_text()
    is_text(tab, "a job's name and owner in the result of a what-if")


def is_text(tab: Tab, about: str) -> None:
    """Nothing that was typed has become an element, a title or a direction of writing."""
    found = tab.page.evaluate("""() => ({
        made: document.querySelectorAll("main :is(img, script, b:not(.bar b), iframe, svg, style), [onerror]").length,
        title: document.title, text: document.querySelector("main").innerText,
    })""")
    assert found["made"] == 0, about
    assert "owned" not in found["title"], about
    assert not set(found["text"]) & set("\u202e\u2066\x00\x07\x1b"), about


@pytest.mark.slow
def test_what_is_typed_into_forms_is_told_as_text(tab: Tab) -> None:
    page = tab.page
    tab.go("/submit")
    page.wait_for_selector("#field-command")
    for typed in HOSTILE_WORDS:
        with page.expect_response(lambda answer: "check=true" in answer.url):
            page.evaluate(TYPES, typed)
        tab.awaits("document.querySelector('.submit [role=status]').textContent !== ''")
        if typed == HOSTILE:
            tab.awaits("document.querySelector('.same').textContent.includes('<img src=x onerror=')")
        is_text(tab, f"{typed[:40]!r} in the form")
    tab.go("/whatif")
    tab.awaits("document.querySelectorAll('#what-if-policy option').length > 30")
    page.get_by_label("Policy").select_option("las")
    page.get_by_text("Parameters").click()
    for typed in HOSTILE_WORDS:
        page.get_by_label("restart_s").fill(typed[:5000])
        with page.expect_response(lambda answer: answer.request.method == "POST") as told:
            page.get_by_role("button", name="Run").click()
        assert told.value.status == 400
        tab.awaits("document.querySelector('.what-if [role=status]').textContent.includes('restart_s')")
        is_text(tab, f"{typed[:40]!r} as a parameter")
    tab.errors = [error for error in tab.errors if "400" not in error]  # The browser's own word for that answer.


@pytest.mark.slow
def test_a_reader_sees_and_changes_nothing_and_signs_out(browser: Any, controller: LiveController) -> None:
    token = controller.types("token", "create", "wall", "--role", "read").stdout.strip()
    tab = Tab(browser, controller.url, color_scheme="dark")
    page = tab.page
    page.goto(f"{controller.url}/#/jobs/net")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector(".story li")
    assert page.locator(".title button").count() == 0
    assert "owner and to admins" in page.locator(".log").inner_text()
    tab.go("/jobs")
    page.wait_for_selector(".virtual .row")
    assert page.locator(".virtual input:enabled").count() == 0
    assert page.get_by_role("link", name="Submit a job").count() == 0
    cookies = tab.context.cookies()
    assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_selector(".sign-in")
    assert tab.context.cookies() == []
    tab.close()


@pytest.mark.slow
def test_the_page_catches_up_when_its_connection_was_lost(tab: Tab, controller: LiveController) -> None:
    tab.go("/jobs")
    tab.page.wait_for_selector(".virtual .row")
    tab.context.set_offline(True)
    tab.awaits("document.querySelector('.connection').textContent === 'Reconnecting…'")
    submit(controller, id="meanwhile", command=train(controller, "meanwhile"), gpus=2, owner="bob")
    controller.call("POST", "/v1/job-requests", {"request": "pause", "jobs": ["meanwhile"]})
    tab.context.set_offline(False)
    row = "[...document.querySelectorAll('.virtual .row')].filter(row => row.textContent.includes('meanwhile'))"
    tab.awaits(f"{row}.length === 1 && {row}[0].textContent.includes('held')")
    tab.awaits("document.querySelector('.connection').textContent === ''")
    assert tab.page.evaluate(f"new Set({NAMES}).size === {NAMES}.length"), "nothing is there twice"
    controller.call("POST", "/v1/job-requests", {"request": "stop", "jobs": ["meanwhile"]})
    tab.errors = [error for error in tab.errors if not error.startswith("Failed to load resource:")]


@pytest.mark.slow
def test_the_page_catches_up_after_a_restart_and_doubles_nothing(tab: Tab, controller: LiveController) -> None:
    page = tab.page
    tab.go("/jobs")
    page.wait_for_selector(".virtual .row")
    controller.kill()
    tab.awaits("document.querySelector('.connection').textContent === 'Reconnecting…'")
    (controller.root / "other.end").touch()
    controller.begin()
    awaited(lambda: controller.jobs()["other"]["state"] == "finished", "it has ended meanwhile")
    submit(controller, id="after", command=train(controller, "after"), gpus=2, owner="bob")
    tab.awaits("document.querySelector('.connection').textContent === ''")
    names = sorted(controller.jobs())
    assert "after" in names
    tab.awaits(f"names => String({NAMES}) === String(names)", names)  # The ended ones come a moment later.
    row = "[...document.querySelectorAll('.virtual .row')].find(row => row.textContent.includes('other')).textContent"
    tab.awaits(f"{row}.includes('finished')")
    held = controller.call("GET", "/v1/gpus")["held"]
    assert sorted(span["job"] for span in held) == ["net", "other"], "who held which GPU is known, and once"
    tab.go("/jobs/net")
    page.wait_for_selector(".story li")
    page.wait_for_selector(".line")
    story = page.locator(".story strong").all_inner_texts()
    assert story.count("submitted") == 1
    seen = page.evaluate(LAST_EPOCH)
    tab.awaits(f"seen => {LAST_EPOCH} > seen", seen)
    # That a call got no answer, or that the controller starts, is said by the browser itself.
    tab.errors = [error for error in tab.errors if not error.startswith("Failed to load resource:")]


ROW = "{id: 'X1', owner: 'Ana', state: 'running', reason: '', gpus: ['n:0']}"
ROWS = """[{id: 'b', state: 'waiting', submitted_s: 1}, {id: 'a', state: 'finished', ended_s: 5},
          {id: 'c', state: 'running', submitted_s: 2}]"""
SPANS = "[{gpus: [1, 2], from_s: 0, until_s: 20}, {gpus: [3], from_s: 15, until_s: null}]"
# Two jobs together, a third that takes the place of the first, and one that comes when all are gone, but for a moment.
SHARED = """[{job: 'd', gpus: ['g'], from_s: 39.5, until_s: null}, {job: 'a', gpus: ['g'], from_s: 0, until_s: 20},
            {job: 'b', gpus: ['g'], from_s: 10, until_s: 40}, {job: 'c', gpus: ['g'], from_s: 20, until_s: 30}]"""
DIVIDED = [["a", [0, 2]], ["b", [1, 2]], ["c", [0, 2]]]
# Expressions of the page's own modules, and what they give.
VALUES: list[tuple[str, str, Any]] = [
    ("text.js", "[0.04, 59.7, 3720, 90000, null].map(m.duration)", ["0.0 s", "1 min", "1 h 2 min", "1 d 1 h", "–"]),
    ("text.js", r"m.plain('a\u202eb\u0007\u2066')", "a‹U+202E›b␇‹U+2066›"),
    ("text.js", "[1234567, 0.00012, 0.91234, NaN].map(m.number)", ["1,234,567", "1.20e-4", "0.9123", "–"]),
    ("ansi.js", r"m.overwritten('10 %\r50 %\r')", "50 %"),
    ("ansi.js", r"m.parsed('a\x1b[1;38;5;196mb\x1b[0m').parts.map(p => p[0] + p[1].fg)", ["anull", "brgb(255 0 0)"]),
    ("ansi.js", r"m.parsed('\x1b[48;2;1;999;3mx').parts[0][1].bg", "rgb(1 255 3)"),
    ("ansi.js", r"m.parsed('\x1b]8;;http://x\x07link\x1b[2K').parts.map(p => p[0])", ["link"]),
    ("chart.js", "Object.values(m.goalOf('val acc >= 95% within 1h'))", ["val acc", ">=", 0.95, ">= 95%"]),
    ("chart.js", "[m.goalOf('loss <= 1e-3').value, m.goalOf('loss <= -2').value]", [0.001, -2]),
    ("chart.js", "[m.goalOf('acc changes < 0.1%'), m.goalOf('for 2h'), m.goalOf('')]", [None, None, None]),
    ("chart.js", "m.niceSteps(0.13, 0.87, 3)", [0.5]),
    ("lanes.js", f"m.heldOverTime({SPANS}, 10, 30, 25).steps", [[10, 2], [15, 3], [20, 1]]),
    ("lanes.js", f"[...m.placesOf({SHARED}, 45, 1)].map(([s, at]) => [s.job, at])", DIVIDED),
    ("job.js", "m.useOf({gpu: 0.35, cores: 1.5, cpu_s: NaN})", [["GPU in use", "35 %"], ["CPU in use", "1.5 cores"]]),
    ("past.js", "[m.placeOf(15, [10, 20]), m.timeAt(5000, [10, 20])]", [5000, 15]),
    ("past.js", "m.words('JobSubmitted')", "job submitted"),
    ("past.js", "m.rangeOf([{from_s: 10}, {from_s: 12}], 13)", [10, 14]),
    ("past.js", "m.holders([{id: 'a', gpus: ['n:0', 'n:1']}, {id: 'b', gpus: ['n:1']}]).get('n').get(1)", ["a", "b"]),
    ("submit.js", "m.withOffset('2026-11-20 12:00', -90)", "2026-11-20T12:00-01:30"),
    ("submit.js", "[m.withOffset('6h'), m.valueOf('flag', false) ?? 'unsaid']", ["6h", "unsaid"]),
    ("submit.js", r"m.valueOf('env', ' A=1\n\nB=2 ')", ["A=1", "B=2"]),
    ("what_if.js", "[m.difference(90, 100, -1), m.difference(1, 0, 1)]", [["−10.0 %", "better"], ["", ""]]),
    ("what_if.js", "Object.values(m.readParameters({a: '[1, 2]', b: 'x'}))", [[1, 2], "x"]),
    ("answer.js", "m.summaryOf({exact: true, elapsed_s: 2})", "Exact, after 2.0 s."),
    (
        "answer.js",
        "m.summaryOf({exact: false, fraction: 0.125, elapsed_s: 2, accuracy: 0.99, confidence: 0.95})",
        "From 12.5 % of the data, after 2.0 s: acc ≥ 99.00 % in all columns and rows, 95 % confident.",
    ),
    ("jobs.js", f"['owner:ana', 'owner:an', 'state:run node:n', 'x ana'].map(q => m.matcher(q)({ROW}))", [1, 0, 1, 1]),
    ("jobs.js", f"m.sorted({ROWS}, 'state', false).map(r => r.id)", ["c", "b", "a"]),
]


@pytest.mark.slow
def test_values_are_read_and_told_as_they_should_be(tab: Tab) -> None:
    for module, expression, expected in VALUES:
        found = tab.page.evaluate(f"import('/page/{module}').then(m => {expression})")
        assert found == expected, expression
