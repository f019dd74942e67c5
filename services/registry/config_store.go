package registry

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// configKey is the record of what was set of the configuration. It is older than
// the rest of the configuration: it was that of the settings alone.
const configKey = "settings"

// configDoc is one revision of it. What was set are the fields beside its own.
type configDoc struct {
	document.Head
	// By is empty in what a version wrote that knew the settings alone.
	By       string    `json:"changed_by,omitempty"`
	At       time.Time `json:"changed_at,omitzero"`
	Restores uint64    `json:"restores,omitempty"`
	// Seeded: a file has counted, or somebody has edited it, so that none does.
	Seeded bool `json:"seeded,omitempty"`
	// Brokers are those outside of the mesh that have messages of it, also those that
	// the configuration does not name any more. Placed counts the changes of where
	// messages are.
	Brokers []protocol.PlacedBroker `json:"placed_brokers,omitempty"`
	Placed  uint64                  `json:"placed,omitempty"`

	set      config.Document
	revision uint64 // in the bucket; 0: nothing was ever set
}

func readConfig(entry jetstream.KeyValueEntry) (*configDoc, error) {
	d := &configDoc{revision: entry.Revision()}
	if err := document.Unmarshal(entry.Value(), d); err != nil {
		return nil, err
	}
	if d.At.IsZero() {
		d.At = entry.Created()
	}
	rest, err := json.Marshal(d.Rest())
	if err != nil {
		return nil, err
	}
	d.set, err = config.ParseDocument(rest)
	return d, err
}

// config reads the newest revision.
func (s *store) config(ctx context.Context) (*configDoc, error) {
	entry, err := s.kv.Get(ctx, configKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return &configDoc{set: config.Document{}}, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return readConfig(entry)
}

// configHistory are the revisions that are kept, oldest first.
func (s *store) configHistory(ctx context.Context) ([]*configDoc, error) {
	entries, err := s.kv.History(ctx, configKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	docs := make([]*configDoc, 0, len(entries))
	for _, entry := range entries {
		if entry.Operation() != jetstream.KeyValuePut {
			continue
		}
		doc, err := readConfig(entry)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

// putConfig writes a revision after the one of doc.revision, and sets the new
// one. It is errMoved if there is a newer. The bucket keeps the earlier ones:
// they are the history.
func (s *store) putConfig(ctx context.Context, doc *configDoc) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(doc.set.JSON(), &fields); err != nil {
		return err
	}
	doc.SetRest(fields)
	data, err := document.Marshal(doc)
	if err != nil {
		return err
	}
	if most := s.js.Conn().MaxPayload() / 2; int64(len(data)) > most {
		return protocol.Errorf(protocol.CodeLimitExceeded, "the configuration takes %d bytes, more than half of what this NATS carries at once (%d): define fewer queues, or raise its max_payload", len(data), s.js.Conn().MaxPayload())
	}
	revision, err := s.putOver(ctx, data, doc.revision)
	switch {
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return errMoved
	case err != nil:
		return unavailable(err)
	}
	doc.revision = revision
	return nil
}

func (s *store) putOver(ctx context.Context, data []byte, over uint64) (uint64, error) {
	if over == 0 {
		return s.kv.Create(ctx, configKey, data)
	}
	return s.kv.Update(ctx, configKey, data, over)
}
