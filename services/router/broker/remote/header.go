package remote

import (
	"crypto/sha256"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Headers of the mesh in a message on a broker. The attempt is
// protocol.HeaderAttempt; a message without HeaderPublished is not the mesh's, and
// nothing of these counts in it.
const (
	HeaderPublished  = "Waybill-Published-At"
	HeaderVanished   = "Waybill-Vanished"
	HeaderIncomplete = "Waybill-Incomplete"
	HeaderDue        = "Waybill-Due"
	HeaderFirst      = "Waybill-First-Failure"
	HeaderLast       = "Waybill-Last-Failure"
	HeaderReason     = "Waybill-Reason"
	HeaderError      = protocol.HeaderError
	HeaderSource     = "Waybill-Source"
	HeaderSpans      = "Waybill-Spans"
	HeaderStory      = "Waybill-Story"
	HeaderQueue      = "Waybill-Queue" // of a dead letter
	HeaderCopy       = "Waybill-Copy"  // Writing.Copy
)

// ofJobs are the mesh's own headers that a job has from its enqueuer.
var ofJobs = map[string]bool{protocol.HeaderFunction: true, protocol.HeaderNamespace: true, protocol.HeaderReceipt: true}

// ofMesh are the headers that only the mesh sets.
var ofMesh = map[string]bool{
	protocol.HeaderAttempt: true, protocol.HeaderGeneration: true, protocol.HeaderGroup: true,
	HeaderPublished: true, HeaderVanished: true, HeaderIncomplete: true, HeaderDue: true, HeaderFirst: true, HeaderLast: true, HeaderReason: true,
	HeaderError: true, HeaderSource: true, HeaderSpans: true, HeaderStory: true, HeaderQueue: true, HeaderCopy: true,
}

// IsMesh says whether a header is one of those that the mesh keeps with a message.
func IsMesh(name string) bool { return ofMesh[name] }

// IsPublishers says whether a header is its publisher's: of a message that is the
// mesh's own, or of a stranger's, who may set what a publisher may.
func IsPublishers(name, value string, own bool) bool {
	switch {
	case ofMesh[name]:
		return false
	case own && ofJobs[name]:
		return true
	}
	lower := strings.ToLower(name)
	return !strings.HasPrefix(lower, "waybill-") && lower != "nats-msg-id" && IsCarried(name, value)
}

// IsCarried says whether NATS carries such a header.
func IsCarried(name, value string) bool {
	return protocol.CheckHeaders(map[string][]string{name: {value}}) == nil
}

// StrangersID names a message whose publisher did not, by what is alike whenever it is
// delivered.
func StrangersID(alike []byte) protocol.MessageID {
	sum := sha256.Sum256(alike)
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8: made of what it names
	return id
}

// When is a time in ns since the epoch, 0 for what is none.
func When(text string) int64 {
	if text == "" { // of which the parser would make an error
		return 0
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0
	}
	return at.UnixNano()
}

// Number is a count, 0 for what is none.
func Number(text string) uint32 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return uint32(n)
}
