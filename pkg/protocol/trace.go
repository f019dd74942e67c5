package protocol

import "strings"

// CleanTrace drops in place what must not travel of a message's context: a
// traceparent that W3C Trace Context would not accept, a tracestate without a
// traceparent, and baggage over MaxBaggage. What is left passes unchanged.
func CleanTrace(headers map[string][]string) {
	if values, ok := headers[HeaderTraceparent]; ok && (len(values) != 1 || !validTraceparent(values[0])) {
		delete(headers, HeaderTraceparent)
	}
	if _, ok := headers[HeaderTraceparent]; !ok {
		delete(headers, HeaderTracestate)
	}
	size := 0
	for _, value := range headers[HeaderBaggage] {
		size += len(value)
	}
	if size > MaxBaggage {
		delete(headers, HeaderBaggage)
	}
}

// validTraceparent says whether value is <version>-<trace id>-<parent id>-<flags>
// in lower-case hexadecimal, neither id all zeros. Version 00 ends there; a
// later one may go on after another dash; ff is none.
func validTraceparent(value string) bool {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if len(value) < length || len(value) > length && (value[:2] == "00" || value[length] != '-') {
		return false
	}
	version, trace, parent, flags := value[:2], value[3:35], value[36:52], value[53:length]
	return value[2] == '-' && value[35] == '-' && value[52] == '-' && version != "ff" &&
		isHex(version) && isHex(trace) && isHex(parent) && isHex(flags) && !isZero(trace) && !isZero(parent)
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func isZero(s string) bool { return strings.Trim(s, "0") == "" }
