"""Statement files of all packages."""

from collections import Counter

from example_project.state import BASE_DIR


def test_no_two_statement_files_have_one_name() -> None:
    """Each statement file has a name of its own, because statements are named without a package."""
    files = [
        file
        for package in ("pulljobs", "pyspark_pulljobs")
        for file in (BASE_DIR / package).rglob("*.sql")
    ]
    assert len(files) > 100
    assert [
        name for name, number in Counter(file.name for file in files).items() if number > 1
    ] == []
