# The image of KubeRay's head and workers (deploy/rayservice.yaml): Espalier's image with Ray, without its command.
#   docker build --build-arg EXTRAS=ray,transformers,postgres -t espalier .
#   docker build -f deploy/ray.Dockerfile -t espalier-ray .
# On GPUs: the first with --build-arg PIP_EXTRA_INDEX_URL= , which takes torch's CUDA build.
# The tag of the image and `rayVersion` go together: every node of a cluster has the same Python, Ray and Espalier.
ARG BASE=espalier
FROM ${BASE}
USER 0
# KubeRay starts Ray with bash, and asks Ray's health with wget.
RUN apt-get update && apt-get install -y --no-install-recommends bash wget && rm -rf /var/lib/apt/lists/*
USER 10001
ENV RAY_USAGE_STATS_ENABLED=0
HEALTHCHECK NONE
ENTRYPOINT []
