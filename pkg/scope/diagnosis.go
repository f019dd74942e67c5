package scope

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// DiagnosisPrefix begins the ids of the executions, and the topics, with which
// the mesh tries out itself. They are not for anybody else.
const DiagnosisPrefix = "waybill-diagnosis-"

// diagnosisName is a name as the diagnosis makes them: with the time, random
// letters, which of its run's it is, and the mark of the broker that is tried.
var diagnosisName = regexp.MustCompile(`\A` + DiagnosisPrefix + `[0-9a-f]+-[A-Z2-7]{10}-[0-9]+(-([0-9a-f]{8}))?(\.[0-9]+)?\z`)

// OfDiagnosis says whether the mesh tries out itself in that queue of the
// embedded transport. Nobody's counters contain what happens there.
func OfDiagnosis(queue string) bool {
	return strings.HasPrefix(strings.TrimPrefix(queue, QueuePrefix), DiagnosisPrefix)
}

// DiagnosisMark marks the names with which the broker of that id is tried.
func DiagnosisMark(broker string) string {
	h := fnv.New32a()
	h.Write([]byte(broker))
	return fmt.Sprintf("%08x", h.Sum32())
}

// DiagnosedMark is the mark in the name of an execution or topic of the diagnosis;
// empty if that tries the mesh itself.
func DiagnosedMark(name string) string {
	if parts := diagnosisName.FindStringSubmatch(name); parts != nil {
		return parts[2]
	}
	return ""
}

// CheckReserved refuses (INVALID_NAME) an execution id or a topic that begins
// with DiagnosisPrefix and is none of the diagnosis: what happened there would
// be in no counter.
func CheckReserved(name string) error {
	if !strings.HasPrefix(name, DiagnosisPrefix) || diagnosisName.MatchString(name) {
		return nil
	}
	return protocol.Errorf(protocol.CodeInvalidName, "%.200q begins with %s, which is for the mesh's own diagnosis: choose another name", name, DiagnosisPrefix)
}
