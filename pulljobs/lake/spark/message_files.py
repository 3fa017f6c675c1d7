"""DataFrames of messages, read from files for `pulljobs lake publish`.

A record that cannot be parsed is in the column `corrupt_record`, and is a bad row of the publish.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType

from pulljobs.engine.validation import JSON
from pulljobs.errors import ConfigurationError, InvalidMessage
from pyspark_pulljobs.columns import CORRUPT

FORMATS: Final = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".orc": "orc",
    ".txt": "text",
}
HIDDEN: Final = ("_", ".")
"""First characters of the names of files that Spark ignores."""
PATTERN: Final = re.compile(r"[\[\]{}*?\\]")
STRICT: Final = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
OF_JSON: Final = {"columnNameOfCorruptRecord": CORRUPT, **STRICT}
OF_CSV: Final = {
    "columnNameOfCorruptRecord": CORRUPT,
    "header": "true",
    "multiLine": "true",
    "escape": '"',
    "enforceSchema": "false",  # else a second file's columns go by their places, not by their names
}
TYPES: Final = {
    "priority": "long",
    "delay": "double",
    "available_at": "timestamp",
    "cost": "long",
}
"""Types of columns of JSON and CSV. Other columns keep their text unchanged."""
WHOLE: Final = {"ignoreNullFields": "false"}
IS_TEXT: Final = (
    "schema_of_variant(try_variant_get(try_parse_json(object), '$.payload', 'variant')) = 'STRING'"
)
"""Expression that is true if the field `payload` of an object is text."""


def read_files(spark: SparkSession, paths: Sequence[str], *, whole: bool = False) -> DataFrame:
    """Return the rows of the files, which all have the format that their suffix names.

    With `whole`, each row as a whole becomes a payload in JSON. Otherwise the column `payload` is
    the payload, and becomes JSON if it is neither text nor bytes. A line of a text file is always
    the payload. Raise ConfigurationError for unknown suffixes or for several formats.
    """
    kind, paths = _format(paths), [_name_file(path) for path in paths]
    if kind == "text":
        return spark.read.text(list(paths)).withColumnRenamed("value", "payload")
    if kind == "json":
        return _whole_lines(spark, paths) if whole else _json(spark, paths)
    if kind == "csv":
        frame = _csv(spark, paths, {} if whole else TYPES)
    else:
        frame = spark.read.load(list(paths), format=kind)
    return _whole(frame) if whole else _encoded(frame)


def _format(paths: Sequence[str]) -> str:
    formats = {FORMATS.get(Path(path).suffix, "") for path in paths}
    if len(formats) != 1 or "" in formats:
        known = " ".join(FORMATS)
        raise ConfigurationError(f"Files must all have one of these formats: {known}.")
    return formats.pop()


def _name_file(path: str) -> str:
    """Return the path of a file here with escapes, so that Spark takes no part of it as a pattern.

    Other paths are returned unchanged. Raise ConfigurationError for a file that Spark ignores.
    """
    if not Path(path).is_file():
        return path
    if Path(path).name.startswith(HIDDEN):
        raise ConfigurationError(f"{path} is a hidden file, which Spark ignores: rename it.")
    return PATTERN.sub(r"\\\g<0>", path)


def _json(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Read JSON objects, one on a line or in arrays, as a column for each of their fields.

    Nested objects keep the text that they have in the file. Spark's own inference of a schema would
    format them differently. Raise InvalidMessage if anything follows the object on a line.
    """
    line = F.col("value")
    array = F.when(F.ltrim(line).startswith("["), F.from_json(line, "array<string>"))
    objects = F.explode_outer(F.coalesce(array, F.array(line))).alias("object")
    seen = _lines(spark, paths).select(objects, _ends(line, {}).alias("ends"))
    [(keys, is_text, longer)] = seen.agg(
        F.flatten(F.collect_set(F.json_object_keys("object"))),
        F.bool_or(F.expr(IS_TEXT)),
        F.bool_or(F.expr("json_object_keys(object) IS NOT NULL AND NOT ends")),
    ).collect()
    if longer:
        raise InvalidMessage("A line goes on behind its object: begin a new line for each.")
    schema = _schema(dict.fromkeys(keys) or ["payload"], TYPES)
    frame = spark.read.options(**OF_JSON).schema(schema).json(list(paths))
    return frame if is_text else _typed(frame)


def _whole_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return each line as a payload, or as a corrupt record if it is no JSON object."""
    lines = _lines(spark, paths)
    is_object = F.json_object_keys("value").isNotNull() & _ends(lines.value, STRICT)
    return lines.select(
        F.when(is_object, lines.value).alias("payload"),
        F.lit(JSON).alias("content_type"),
        F.when(~is_object, lines.value).alias(CORRUPT),
    )


def _lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    return spark.read.text(list(paths)).where("trim(value) <> ''")


def _ends(line: Column, options: Mapping[str, str]) -> Column:
    """Return a condition that is true if nothing follows the JSON value on the line.

    Spark's parser ignores the rest of a line.
    """
    array = F.from_json(F.concat(F.lit("["), line, F.lit("]")), "array<string>", options)
    return F.coalesce(F.size(array) == 1, F.lit(False))


def _csv(spark: SparkSession, paths: Sequence[str], types: Mapping[str, str]) -> DataFrame:
    """Read the rows by a schema made of the header. Rows of another width are corrupt records.

    Without a schema, Spark would cut the longer rows and pad the shorter ones.
    """
    reader = spark.read.options(**OF_CSV)
    heads = {tuple(reader.csv(path).columns) for path in paths}
    if len(heads) > 1:
        raise ConfigurationError("These files have different headers: publish each of them alone.")
    [names] = heads
    if not names:
        raise ConfigurationError("There is no header: the first line of a CSV file names columns.")
    return reader.schema(_schema(names, types)).csv(list(paths))


def _schema(names: Iterable[str], types: Mapping[str, str]) -> StructType:
    schema = StructType()
    for name in names:
        if name != CORRUPT:
            schema.add(name, types.get(name, "string"))
    return schema.add(CORRUPT, "string")


def _whole(frame: DataFrame) -> DataFrame:
    payload = F.to_json(F.struct("*").dropFields(CORRUPT), WHOLE).alias("payload")
    corrupt = [CORRUPT] if CORRUPT in frame.columns else []
    return frame.select(payload, F.lit(JSON).alias("content_type"), *corrupt)


def _encoded(frame: DataFrame) -> DataFrame:
    """Return the DataFrame with the payload as JSON, unless it is text or bytes."""
    if "payload" not in frame.columns or isinstance(
        frame.schema["payload"].dataType, StringType | BinaryType
    ):
        return frame
    return _typed(frame.withColumn("payload", _as_json(F.col("payload"))))


def _as_json(value: Column) -> Column:
    """Return the value as JSON, or NULL for NULL.

    Spark's `to_json` refuses plain numbers and texts. So the value is encoded in an array, whose
    brackets are cut off.
    """
    text = F.to_json(F.array(value), WHOLE)
    return F.when(value.isNotNull(), F.substring(text, F.lit(2), F.length(text) - 2))


def _typed(frame: DataFrame) -> DataFrame:
    """Return the DataFrame with the content type of JSON in rows that have none."""
    given = [F.col("content_type")] if "content_type" in frame.columns else []
    return frame.withColumn("content_type", F.coalesce(*given, F.lit(JSON)))
