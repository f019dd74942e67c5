package main

import (
	"bytes"
	"context"
	"encoding/base64"
)

// benchFilter is one that all messages of a flow match.
const benchFilter = `{"input.kind":{"$in":["test","bench"]},"input.data":{"$exists":true}}`

// topic measures messages a second that are published to a topic and handled by
// each of its observers. Those with a filter need payloads that it can look into.
func topic(observers int, filter string) func(ctx context.Context, m *measurement) ([]float64, error) {
	return func(ctx context.Context, m *measurement) ([]float64, error) {
		size := 128
		if filter != "" {
			const head = len(`{"kind":"bench","data":""}`)
			size = base64.RawStdEncoding.DecodedLen(size - head)
		}
		f := newFlow(m.broker, 1, size)
		f.observers, f.filter = observers, filter
		rate, err := throughput(ctx, m, f, observers, 1)
		return []float64{rate, rate * float64(observers)}, err
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
