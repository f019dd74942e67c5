#!/usr/bin/env bash
# A real Apache Pulsar standalone on this machine, without Docker: on loopback ports
# of its own, with the configuration beside this script.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=${PULSAR_PORT:-25700}
http=${HTTP_PORT:-25701}
bookie=${BOOKIE_PORT:-25702}
version=4.2.4
libraries=$cache/waybill-tests/pulsar-$version

settings() {
	echo "PULSAR_PORT, HTTP_PORT and BOOKIE_PORT are
its ports ($binary $http $bookie); HEAP and DIRECT bound its memory (${HEAP:-512m}, ${DIRECT:-384m}),
JAVA_OPTIONS are more of Java's; BROKER_CONFIG has lines to add to standalone.conf."
}

# The server is a directory of libraries.
install_server() {
	[ ! -d "$libraries" ] || return 0
	{ command -v java && command -v mvn; } >/dev/null || debian default-jre-headless maven
	local got=$libraries.new
	rm -rf "$got"
	mvn -B -q -Dstyle.color=never -s "$here/pulsar/settings.xml" -f "$here/pulsar/pom.xml" dependency:copy-dependencies \
		-DincludeScope=runtime "-DoutputDirectory=$got" >&2
	mv "$got" "$libraries"
}

serve() {
	rm -f "$dir/server.pid" "$dir/log"
	mkdir -p "$dir/meta" "$dir/bookie"
	configuration >"$dir/standalone.conf"
	cd "$dir"
	# shellcheck disable=SC2046 # many words
	java $(java_arguments) -cp "$libraries/*" org.apache.pulsar.PulsarStandaloneStarter --config "$dir/standalone.conf" \
		--no-functions-worker --no-stream-storage --advertised-address 127.0.0.1 --metadata-dir "$dir/meta" \
		--bookkeeper-dir "$dir/bookie" --bookkeeper-port "$bookie" --num-bookies 1 >>"$dir/log" 2>&1 &
	children+=($!)
	echo $! >"$dir/server.pid"
}

configuration() {
	cat "$here/pulsar/standalone.conf"
	printf '%s\n' "brokerServicePort=$binary" "webServicePort=$http" "${BROKER_CONFIG:-}"
}

java_arguments() {
	echo "-Xms128m -Xmx${HEAP:-512m} -XX:MaxDirectMemorySize=${DIRECT:-384m} ${JAVA_OPTIONS:--XX:+UseSerialGC -XX:TieredStopAtLevel=1}"
	echo "-XX:+ExitOnOutOfMemoryError -Dpulsar.allocator.exit_on_oom=true -Dlog4j2.configurationFile=$here/pulsar/log4j2.xml -Dlog4j2.disableJmx=true"
	echo "-Dio.netty.leakDetectionLevel=disabled -Dio.netty.tryReflectionSetAccessible=true -Dio.netty.recycler.maxCapacityPerThread=4096"
	local metadata=org.apache.pulsar.metadata.bookkeeper.PulsarMetadata
	echo "-Dbookkeeper.metadata.bookie.drivers=${metadata}BookieDriver -Dbookkeeper.metadata.client.drivers=${metadata}ClientDriver"
	local package
	for package in java.base/java.nio java.base/jdk.internal.misc java.base/sun.net java.base/jdk.internal.platform java.base/java.util.zip \
		java.base/sun.security.jca java.management/sun.management jdk.management/com.sun.management.internal; do
		echo "--add-opens=$package=ALL-UNNAMED"
	done
}

# The namespace is there last.
ready() {
	listening "$binary" && [ "$(answer /admin/v2/namespaces/public/default)" = 200 ] 2>/dev/null
}

# answer is the status with which the server answers a question.
answer() {
	exec 4<>"/dev/tcp/127.0.0.1/$http" || return 0
	printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&4
	local line
	read -r line <&4 || true
	exec 4>&-
	line=${line#* }
	echo "${line%% *}"
} 2>/dev/null

address() {
	echo "pulsar://127.0.0.1:$binary"
	echo "http://127.0.0.1:$http"
}

main "$@"
