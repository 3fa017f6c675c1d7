// Reload a page that shows work in progress; without JavaScript the reader reloads it.
"use strict";
{
    const FOCUSED = "pulljobs-focused";

    // Counted from the end of the page, where the buttons are: the lists above them grow.
    const stops = () => [...document.querySelectorAll("a, button, input, summary")].reverse();

    function reloadAfter(milliseconds) {
        const wait = () => setTimeout(() => (document.hidden ? wait() : reload()), milliseconds);
        wait();
    }

    // A reload loses the focus, so that users of the keyboard would never reach a button.
    function reload() {
        sessionStorage.setItem(FOCUSED, stops().indexOf(document.activeElement));
        window.location.reload();
    }

    document.addEventListener("DOMContentLoaded", () => {
        const mark = document.querySelector("[data-pulljobs-refresh]");
        if (mark) {
            stops()[sessionStorage.getItem(FOCUSED)]?.focus({preventScroll: true});
            reloadAfter(1000 * Number(mark.dataset.pulljobsRefresh));
        }
        sessionStorage.removeItem(FOCUSED);
    });
}
