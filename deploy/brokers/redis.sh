#!/usr/bin/env bash
# A real Redis on this machine, without Docker: on a loopback port of its own. It
# keeps nothing on the disk.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

port=${REDIS_PORT:-25699}

settings() { echo "REDIS_PORT is its port ($port)."; }
more_verbs() { echo "  cli ...   redis-cli of this server"; }
more() {
	[ "${1:-}" = cli ] || usage
	exec redis-cli -p "$port" "${@:2}"
}

install_server() { command -v redis-server >/dev/null || debian redis-server; }

serve() {
	rm -f "$dir/log"
	redis-server --port "$port" --bind 127.0.0.1 --dir "$dir" --save '' --appendonly no >>"$dir/log" 2>&1 &
	children+=($!)
	echo $! >"$dir/server.pid"
}

ready() { listening "$port"; }

address() { echo "redis://127.0.0.1:$port"; }

main "$@"
