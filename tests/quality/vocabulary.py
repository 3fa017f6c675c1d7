"""Words that the code does not use, each with its reason."""

import re
from collections.abc import Iterable, Mapping
from typing import Final


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern that matches each of these words or phrases, in any case."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])", re.IGNORECASE)


CLAUSE_OPENINGS: Final = (
    "also", "as", "else", "how", "likewise", "neither", "nor", "of", "so", "that", "the same",
    "what", "whatever", "where", "whether", "which", "who", "whoever", "whom", "whose", "why",
)  # fmt: skip
"""Openings of a fragment: a first line has to be understood without a line before it."""

FUNCTION_OPENINGS: Final = (
    *CLAUSE_OPENINGS,
    # Articles, numerals and pronouns: the sentence begins with its object, and the verb is missing.
    "a", "all", "an", "another", "any", "both", "each", "either", "enough", "every", "everything",
    "few", "fewer", "half", "he", "i", "it", "its", "least", "less", "many", "more", "most", "much",
    "no", "nobody", "none", "nothing", "one", "only", "other", "others", "same", "she", "some",
    "somebody", "something", "such", "the", "their", "there", "these", "they", "this", "those",
    "three", "two", "we", "you",
    # Prepositions, conjunctions and adverbs: the sentence begins with its circumstances.
    "about", "above", "after", "again", "against", "almost", "always", "among", "and", "at",
    "because", "before", "below", "beside", "besides", "between", "but", "by", "during", "even",
    "ever", "except", "false", "for", "from", "here", "if", "in", "instead", "into", "just",
    "never", "next", "not", "now", "on", "once", "or", "out", "over", "past", "per", "since",
    "still", "then", "through", "thus", "till", "to", "too", "toward", "true", "under", "unless",
    "until", "up", "upon", "via", "when", "whenever", "wherever", "while", "with", "within",
    "without", "yet",
)  # fmt: skip
"""Openings of a function's docstring that are no imperative verb."""

FORBIDDEN_WORDS: Final[Mapping[str, str]] = {
    "albeit": "archaic: write although",
    "amid": "literary: write during or in the middle of",
    "anew": "archaic: write again",
    "anybody": "write anyone, or name the caller or the process",
    "beside": "archaic for next to; write in addition where that is meant",
    "ere": "archaic: write before",
    "henceforth": "archaic: write from now on",
    "lest": "archaic: write so that ... not",
    "likewise": "refers to a neighbour that moves away: say it in full",
    "nobody": "processes and callers are not persons: name the actor",
    "of late": "archaic: write recently, or the number of minutes",
    "of old": "archaic: write earlier",
    "said": "dialect for reported, logged or written: name what happens",
    "shall": "archaic: write must or will",
    "somebody": "processes and callers are not persons: name the actor",
    "someone": "processes and callers are not persons: name the actor",
    "tell": "dialect for report, notify, log or return: name what happens",
    "telling": "dialect for reporting, notifying or logging: name what happens",
    "tells": "dialect for reports, notifies, logs or returns: name what happens",
    "the word": "dialect for outcome or report",
    "without a word": "dialect for silently",
    "thereof": "archaic: name the thing",
    "thrice": "archaic: write three times",
    "told": "dialect for reported, notified, logged or returned: name what happens",
    "twain": "archaic: write two",
    "unto": "archaic: write to",
    "upon": "archaic: write on, after or when",
    "whereupon": "archaic: write then",
    "whilst": "archaic: write while",
    "whoever": "processes and callers are not persons: name the actor",
    "whomever": "processes and callers are not persons: name the actor",
    "whom": "processes and callers are not persons: name the actor",
}

FORBIDDEN_NAMES: Final[Mapping[str, str]] = {
    "found": "name what was found: job, row, match",
    "one": "name the thing: job, message, row",
    "ones": "name the things: jobs, messages, rows",
    "other_one": "name the thing",
    "said": "name the value: outcome, error, line",
    "told": "name the value: events, reported, output",
    "word": "name the value: outcome, token, text",
    "whose": "name the owner",
    "who": "name the actor: caller, worker, user",
    "whoever": "name the actor: caller, worker, user",
    "whom": "name the actor: caller, worker, user",
}
"""Forbidden names of modules, classes, functions, arguments and variables, with reasons."""

FORBIDDEN_PARTS: Final = frozenset(
    {"anew", "likewise", "nobody", "told", "upon", "whoever", "whom"}
)
"""Forbidden parts of names, between underscores."""

FORBIDDEN_FUNCTIONS: Final[Mapping[str, str]] = {
    "moment": "a verb says more: read_clock, next_run",
    "of": "a verb says more: from_row, find",
    "read": "an object says more: read_counts, read_plan",
    "shown": "a verb says more: render, format_value",
}
"""Forbidden names of functions, except for methods whose base class may prescribe the name."""

NOT_PARTICIPLES: Final = frozenset({
    "bring", "embed", "exceed", "feed", "ping", "proceed", "seed", "shed", "speed", "string",
})  # fmt: skip
"""Imperatives that end with -ed or -ing."""
