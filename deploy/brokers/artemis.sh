#!/usr/bin/env bash
# A real Apache ActiveMQ Artemis on this machine, without Docker: on loopback ports
# of its own, with the broker.xml beside this script.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
stomp=${STOMP_PORT:-25695}
plain=${STOMP_PLAIN_PORT:-25696}
http=${HTTP_PORT:-25697}
core=${CORE_PORT:-25698}
version=2.44.0
server=$cache/waybill-tests/artemis-$version
user=waybill:waybill
model=$server/instance # the files of a server, from which those of each are copied

settings() {
	echo "STOMP_PORT, STOMP_PLAIN_PORT, HTTP_PORT and CORE_PORT are
its ports ($stomp $plain $http $core); HEAP bounds its memory (${HEAP:-256M}), JAVA_OPTIONS are more of
Java's; BROKER_CONFIG has lines of broker properties to add to broker.xml."
}
more_verbs() { echo "  ctl ...   the artemis command of this server, as in: ctl queue stat"; }
more() {
	[ "${1:-}" = ctl ] || usage
	exec "$dir/instance/bin/artemis" "${@:2}" --url "tcp://127.0.0.1:$core" --user "${user%:*}" --password "${user#*:}"
}

install_server() {
	[ -x "$server/bin/artemis" ] || download
	[ -x "$model/bin/artemis" ] || create_model
}

download() {
	{ command -v java && command -v mvn && command -v tar; } >/dev/null || debian default-jre-headless maven
	local got=$server.new
	rm -rf "$got"
	mkdir -p "$got"
	mvn -B -q -Dstyle.color=never dependency:copy "-Dartifact=org.apache.activemq:apache-artemis:$version:tar.gz:bin" "-DoutputDirectory=$got" >&2
	tar -xzf "$got/apache-artemis-$version-bin.tar.gz" -C "$got"
	mv "$got/apache-artemis-$version" "$server"
	rm -rf "$got"
}

serve() {
	local instance=$dir/instance
	rm -f "$dir/server.pid" "$dir/log"
	[ -x "$instance/bin/artemis" ] || create "$instance"
	cp "$here/artemis/broker.xml" "$instance/etc/broker.xml"
	configuration >"$instance/etc/broker.properties"
	JAVA_ARGS="$(java_arguments)" "$instance/bin/artemis" run --properties "$instance/etc/broker.properties" >>"$dir/log" 2>&1 &
	children+=($!)
	echo $! >"$dir/server.pid"
}

# create_model makes the files of a server, which takes seconds; their broker.xml is not
# used.
create_model() {
	rm -rf "$model.new"
	"$server/bin/artemis" create "$model.new" --silent --name waybill --user "${user%:*}" --password "${user#*:}" --role amq --require-login \
		--nio --no-autotune --host 127.0.0.1 --http-host 127.0.0.1 --http-port 8161 --relax-jolokia >&2
	mv "$model.new" "$model"
}

# create makes those of this one.
create() {
	cp -R "$model" "$1"
	sed -i "s|$model.new|$1|g; s|:8161|:$http|g" "$1"/bin/* "$1"/etc/*
}

java_arguments() {
	echo "-Xms128M -Xmx${HEAP:-256M} ${JAVA_OPTIONS:--XX:+UseSerialGC -XX:TieredStopAtLevel=1}"
	echo "-Dwaybill.host=127.0.0.1 -Dwaybill.stomp=$stomp -Dwaybill.disk=99"
	echo "-Dhawtio.offline=true -Dhawtio.realm=activemq -Dhawtio.rolePrincipalClasses=org.apache.activemq.artemis.spi.core.security.jaas.RolePrincipal"
	echo "-Djolokia.policyLocation=classpath:jolokia-access.xml -Dlog4j2.disableJmx=true --add-opens java.base/jdk.internal.misc=ALL-UNNAMED"
}

# A second STOMP acceptor that knows no prefixes, and one for the command.
configuration() {
	acceptor plain "$plain" STOMP
	acceptor core "$core" CORE
	printf '%s\n' "${BROKER_CONFIG:-}"
}

acceptor() {
	cat <<CONF
acceptorConfigurations.$1.factoryClassName=org.apache.activemq.artemis.core.remoting.impl.netty.NettyAcceptorFactory
acceptorConfigurations.$1.params.host=127.0.0.1
acceptorConfigurations.$1.params.port=$2
acceptorConfigurations.$1.params.protocols=$3
CONF
}

# The server says so last, when management answers too.
ready() { grep -q 'AMQ241004' "$dir/log" 2>/dev/null && listening "$stomp" && listening "$plain"; }

address() {
	echo "stomp://$user@127.0.0.1:$stomp"
	echo "stomp://$user@127.0.0.1:$plain"
	echo "http://$user@127.0.0.1:$http"
}

main "$@"
