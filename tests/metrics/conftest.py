from tests.worker.conftest import stage

__all__ = ["stage"]
