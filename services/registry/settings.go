package registry

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// settingsKey is the document of what holds for the whole mesh.
const settingsKey = "settings"

type settingsDoc struct {
	document.Head
	protocol.Settings
}

// settings are those this registry knows of.
type settings struct {
	mu      sync.Mutex
	current protocol.Settings
}

func (s *settings) get() protocol.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// see takes what the bucket has; what is older than the known changes nothing.
func (s *settings) see(now protocol.Settings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Revision > s.current.Revision {
		s.current = now
	}
}

// settings reads the document; the defaults if there is none.
func (s *store) settings(ctx context.Context) (*settingsDoc, error) {
	entry, err := s.kv.Get(ctx, settingsKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return &settingsDoc{Settings: protocol.DefaultSettings()}, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return readSettings(entry)
}

func readSettings(entry jetstream.KeyValueEntry) (*settingsDoc, error) {
	doc := &settingsDoc{Settings: protocol.DefaultSettings()}
	if err := document.Unmarshal(entry.Value(), doc); err != nil {
		return nil, err
	}
	doc.Revision = entry.Revision()
	return doc, nil
}

// putSettings writes the document over the revision it was read at, and sets
// the new one. It is errMoved if that has changed.
func (s *store) putSettings(ctx context.Context, doc *settingsDoc) error {
	read := doc.Revision
	doc.Revision = 0 // the bucket's entry has it
	data, err := document.Marshal(doc)
	if err != nil {
		return err
	}
	doc.Revision, err = s.write(ctx, settingsKey, data, read)
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return errMoved
	}
	return unavailable(err)
}

// readSettings answers with the settings there are.
func (s *Service) readSettings(context.Context, protocol.Empty) (protocol.Settings, error) {
	return s.settings.get(), nil
}

// changeSettings stores a change and tells the routers.
func (s *Service) changeSettings(ctx context.Context, change protocol.SettingsChange) (protocol.Settings, error) {
	for {
		doc, err := s.store.settings(ctx)
		if err != nil {
			return protocol.Settings{}, err
		}
		now, err := change.Apply(doc.Settings)
		if err != nil || now == doc.Settings {
			return now, err
		}
		doc.Settings = now
		if err := s.store.putSettings(ctx, doc); errors.Is(err, errMoved) {
			continue
		} else if err != nil {
			return now, err
		}
		s.settings.see(doc.Settings)
		s.tellSettings()
		return doc.Settings, nil
	}
}

// tellSettings tells the routers, which read them too by themselves.
func (s *Service) tellSettings() {
	body, err := json.Marshal(s.settings.get())
	if err == nil {
		err = s.nc.Publish(protocol.SubjectSettingsChanged, body)
	}
	if err != nil {
		s.log.Warn("a change of the settings could not be announced", "error", err)
	}
}

// beginSettings reads the settings, and changes those that this registry was
// started with.
func (s *Service) beginSettings(ctx context.Context) error {
	doc, err := s.store.settings(ctx)
	if err != nil {
		return err
	}
	s.settings.see(doc.Settings)
	_, err = s.changeSettings(ctx, s.o.Settings)
	return err
}

// watchSettings follows what other registries change.
func (s *Service) watchSettings(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.watchSettingsOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.Debug("the settings cannot be watched; trying again", "error", err)
			pause(ctx, watchPause)
		}
	}
}

func (s *Service) watchSettingsOnce(ctx context.Context) error {
	w, err := s.store.kv.Watch(ctx, settingsKey)
	if err != nil {
		return err
	}
	defer w.Stop() //nolint:errcheck // fails only with the connection gone
	end := time.NewTimer(rereadEvery)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return nil
		case entry, ok := <-w.Updates():
			if !ok {
				return errors.New("the watch has ended")
			}
			if entry == nil || entry.Operation() != jetstream.KeyValuePut {
				continue
			}
			doc, err := readSettings(entry)
			if err != nil {
				return err
			}
			s.settings.see(doc.Settings)
		}
	}
}
