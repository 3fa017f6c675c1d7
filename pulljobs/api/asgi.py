"""For asgi.py: `application = with_pulls(get_asgi_application())`."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from pulljobs.checks import sync_only_middleware

PULLS: Final = re.compile(r"/channel/[^/]+/consumer/[^/]+/(pull|ack|renew)")
SHARED: Final = ThreadSensitiveContext()
"""What these requests have to do on a thread, they do on one for all of them."""

Application = Callable[..., Awaitable[None]]
"""As ASGI has it: of a scope, a function to receive and one to send."""


def with_pulls(application: Application) -> Application:
    """The application, to serve hundreds of pulls that linger, and thousands that come and go.

    Django starts a thread for every request, for signals and middleware that are synchronous, if
    only in part. Those of Django take no time, so pulls, acks and renewals share one thread here,
    which makes them several times cheaper. Middleware that is synchronous as a whole would hold
    that thread until the answer: where there is some (a check names it), all stays as it is.
    """
    if sync_only_middleware():
        return application

    async def serve(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not PULLS.search(scope["path"]):
            await application(scope, receive, send)
            return
        token = SyncToAsync.thread_sensitive_context.set(SHARED)
        try:
            await application(scope, receive, send)
        finally:
            SyncToAsync.thread_sensitive_context.reset(token)

    return serve
