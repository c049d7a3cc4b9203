# The data pipeline: goqueue-pipeline with Spark, and its executors on Kubernetes. Built from the repository's root:
#
#   docker build -f deploy/docker/pipeline.Dockerfile -t goqueue-pipeline:0.3.0 .
#
# The release of Debian, the user and the place of the programs are those of the node's image.
ARG DEBIAN=12.12-slim

FROM debian:${DEBIAN} AS build
RUN apt-get update \
 && mkdir -p /usr/share/man/man1 \
 && apt-get install -y --no-install-recommends python3 python3-venv ca-certificates openjdk-17-jre-headless
WORKDIR /src
COPY requirements/image.lock requirements/image.lock
COPY requirements/pipeline.lock requirements/pipeline.lock
RUN python3 -m venv /opt/goqueue \
 && sed -n '/^setuptools==/,/[^\\]$/p; /^wheel==/,/[^\\]$/p; /^packaging==/,/[^\\]$/p' requirements/image.lock > /tmp/builders.txt \
 && /opt/goqueue/bin/pip install --no-cache-dir --require-hashes --requirement /tmp/builders.txt \
 && /opt/goqueue/bin/pip install --no-cache-dir --require-hashes --no-build-isolation \
      --requirement requirements/image.lock --requirement requirements/pipeline.lock
# What s3a:// needs beside Spark, with all that this needs, from Maven's repository; empty: nothing is fetched.
# Its version is that of Spark's own Hadoop.
ARG PACKAGES=org.apache.hadoop:hadoop-aws:3.5.0
RUN if [ -n "${PACKAGES}" ]; then \
      /opt/goqueue/bin/python -c "from pyspark.sql import SparkSession; SparkSession.builder.master('local[1]').config('spark.jars.packages', '${PACKAGES}').config('spark.jars.ivy', '/tmp/ivy').getOrCreate().stop()" \
      && cp /tmp/ivy/jars/*.jar /opt/goqueue/lib/python3.11/site-packages/pyspark/jars/ \
      && rm -rf /tmp/ivy; \
    fi
COPY pyproject.toml README.md LICENSE pyspark_goqueue.py pyspark_goqueue_events.py ./
COPY scripts/server_wheel.py scripts/server_wheel.py
COPY client client
COPY log log
COPY raft raft
COPY delivery delivery
COPY coordinator coordinator
COPY node node
COPY cli cli
COPY monitoring monitoring
COPY pipeline pipeline
RUN /opt/goqueue/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ./client . \
 && /opt/goqueue/bin/pip install --no-deps --no-index --find-links /wheels goqueue goqueue-server \
 && /opt/goqueue/bin/pip check \
 && /opt/goqueue/bin/pip uninstall -y setuptools wheel pip
COPY deploy/spark/goqueue_pipeline.py /opt/goqueue/goqueue_pipeline.py

FROM debian:${DEBIAN}
ARG VERSION=0.3.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="goqueue-pipeline" \
      org.opencontainers.image.description="Archive, verify, restore and report on a GoQueue cluster, with Spark" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Debian's slim root lacks the folder of manuals, which Java's package links into.
RUN apt-get update \
 && mkdir -p /usr/share/man/man1 \
 && apt-get install -y --no-install-recommends python3 ca-certificates openjdk-17-jre-headless \
 && apt-get clean && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 65532 goqueue \
 && useradd --uid 65532 --gid 65532 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin goqueue
COPY --from=build /opt/goqueue /opt/goqueue
# All that Spark writes is in /tmp: the rest may be read-only.
ENV PATH=/opt/goqueue/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    PYSPARK_PYTHON=/opt/goqueue/bin/python SPARK_LOCAL_DIRS=/tmp HOME=/tmp
USER 65532:65532
WORKDIR /tmp
# "executor" is what Spark's driver asks of the pods that it makes.
ENTRYPOINT ["goqueue-pipeline"]
CMD ["--help"]
