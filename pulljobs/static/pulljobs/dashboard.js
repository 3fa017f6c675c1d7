// Automatic refresh: fetch the page again and replace the parts that changed.
"use strict";
{
    const root = document.getElementById("pj");
    const pause = document.getElementById("pj-pause");
    const announcement = document.getElementById("pj-announcement");
    const milliseconds = Number(root.dataset.seconds) * 1000;
    const LONGEST_PAUSE = 60000;
    let failures = 0;
    let timer;

    // Text of a failure is for all readers, any other text only for screen readers.
    function announce(text, isFailure = false) {
        announcement.textContent = text;
        announcement.classList.toggle("visually-hidden", !isFailure);
    }

    const isPaused = () => pause.getAttribute("aria-pressed") === "true";

    // A place to come back to: what is inside a part is found by its way from there.
    function wayTo(element, part) {
        const way = [];
        for (let at = element; at !== part; at = at.parentElement) {
            way.unshift([...at.parentElement.children].indexOf(at));
        }
        return way;
    }

    function at(part, way) {
        return way.reduce((element, place) => element && element.children[place], part);
    }

    function replace(part, fresh) {
        const focused = part.contains(document.activeElement) ? document.activeElement : null;
        const way = focused && focused !== part ? wayTo(focused, part) : null;
        const open = new Set([...part.querySelectorAll("details[open]")].map((one) => one.id));
        const scrolled = [...part.querySelectorAll(".pj-scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
        part.replaceChildren(...fresh.childNodes);
        part.querySelectorAll("details").forEach((one) => { one.open = open.has(one.id); });
        part.querySelectorAll(".pj-scroll").forEach((one, number) => {
            [one.scrollLeft, one.scrollTop] = scrolled[number] || [0, 0];
        });
        const again = way && at(part, way);
        if (again) {
            again.focus({preventScroll: true});
        }
    }

    // Screen readers hear of the headline only when its words change.
    function take(page) {
        document.querySelectorAll("[data-part]").forEach((part) => {
            const fresh = page.getElementById(part.id);
            const seen = part.dataset.seen ?? part.innerHTML;
            if (fresh && fresh.innerHTML !== seen) {
                part.dataset.seen = fresh.innerHTML;
                replace(part, fresh);
            }
        });
    }

    async function refresh() {
        const answer = await fetch(location.href, {headers: {"X-Requested-With": "fetch"}});
        if (answer.redirected) {
            location.reload(); // Logged out.
        }
        if (!answer.ok) {
            throw new Error(answer.statusText);
        }
        take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }

    async function tick() {
        try {
            await refresh();
            if (failures) {
                announce("");
            }
            failures = 0;
            root.classList.remove("stale");
        } catch {
            failures += 1;
            root.classList.add("stale");
            announce(announcement.dataset.failed, true);
        }
        wait();
    }

    function wait() {
        clearTimeout(timer);
        if (!isPaused() && !document.hidden) {
            timer = setTimeout(tick, Math.min(LONGEST_PAUSE, milliseconds * 2 ** failures));
        }
    }

    pause.hidden = false;
    pause.addEventListener("click", () => {
        pause.setAttribute("aria-pressed", String(!isPaused()));
        announce(isPaused() ? announcement.dataset.paused : announcement.dataset.resumed);
        wait();
    });
    document.addEventListener("visibilitychange", wait);
    wait();
}
