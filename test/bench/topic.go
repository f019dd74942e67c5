package main

import (
	"bytes"
	"context"
	"encoding/base64"
)

// benchFilter is one that all messages of a flow match.
const benchFilter = `{"input.kind":{"$in":["test","bench"]},"input.data":{"$exists":true}}`

// observed measures messages a second of a topic with one observer, that has a
// filter.
func observed(filter string) func(ctx context.Context, m *measurement) ([]float64, error) {
	return func(ctx context.Context, m *measurement) ([]float64, error) {
		const head = len(`{"kind":"bench","data":""}`)
		f := newFlow(m.broker, 1, base64.RawStdEncoding.DecodedLen(128-head))
		f.filter = filter
		return throughput(ctx, m, f, 1)
	}
}

// asJSON makes a payload one that a filter can look into.
func asJSON(payload []byte) []byte {
	b := append(make([]byte, 0, 2*len(payload)), `{"kind":"bench","data":"`...)
	return append(base64.RawStdEncoding.AppendEncode(b, payload), `"}`...)
}

// fromJSON undoes asJSON; what it did not make is nothing.
func fromJSON(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte(`"}`))
	payload, err := base64.RawStdEncoding.AppendDecode(nil, b[bytes.LastIndexByte(b, '"')+1:])
	if err != nil || len(payload) < 16 {
		return make([]byte, 16)
	}
	return payload
}
