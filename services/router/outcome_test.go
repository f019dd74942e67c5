package router

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestReadOutcome(t *testing.T) {
	h := func(pairs ...string) nats.Header {
		h := nats.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for _, c := range []struct {
		name   string
		header nats.Header
		body   string
		want   protocol.Outcome
		text   string
	}{
		{"empty", nil, "", protocol.Acknowledged, ""},
		{"a result", nil, "done", protocol.Acknowledged, ""},
		{"other headers", h("x", "y"), "done", protocol.Acknowledged, ""},
		{"said so", h(protocol.HeaderOutcome, "acknowledged"), "done", protocol.Acknowledged, ""},
		{"failed", h(protocol.HeaderOutcome, "failed", protocol.HeaderError, "short"), "", protocol.Failed, "short"},
		{"the body wins", h(protocol.HeaderOutcome, "failed", protocol.HeaderError, "short"), "long", protocol.Failed, "long"},
		{"rejected", h(protocol.HeaderOutcome, "rejected"), "", protocol.Rejected, ""},
		{"a service's error", h(protocol.HeaderServiceError, "bad", protocol.HeaderServiceErrorCode, "500"), "", protocol.Failed, "bad"},
		{"a code alone", h(protocol.HeaderServiceErrorCode, "500"), "", protocol.Failed, "500"},
		{"an outcome beats an error", h(protocol.HeaderOutcome, "rejected", protocol.HeaderServiceError, "bad"), "", protocol.Rejected, "bad"},
		{"the router's to tell", h(protocol.HeaderOutcome, "timeout"), "x", protocol.Pending, "x"},
		{"also", h(protocol.HeaderOutcome, "vanished"), "x", protocol.Pending, "x"},
		{"no outcome's name", h(protocol.HeaderOutcome, strings.Repeat("x", maxOutcome+1)), "x", protocol.Pending, "x"},
		{"unknown", h(protocol.HeaderOutcome, "Acknowledged"), "x", "Acknowledged", "x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			end := readOutcome(&nats.Msg{Header: c.header, Data: []byte(c.body)})
			if end.outcome != c.want || end.text != c.text {
				t.Errorf("got %q %q, want %q %q", end.outcome, end.text, c.want, c.text)
			}
		})
	}
}

func TestErrorTextIsCutBetweenCharacters(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("ä", protocol.MaxErrorText), "x" + strings.Repeat("☃", protocol.MaxErrorText), "bad \xff byte"} {
		got := errorText(s)
		if len(got) > protocol.MaxErrorText || !utf8.ValidString(got) {
			t.Errorf("%.20q… became %d bytes, valid %v", s, len(got), utf8.ValidString(got))
		}
		if utf8.ValidString(s) && !strings.HasPrefix(s, got) {
			t.Errorf("%.20q… is not the beginning of what was said", got)
		}
	}
}
