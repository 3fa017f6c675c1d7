"""`manage.py pulljobs verify`, run beside the load: it must find nothing, and harm nobody."""

from types import TracebackType

from benchmarks.faults.processes import Cast


class Verifier:
    def __init__(self, cast: Cast) -> None:
        self.complaints: list[str] = []

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass
