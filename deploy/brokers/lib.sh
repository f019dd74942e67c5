# What the scripts of this directory share. Each sources it, says how its server
# is installed (install_server), run in the background (serve) and found ready
# (ready), and where it listens (address), and ends with: main "$@"
set -euo pipefail

broker=$(basename "$0" .sh)
cache=${XDG_CACHE_HOME:-$HOME/.cache}
# Everything of one server, its data included.
dir=${BROKER_DIR:-$cache/waybill-brokers/$broker}

fail() {
	printf '%s: %s\n' "$broker" "$*" >&2
	exit 1
}

usage() {
	cat >&2 <<TEXT
usage: $0 VERB
  install   get the server, if it is not there
  start     run it in the background and wait until it is ready
  stop      end it
  kill      end it with SIGKILL
  address   where it listens
  run       run it here, until SIGTERM; once it is ready, say where it listens
  hold      run it here until standard input ends, then remove what is its
$(more_verbs)
BROKER_DIR ($dir) has everything of one server. $(settings)
TEXT
	exit 2
}

main() {
	case ${1:-} in
	install | start | stop | address | run | hold) "$1" ;;
	kill) crash ;;
	*) more "$@" ;;
	esac
}

# What a script may have besides.
more_verbs() { :; }
more() { usage; }

# install lets one process at a time install anything.
install() {
	mkdir -p "$cache/waybill-tests"
	(
		flock 9
		install_server
	) 9>>"$cache/waybill-tests/lock"
}

# debian installs packages, and starts no service that they bring.
debian() {
	command -v apt-get >/dev/null || fail "needs $*, which this script gets on Debian and its kin only"
	[ "$(id -u)" = 0 ] || fail "needs $*: install them, or have root run $0 install"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

start() {
	if ! alive run; then
		install
		mkdir -p "$dir"
		nohup "$0" run </dev/null >"$dir/output" 2>&1 &
		echo $! >"$dir/run.pid"
	fi
	await_ready alive run || {
		tail -n 20 "$dir/output" >&2
		fail "does not start; $dir/output has all that it said"
	}
	address
}

stop() {
	signal TERM run
	await_end
}

crash() {
	signal KILL server
	await_end
}

# await_end waits for run, which ends after its server: before that, start would take
# what is ending for what is there.
await_end() {
	while alive run; do sleep 0.1; done
}

# hold is run, tied to the life of the process at the other end of standard
# input: however that ends, so does this.
hold() {
	exec 8<&0 </dev/null
	trap 'signal KILL server; scratch=yes; exit 0' USR1
	(
		while read -r <&8; do :; done
		kill -s USR1 $$
	) &
	children+=($!)
	run
}

# run starts the server and ends with it.
run() {
	install
	mkdir -p "$dir"
	echo $$ >"$dir/run.pid"
	trap quit EXIT
	trap 'exit 0' TERM INT
	serve
	await_ready kill -0 "${children[-1]}" || fail "does not get ready"
	address
	wait "${children[-1]}" || true
}

children=() # in the order of their start; the server is the last
scratch=    # whether nobody needs the data any more

quit() {
	local i
	for ((i = ${#children[@]} - 1; i >= 0; i--)); do
		kill "${children[i]}" 2>/dev/null && wait "${children[i]}" || true
	done
	rm -f "$dir/run.pid"
	[ -z "$scratch" ] || rm -rf "$dir"
}

# alive says whether the process is there whose id is in a file: run is this
# script's, server the server's own.
alive() { [ -s "$dir/$1.pid" ] && kill -0 "$(cat "$dir/$1.pid")" 2>/dev/null; }

# What has just ended needs none.
signal() { kill -s "$1" "$(cat "$dir/$2.pid" 2>/dev/null)" 2>/dev/null || true; }

# await_ready waits while a command succeeds, five minutes at most.
await_ready() {
	local looks
	for ((looks = 0; looks < 3000; looks++)); do
		if ready; then return 0; fi
		"$@" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

# listening says whether a port here takes connections.
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
