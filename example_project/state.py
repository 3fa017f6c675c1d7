"""Directory with the state that the example project keeps between runs."""

import os
import secrets
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent


def state_directory() -> Path:
    """Return the directory in PULLJOBS_STATE_DIR, or else `.pulljobs/`, created if missing."""
    path = Path(os.environ.get("PULLJOBS_STATE_DIR") or BASE_DIR / ".pulljobs").absolute()
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        # Other users may pass through: a server that root starts runs as another user.
        path.chmod(0o711)
    return path


def secret_key() -> str:
    """Return the SECRET_KEY of this checkout, made once, in a file that only its owner can read."""
    path = state_directory() / "secret_key"
    if not path.exists():
        _write_once(path, secrets.token_urlsafe(48))
    return path.read_text()


def _write_once(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    try:
        # A link, unlike a rename, leaves the file of a faster process alone.
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
