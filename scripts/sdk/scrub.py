"""Takes out of a recording what is of one machine or one day; what the protocol says stays."""

import json
import re
import sys

# Members that say nothing about the protocol, or something else each time.
DROPPED = {
    "account", "analytics_disabled", "apiKeySource", "available_output_styles", "cache_creation", "container",
    "context_management", "diagnostics", "duration_api_ms", "duration_ms", "end_time", "fast_mode_state",
    "inference_geo", "iterations", "memory_paths", "messaging_socket_path", "modelUsage", "output_file",
    "output_style", "pid", "plugins", "product_feedback_disabled", "server_tool_use", "slash_commands",
    "stop_details", "terminal_slash_commands", "time_to_request_ms", "timestamp", "transcript_path", "ttft_ms",
    "ttft_stream_ms",
}  # fmt: skip
# Lists that are long; their first entries stand for them.
SHORTENED = {"agents", "commands", "models", "skills", "tools"}
# A tool that a client declares is part of what it says.
DECLARED = {"inputSchema", "input_schema"}
LONGEST_TEXT = 300


def reduced(value):
    if isinstance(value, dict):
        return {key: member(key, one) for key, one in value.items() if key not in DROPPED}
    if isinstance(value, list):
        return [reduced(one) for one in value]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return value[:LONGEST_TEXT] + "…"
    return value


def member(key, value):
    if key in SHORTENED and isinstance(value, list):
        return [named(one) for one in value[:2]]
    return reduced(value)


def named(value):
    if not isinstance(value, dict) or DECLARED & value.keys():
        return reduced(value)
    return {key: value[key] for key in ("name", "value") if key in value}


def main():
    stage, source = sys.argv[1:]
    ids = {}
    asked = {}

    def plain(found):
        # The same id is the same afterwards, and another one another.
        return ids.setdefault(found[0], f"00000000-0000-4000-8000-{len(ids) + 1:012}")

    for line in open(source, encoding="utf-8"):
        line = json.loads(line)
        (way, frame), = line.items()
        frame = frame if way == "exit" else reduced(json.loads(frame))
        if way == "out" and frame["type"] == "control_request":
            asked[frame["request_id"]] = f"asked-{len(asked) + 1}"
        text = json.dumps({way: frame}, ensure_ascii=False, separators=(",", ":")).replace(stage, "/stage")
        for found, name in asked.items():
            text = text.replace(json.dumps(found), json.dumps(name))
        text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", plain, text)
        print(text)


main()
