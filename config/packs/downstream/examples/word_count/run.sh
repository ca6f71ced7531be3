#!/bin/sh
# $1 is the handoff folder. python3 reads the JSON; everything else is plain shell.
set -eu
cd "$1"
field() { python3 -c 'import json,sys; print(eval(sys.argv[1], {"b": json.load(open("context_bundle.json"))}))' "$1"; }

field '"\n".join(o["dimensions"]["vertical"] + "\t" + o["content_path"] for o in b["research_outputs"]["vertical"])' |
    while IFS="$(printf '\t')" read -r vertical path; do
        printf '%s %s\n' "$vertical" "$(wc -w < "$path" | tr -d ' ')"
    done > word_count.txt

cat > result.json <<END
{"schema_version": "1.0.0", "agent_name": "word_count", "nonce": "$(field 'b["nonce"]')", "status": "complete",
 "outputs": [{"name": "counts", "path": "word_count.txt"}], "metrics": {"cost_usd": 0}, "errors": []}
END
