"""One body of `/metrics` from those of several replicas: each sample gets the label `replica`.

Nothing is added up here: Prometheus does that (`sum without (replica) (…)`), and it has to see each counter by itself,
because a replica that starts again starts at zero.
"""

from __future__ import annotations

from collections.abc import Mapping

from espalier.server.ports import ReplicaMetrics

COUNTED = """# HELP espalier:replicas Replicas whose metrics are here, and those that did not answer.
# TYPE espalier:replicas gauge
espalier:replicas{{state="answered"}} {answered}.0
espalier:replicas{{state="lost"}} {lost}.0
"""


def merged(gathered: ReplicaMetrics) -> bytes:
    """Prometheus' text format 0.0.4, families in the order in which they first come."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for replica, text in gathered.texts.items():
        for family, (head, lines) in families(text.decode()).items():
            heads.setdefault(family, head)
            samples.setdefault(family, []).extend(labelled(line, replica) for line in lines)
    lines = [line for family, head in heads.items() for line in (*head, *samples[family])]
    counted = COUNTED.format(answered=len(gathered.texts), lost=gathered.lost)
    return ("".join(f"{line}\n" for line in lines) + counted).encode()


def families(text: str) -> Mapping[str, tuple[list[str], list[str]]]:
    """The lines of comment and the samples of each family. Each begins with its HELP or TYPE, as `generate_latest`
    writes it."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    family = ""
    for line in text.split("\n"):  # not splitlines: a label may hold other ends of lines
        if line.startswith("# "):
            family = line.split(" ", 3)[2]
            families.setdefault(family, ([], []))[0].append(line)
        elif line:
            families.setdefault(family, ([], []))[1].append(line)
    return families


def labelled(sample: str, replica: str) -> str:
    """A line `name{a="b"} 1.0` or `name 1.0` with one label more."""
    label = 'replica="' + replica.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") + '"'
    name, space, rest = sample.partition(" ")
    if "{" not in name:
        return f"{name}{{{label}}}{space}{rest}"
    name, _, rest = sample.partition("{")
    return f"{name}{{{label},{rest}"
