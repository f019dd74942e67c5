package protocol

import (
	"net/url"
	"strings"
)

// ReplyBy begins the token of a publish's reply subject that says who publishes:
// it costs the wire next to nothing, and any NATS client can have it in the
// prefix of its inboxes.
const ReplyBy = "by="

// MaxPublisher is the longest name of a publisher that is kept, in bytes, as
// PublisherToken writes it.
const MaxPublisher = 96

// PublisherToken is the token for a name: what no subject has is written as %
// and two hexadecimal digits, and a name that is too long is cut.
func PublisherToken(name string) string {
	var b strings.Builder
	b.WriteString(ReplyBy)
	for i := range len(name) {
		c := name[i]
		const digits = "0123456789ABCDEF"
		need := 1
		if !plainInToken(c) {
			need = 3
		}
		if b.Len()-len(ReplyBy)+need > MaxPublisher {
			break
		}
		if need == 1 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}

func plainInToken(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_/:@+=", c) >= 0
}

// PublisherOf is what a publish's reply subject says of its publisher, as it is
// written there; empty if it says nothing, or too much.
func PublisherOf(reply string) string {
	_, rest, found := strings.Cut(reply, "."+ReplyBy)
	if !found {
		return ""
	}
	name, _, more := strings.Cut(rest, ".")
	if !more || len(name) > MaxPublisher {
		return ""
	}
	return name
}

// PublisherName is the name that PublisherOf wrote.
func PublisherName(written string) string {
	name, err := url.PathUnescape(written)
	if err != nil {
		return written
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
