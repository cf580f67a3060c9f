"""The JSON object that benchmarks generate lists of: long enough for a grammar to have work, and never done early."""

RECORD = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["user", "group", "service"]},
        "on": {"type": "boolean"},
    },
    "required": ["id", "name", "kind", "on"],
    "additionalProperties": False,
}
