from django.db import OperationalError, connection


def pytest_report_header() -> str:
    try:
        with connection._nodb_cursor() as cursor:
            cursor.execute("SELECT version()")
            version = cursor.fetchone()[0].split(" on ")[0]
    except OperationalError as error:
        return f"database: none, {error}"
    return f"database: {version} at {connection.settings_dict['HOST']}"
