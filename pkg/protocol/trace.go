package protocol

import "strings"

// What travels of a message's context, as W3C Baggage and W3C Trace Context
// bound it. Of a longer list the first members travel, each whole.
const (
	MaxBaggage           = 8192 // bytes
	MaxBaggageMembers    = 64
	MaxTracestate        = 512 // bytes
	MaxTracestateMembers = 32
)

// CleanTrace drops in place what must not travel of a message's context: a
// traceparent that W3C Trace Context would not accept, a tracestate without a
// traceparent, and the members of tracestate and baggage beyond their bounds.
// What is left passes unchanged; no publish is refused for it.
func CleanTrace(headers map[string][]string) {
	if values, ok := headers[HeaderTraceparent]; ok && (len(values) != 1 || !validTraceparent(values[0])) {
		delete(headers, HeaderTraceparent)
	}
	if _, ok := headers[HeaderTraceparent]; !ok {
		delete(headers, HeaderTracestate)
	}
	cutHeader(headers, HeaderTracestate, MaxTracestate, MaxTracestateMembers)
	cutHeader(headers, HeaderBaggage, MaxBaggage, MaxBaggageMembers)
}

// CutBaggage is a baggage header's value without the members that do not
// travel.
func CutBaggage(value string) string { return cutList(value, MaxBaggage, MaxBaggageMembers) }

func cutHeader(headers map[string][]string, name string, most, members int) {
	values, ok := headers[name]
	if !ok || len(values) == 1 && fits(values[0], most, members) {
		return
	}
	if value := cutList(strings.Join(values, ","), most, members); value != "" {
		headers[name] = []string{value}
		return
	}
	delete(headers, name)
}

func fits(list string, most, members int) bool {
	return len(list) <= most && strings.Count(list, ",") < members
}

// cutList is the beginning of a comma-separated list, in whole members, that has
// at most so many bytes and members.
func cutList(list string, most, members int) string {
	all := strings.Split(list, ",")
	n, size := 0, -1
	for n < len(all) && n < members && size+1+len(all[n]) <= most {
		size += 1 + len(all[n])
		n++
	}
	return strings.Join(all[:n], ",")
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
