"""One conversation by way of the SDK for Python."""

import asyncio
import os
import sys

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    ResultMessage,
    create_sdk_mcp_server,
    tool,
)


@tool("lookup", "Looks a thing up", {"key": str})
async def lookup(_arguments):
    return {"content": [{"type": "text", "text": "VALUE-OF-KEY"}]}


async def may(name, input_data, _context):
    if name == "AskUserQuestion":
        return PermissionResultAllow(updated_input={**input_data, "answers": {"Which colour?": "Blue"}})
    return PermissionResultAllow(updated_input=input_data)


async def before(_input, _call, _context):
    return {"continue_": True}


async def main():
    options = ClaudeAgentOptions(
        cli_path=os.environ["TEE"],
        cwd=os.environ["PROJECT"],
        model="claude-opus-4-8",
        setting_sources=[],
        mcp_servers={"host": create_sdk_mcp_server("host", "1.0.0", [lookup])},
        hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[before])]},
        can_use_tool=may,
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("go")
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print(f"result: {message.subtype}", file=sys.stderr)


asyncio.run(main())
