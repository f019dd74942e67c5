package scope

import "strings"

// DiagnosisPrefix begins the ids of the executions, and the topics, with which
// the mesh tries out itself. They are not for anybody else.
const DiagnosisPrefix = "waybill-diagnosis-"

// OfDiagnosis says whether the mesh tries out itself in that queue of the
// embedded transport. Nobody's counters contain what happens there.
func OfDiagnosis(queue string) bool {
	return strings.HasPrefix(strings.TrimPrefix(queue, QueuePrefix), DiagnosisPrefix)
}
