"""Files as rows of messages.

What a reader can make no row of is in a column of its own: it is a bad row, like any other.
"""

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
STRICT: Final = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
OF_JSON: Final = {"columnNameOfCorruptRecord": CORRUPT, **STRICT}
OF_CSV: Final = {
    "columnNameOfCorruptRecord": CORRUPT,
    "header": "true",
    "multiLine": "true",
    "escape": '"',
    "enforceSchema": "false",  # else a second file's columns go by their places, not by their names
}
TYPES: Final = {"priority": "long", "delay": "double", "available_at": "timestamp"}
"""Of columns of JSON and CSV; all others are text, as it is written there."""
WHOLE: Final = {"ignoreNullFields": "false"}
IS_TEXT: Final = (
    "schema_of_variant(try_variant_get(try_parse_json(object), '$.payload', 'variant')) = 'STRING'"
)
"""Of the payload in an object."""


def read(spark: SparkSession, paths: Sequence[str], *, whole: bool = False) -> DataFrame:
    """The rows of files of one format, known by their suffix.

    With `whole`, or where the payload is neither text nor bytes, it is published as JSON; what is
    JSON already stays as it is written.
    """
    kind = _format(paths)
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
        raise ConfigurationError(f"Files must be of one of these formats: {known}, and all alike.")
    return formats.pop()


def _json(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """What is asked for as text comes as it is written: Spark would write objects anew."""
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
    """Of JSON, an object in each."""
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
    """Whether it is JSON to its end, to which Spark does not look by itself."""
    array = F.concat(F.lit("["), line, F.lit("]"))
    return F.from_json(array, "array<string>", options).isNotNull()


def _csv(spark: SparkSession, paths: Sequence[str], types: Mapping[str, str]) -> DataFrame:
    """By its schema, without which rows of another width would be padded or cut."""
    reader = spark.read.options(**OF_CSV)
    heads = {tuple(reader.csv(path).columns) for path in paths}
    if len(heads) > 1:
        raise ConfigurationError("These files have different heads: publish them one by one.")
    [names] = heads
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
    """With a payload of any type but text and bytes as JSON."""
    if "payload" not in frame.columns or isinstance(
        frame.schema["payload"].dataType, StringType | BinaryType
    ):
        return frame
    return _typed(frame.withColumn("payload", _as_json(F.col("payload"))))


def _as_json(value: Column) -> Column:
    """Of a number, too, which `to_json` takes within an array only."""
    text = F.to_json(F.array(value), WHOLE)
    return F.when(value.isNotNull(), F.substring(text, F.lit(2), F.length(text) - 2))


def _typed(frame: DataFrame) -> DataFrame:
    """Whose content is JSON, where nothing else is said of it."""
    said = [F.col("content_type")] if "content_type" in frame.columns else []
    return frame.withColumn("content_type", F.coalesce(*said, F.lit(JSON)))
