// Package document encodes the JSON documents that services keep in KV buckets,
// so that several versions of a service can share them: a field that this
// version does not know is kept when the record is rewritten, and a record
// says which version may write it.
package document

import (
	"encoding/json"
	"maps"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Version is the version that writes records now. It rises only when an older
// writer would spoil what a newer one means.
const Version = 1

// Head is embedded in every record.
type Head struct {
	// MinWriter is the lowest Version that may rewrite the record.
	MinWriter int `json:"min_writer"`
	// unknown fields, as they were read
	unknown map[string]json.RawMessage
}

func (h *Head) head() *Head { return h }

// Rest are the fields of the record that its type does not have.
func (h *Head) Rest() map[string]json.RawMessage { return h.unknown }

// SetRest has the record written with these fields beside those of its type.
func (h *Head) SetRest(fields map[string]json.RawMessage) { h.unknown = fields }

// Record is a pointer to a struct that embeds Head.
type Record interface{ head() *Head }

// Unmarshal reads a record. It fails with UNSUPPORTED if this version may not
// rewrite it.
func Unmarshal(data []byte, r Record) error {
	if err := json.Unmarshal(data, r); err != nil {
		return protocol.Errorf(protocol.CodeInternal, "a stored record is not the JSON it should be: %v", err)
	}
	h := r.head()
	if h.MinWriter > Version {
		return protocol.Errorf(protocol.CodeUnsupported,
			"a stored record was written by a newer version of Waybill (records %d, this one knows %d): run that version", h.MinWriter, Version)
	}
	h.unknown = nil
	if err := json.Unmarshal(data, &h.unknown); err != nil {
		return err
	}
	known, err := fields(r)
	if err != nil {
		return err
	}
	maps.DeleteFunc(h.unknown, func(name string, _ json.RawMessage) bool { _, ok := known[name]; return ok })
	return nil
}

// Marshal writes a record with the fields it was read with.
func Marshal(r Record) ([]byte, error) {
	h := r.head()
	h.MinWriter = max(h.MinWriter, Version)
	if len(h.unknown) == 0 {
		return json.Marshal(r)
	}
	all, err := fields(r)
	if err != nil {
		return nil, err
	}
	for name, value := range h.unknown {
		if _, known := all[name]; !known {
			all[name] = value
		}
	}
	return json.Marshal(all)
}

func fields(r Record) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	err = json.Unmarshal(data, &all)
	return all, err
}
