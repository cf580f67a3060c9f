# Espalier's server. No model is inside but the small demo model; mount yours:
#   docker build -t espalier .
#   docker run -p 8010:8010 -e SECRET_TOKEN=... -v /path/to/models:/models:ro espalier -m /models/my-model
# With a root that nobody can write to, and no rights beyond those of its user:
#   docker run --read-only --tmpfs /tmp -v espalier:/var/lib/espalier --cap-drop ALL --security-opt no-new-privileges ...
# EXTRAS=server,transformers,otel builds it with other engines. Settings: -e NAME=value, or a file:
#   -v ./my.env:/etc/espalier.env:ro -e ENV_FILE=/etc/espalier.env
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
ARG EXTRAS=server,transformers
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/espalier
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md ./
COPY src src
COPY models/demo models/demo
COPY wordlists wordlists
RUN /opt/espalier/bin/pip install -c constraints.txt ".[${EXTRAS}]" && /opt/espalier/bin/espalier doctor --warm

FROM ${BASE}
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/espalier espalier
COPY --from=build /opt/espalier /opt/espalier
ENV PATH=/opt/espalier/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOST=0.0.0.0 \
    PORT=8010 \
    XDG_DATA_HOME=/var/lib/espalier/data \
    ESPALIER_CACHE_DIR=/var/lib/espalier/cache \
    HF_HOME=/var/lib/espalier/huggingface
USER 10001
WORKDIR /var/lib/espalier
EXPOSE 8010
# Loading a large model takes minutes: until then it is not healthy, which the start period forgives.
HEALTHCHECK --interval=15s --timeout=5s --start-period=300s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['PORT']}/health\", timeout=4)"]
STOPSIGNAL SIGTERM
# Beyond loopback the server does not start without SECRET_TOKEN or API_KEYS_FILE.
ENTRYPOINT ["espalier", "serve"]
