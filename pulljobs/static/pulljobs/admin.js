// Reload a page that shows work in progress; without JavaScript the reader reloads it.
"use strict";
const mark = document.querySelector("[data-pulljobs-refresh]");
if (mark) {
    const again = () => (document.hidden ? wait() : window.location.reload());
    const wait = () => setTimeout(again, 1000 * Number(mark.dataset.pulljobsRefresh));
    wait();
}
