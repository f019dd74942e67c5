package client

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// parseReceipt reads a publish's answer. like is an earlier receipt, whose
// words most others repeat.
func parseReceipt(msg *nats.Msg, like *Receipt) (*Receipt, error) {
	if headerOf(msg, protocol.HeaderStatus) != "" {
		return nil, protocol.Errorf(protocol.CodeUnavailable, "nobody takes publishes here: nothing was stored; see with `waybill stats` which services run, start them with `waybill up`")
	}
	// There is an answer for each message: the usual one is read by hand, and
	// encoding/json has all others.
	if r := readReceipt(msg.Data, like); r != nil {
		return r, nil
	}
	var answer struct {
		Receipt
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, protocol.Errorf(protocol.CodeInternal, "the answer to a publish is not understood: %v", err)
	}
	if len(answer.Error) == 0 {
		return &answer.Receipt, nil
	}
	if e := protocol.ParseErrorBody(msg.Data); e != nil {
		return nil, e
	}
	return nil, protocol.Errorf(protocol.CodeInternal, "the publish was refused: %s", answer.Error)
}

// readReceipt reads an object without white space, whose fields are those of a
// Receipt and whose strings are plain; nil for anything else.
func readReceipt(b []byte, like *Receipt) *Receipt {
	r := &Receipt{}
	before := byte('{')
	for len(b) > 0 && b[0] == before {
		var name, value []byte
		var ok bool
		if name, value, b, ok = cutField(b[1:]); !ok || !setField(r, name, value, like) {
			return nil
		}
		if len(b) == 1 && b[0] == '}' {
			return r
		}
		before = ','
	}
	return nil
}

// setField is false for a field, or a value, that a Receipt does not have.
func setField(r *Receipt, name, value []byte, like *Receipt) bool {
	switch string(name) {
	case "stream":
		return setWord(&r.Stream, value, like.Stream)
	case "seq":
		return setNumber(&r.Seq, value)
	case "duplicate":
		r.Duplicate = string(value) == "true"
		return r.Duplicate
	case "message_id":
		return setWord(&r.MessageID, value, "")
	case "broker":
		return setWord(&r.Broker, value, like.Broker)
	case "durability":
		return setWord(&r.Durability, value, like.Durability)
	case "listeners":
		var n uint64
		ok := setNumber(&n, value)
		r.Listeners = int(n)
		return ok
	default:
		return false
	}
}

// setWord sets a string, without memory of its own if it is like another.
func setWord(to *string, value []byte, like string) bool {
	if value[0] != '"' {
		return false
	}
	if word := value[1 : len(value)-1]; string(word) == like {
		*to = like
	} else {
		*to = string(word)
	}
	return true
}

func setNumber(to *uint64, value []byte) (ok bool) {
	n, err := strconv.ParseUint(string(value), 10, 63)
	*to = n
	return err == nil
}

// cutField takes a name and its value, a string with its quotes or anything
// else up to the next field, off an object's rest.
func cutField(b []byte) (name, value, rest []byte, ok bool) {
	quoted, b, ok := cutString(b)
	if !ok || len(b) < 2 || b[0] != ':' {
		return nil, nil, nil, false
	}
	name, b = quoted[1:len(quoted)-1], b[1:]
	if b[0] == '"' {
		value, rest, ok = cutString(b)
		return name, value, rest, ok
	}
	n := bytes.IndexAny(b, ",}")
	if n < 1 {
		return nil, nil, nil, false
	}
	return name, b[:n], b[n:], true
}

// cutString takes a string, with its quotes, off b; not ok if it has characters
// that are escaped, or not ASCII.
func cutString(b []byte) (quoted, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return b[:i+1], b[i+1:], true
		case c == '\\' || c < ' ' || c >= utf8.RuneSelf:
			return nil, nil, false
		}
	}
	return nil, nil, false
}
