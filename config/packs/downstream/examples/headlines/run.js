// The handoff folder is the last argument; it is also in DOWNSTREAM_HANDOFF_DIR.
const fs = require("fs");
const path = require("path");

const folder = process.env.DOWNSTREAM_HANDOFF_DIR;
const bundle = JSON.parse(fs.readFileSync(path.join(folder, "context_bundle.json"), "utf8"));

const headlines = bundle.research_outputs.vertical.map((output) => {
  const found = fs.readFileSync(output.content_path, "utf8").match(/^# (.+)$/m);
  return found ? found[1] : output.agent_name;
});
fs.writeFileSync(path.join(folder, "headlines.json"), JSON.stringify({ headlines }, null, 2));

const result = {
  schema_version: "1.0.0",
  agent_name: bundle.agent_name,
  nonce: bundle.nonce,
  status: "complete",
  outputs: [{ name: "headlines", path: "headlines.json" }],
  metrics: { cost_usd: 0 },
  errors: [],
};
fs.writeFileSync(path.join(folder, "result.json"), JSON.stringify(result));
