"""What goes wrong inside Spark, as one sentence: the task's own error, without the stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from goqueue.errors import ServerError

SENTENCE_CHARACTERS_MAX = 500
_PYTHON_ERROR = re.compile(r"^(?:[a-z_][\w]*\.)+([A-Z]\w*): (.+)$", re.MULTILINE)
_JAVA_ERROR = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)


class SparkFailed(ServerError):
    """A Spark job failed, after Spark's own retries."""

    code = "spark_failed"
    text = "the Spark job failed"


@contextmanager
def spark_failing() -> Iterator[None]:
    """Raise SparkFailed, with the task's own words, for what Spark raises within."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise SparkFailed(sentence(str(error))) from error


def sentence(text: str) -> str:
    """The last error of ours that a report of Spark's names, or else its first line."""
    ours = [match[2] for match in _PYTHON_ERROR.finditer(text) if "apache" not in match[0]]
    java = _JAVA_ERROR.search(text)
    lines = [line for line in text.splitlines() if line.strip()]
    found = ours[-1] if ours else java[1] if java else lines[0] if lines else SparkFailed.text
    return found.strip()[:SENTENCE_CHARACTERS_MAX]
