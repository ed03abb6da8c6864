// One conversation by way of the SDK for TypeScript.
import { query, tool, createSdkMcpServer } from "@anthropic-ai/claude-agent-sdk";
import { z } from "zod";

const lookup = tool("lookup", "Looks a thing up", { key: z.string() }, async () => ({
  content: [{ type: "text", text: "VALUE-OF-KEY" }],
}));

// Kept open until the last word: callbacks need the agent's input.
let end;
const ended = new Promise((resolve) => (end = resolve));
async function* prompt() {
  yield { type: "user", message: { role: "user", content: "go" }, parent_tool_use_id: null };
  await ended;
}

const conversation = query({
  prompt: prompt(),
  options: {
    pathToClaudeCodeExecutable: process.env.TEE,
    cwd: process.env.PROJECT,
    env: process.env,
    model: "claude-opus-4-8",
    settingSources: [],
    mcpServers: { host: createSdkMcpServer({ name: "host", version: "1.0.0", tools: [lookup] }) },
    hooks: { PreToolUse: [{ matcher: "Bash", hooks: [async () => ({ continue: true })] }] },
    canUseTool: async (name, input) =>
      name === "AskUserQuestion"
        ? { behavior: "allow", updatedInput: { ...input, answers: { "Which colour?": "Blue" } } }
        : { behavior: "allow", updatedInput: input },
  },
});
for await (const message of conversation) {
  if (message.type === "result") {
    console.error(`result: ${message.subtype}`);
    end();
  }
}
