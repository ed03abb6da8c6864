import json, sys
TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object", "properties": {}}} for name in ["ring", "jam"]]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, params = asked["method"], asked.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "desk", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        jammed = params["name"] == "jam"
        result = {"content": [{"type": "text", "text": "jammed" if jammed else "rang"}], "isError": jammed}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
