# One image for every container of docker-compose.yml: streamproof from its wheel, with all that the testbed runs. What a container is stands
# in its command. The base is any Debian with Python 3.11 or newer; nothing else comes from an image registry.
#
#   docker build -f Dockerfile -t streamproof .
#
# Where the way to the package registries leads through a proxy with a certificate of its own: --secret id=ca,src=/path/to/certificates.pem

ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS wheel
COPY requirements-build.lock pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN --mount=type=secret,id=ca if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    python3 -m venv /build && /build/bin/pip install -q --require-hashes -r /src/requirements-build.lock \
    && /build/bin/pip wheel -q --no-deps --no-build-isolation --wheel-dir /wheels /src

FROM ${BASE}
# Spark's workers and PostgreSQL want a user that has a name. Everything that is kept lies in one folder, which the containers share.
RUN useradd --uid 50000 --gid 0 --create-home streamproof \
    && mkdir -p /opt/streamproof /opt/project /var/lib/streamproof \
    && chown 50000:0 /opt/streamproof /opt/project /var/lib/streamproof
USER 50000:0
ENV STREAMPROOF_CACHE=/opt/streamproof/cache PATH=/opt/streamproof/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1
COPY requirements-uv.lock requirements-build.lock requirements.lock requirements-java.lock requirements-go.lock /tmp/locks/
COPY --from=wheel /wheels /tmp/wheels
RUN --mount=type=secret,id=ca,uid=50000 if [ -s /run/secrets/ca ]; then \
        export PIP_CERT=/run/secrets/ca SSL_CERT_FILE=/run/secrets/ca REQUESTS_CA_BUNDLE=/run/secrets/ca; fi; \
    export UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1 VIRTUAL_ENV=/opt/streamproof/venv \
    && python3 -m venv $VIRTUAL_ENV && pip install -q --require-hashes -r /tmp/locks/requirements-uv.lock \
    && grep -h -E '^[a-zA-Z0-9].*==' /tmp/locks/requirements.lock /tmp/locks/requirements-java.lock /tmp/locks/requirements-go.lock \
        | sed 's/ *\\$//' > /tmp/versions.txt \
    && uv pip install -q --build-constraints /tmp/locks/requirements-build.lock --constraints /tmp/versions.txt \
        "$(echo /tmp/wheels/streamproof-*.whl)[run,airflow,containers,java,go]" \
    && STREAMPROOF_HOME=/tmp/set-up streamproof setup && rm -rf /tmp/set-up
COPY --chown=50000:0 streamproof.toml /opt/project/
COPY --chown=50000:0 dags /opt/project/dags
COPY --chown=50000:0 chaos /opt/project/chaos
COPY --chown=50000:0 pipelines /opt/project/pipelines
COPY --chown=50000:0 expectations /opt/project/expectations
WORKDIR /opt/project
# The containers run on a read-only file system: what numba compiles is kept with the rest.
ENV STREAMPROOF_HOME=/var/lib/streamproof STREAMPROOF_PROJECT=/opt/project NUMBA_CACHE_DIR=/var/lib/streamproof/numba
