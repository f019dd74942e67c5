#!/usr/bin/env bash
# Toxiproxy on this machine: links to a broker that can be cut, slowed and left
# half open, by its HTTP interface.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

port=${TOXIPROXY_PORT:-25694}
version=v2.5.0
server=$cache/waybill-tests/toxiproxy-$version

settings() { echo "TOXIPROXY_PORT is its port ($port)."; }

install_server() {
	[ ! -x "$server" ] || return 0
	command -v go >/dev/null || fail "needs Go to be built"
	GOWORK=off GOFLAGS= GOBIN=$server.new go install "github.com/Shopify/toxiproxy/v2/cmd/server@$version"
	mv "$server.new/server" "$server"
	rmdir "$server.new"
}

serve() {
	"$server" -host 127.0.0.1 -port "$port" >>"$dir/log" 2>&1 &
	children+=($!)
	echo $! >"$dir/server.pid"
}

ready() { listening "$port"; }

address() { echo "http://127.0.0.1:$port"; }

main "$@"
