#!/usr/bin/env bash
# A real RabbitMQ on this machine, without Docker: one node on loopback ports of
# its own, beside any other RabbitMQ that may run here.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

amqp=${AMQP_PORT:-25690}
management=${MANAGEMENT_PORT:-25691}
epmd=${EPMD_PORT:-25692}
distribution=${DISTRIBUTION_PORT:-25693}

settings() {
	echo "AMQP_PORT, MANAGEMENT_PORT, EPMD_PORT and DISTRIBUTION_PORT are its ports
($amqp $management $epmd $distribution); BROKER_CONFIG has lines to add to rabbitmq.conf."
}
more_verbs() { echo "  ctl ...   rabbitmqctl of this server"; }
more() {
	[ "${1:-}" = ctl ] || usage
	environment
	exec /usr/lib/rabbitmq/bin/rabbitmqctl "${@:2}"
}

install_server() { [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || debian rabbitmq-server; }

# The program itself is run and not the one on the path, which would change the
# user and the environment.
serve() {
	environment
	mkdir -p "$dir/home" "$RABBITMQ_MNESIA_BASE"
	rm -f "$dir/server.pid" "$dir/log"
	echo '[rabbitmq_management].' >"$RABBITMQ_ENABLED_PLUGINS_FILE"
	configuration >"$RABBITMQ_CONFIG_FILE"
	advanced >"$RABBITMQ_ADVANCED_CONFIG_FILE"
	# A node that finds no epmd starts one that outlives it.
	if ! listening "$epmd"; then
		epmd -port "$epmd" -address 127.0.0.1 >/dev/null 2>&1 &
		children+=($!)
	fi
	/usr/lib/rabbitmq/bin/rabbitmq-server >>"$dir/log" 2>&1 &
	children+=($!)
}

# Both ports answer, and the node has said that it is through: it listens before.
ready() { listening "$amqp" && listening "$management" && grep -q 'Server startup complete' "$dir/log" 2>/dev/null; }

address() {
	echo "amqp://guest:guest@127.0.0.1:$amqp"
	echo "http://guest:guest@127.0.0.1:$management"
}

environment() {
	export HOME=$dir/home # of the cookie that nodes and rabbitmqctl share
	export ERL_EPMD_PORT=$epmd ERL_EPMD_ADDRESS=127.0.0.1
	export RABBITMQ_NODENAME=waybill-$amqp@localhost RABBITMQ_DIST_PORT=$distribution
	export RABBITMQ_MNESIA_BASE=$dir/mnesia RABBITMQ_LOG_BASE=$dir RABBITMQ_LOGS=-
	export RABBITMQ_PID_FILE=$dir/server.pid ERL_CRASH_DUMP=$dir/crash.dump
	export RABBITMQ_CONFIG_FILE=$dir/rabbitmq.conf RABBITMQ_ADVANCED_CONFIG_FILE=$dir/advanced.config
	export RABBITMQ_CONF_ENV_FILE=$dir/rabbitmq-env.conf RABBITMQ_ENABLED_PLUGINS_FILE=$dir/enabled_plugins
	export RABBITMQ_GENERATED_CONFIG_DIR=$dir/config RABBITMQ_PLUGINS_EXPAND_DIR=$dir/plugins
	# Two schedulers that do not spin: tests share the machine with it.
	export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
}

configuration() {
	cat <<CONF
listeners.tcp.1 = 127.0.0.1:$amqp
management.tcp.ip = 127.0.0.1
management.tcp.port = $management
log.console = true
log.file = false
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 50MB
collect_statistics_interval = 1000
${BROKER_CONFIG:-}
CONF
}

# What RabbitMQ looks at every minute, or tries again after three, it does in
# seconds here: a handler that is longer than consumer_timeout, and a message that
# could not go back to its queue while that was starting.
advanced() {
	echo '[{rabbit, [{channel_tick_interval, 1000}, {dead_letter_worker_publisher_confirm_timeout, 3000}]}].'
}

main "$@"
