package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// configuration is what this registry knows of the configuration.
type configuration struct {
	mu      sync.Mutex
	current *configState
}

// state is the newest that is known.
func (c *configuration) state() *configState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// settings are those of it.
func (c *configuration) settings() protocol.Settings {
	return c.state().settings()
}

// see takes a state, unless a newer one is known.
func (c *configuration) see(now *configState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil || now.doc.revision > c.current.doc.revision {
		c.current = now
	}
}

// beginConfig reads the configuration. Where nobody has configured anything, what
// the registry was given for that is what is; what it was given to change it
// changes at each start.
func (s *Service) beginConfig(ctx context.Context) error {
	for {
		doc, err := s.store.config(ctx)
		if err != nil {
			return err
		}
		now := *doc
		if !doc.Seeded {
			now.set = now.set.Merge(s.o.Config.Seed)
			now.Seeded = len(s.o.Config.Seed) > 0
		}
		now.set = now.set.Merge(s.o.Config.Change)
		s.warnOfSeed(&now)
		before, after := complete(doc), complete(&now)
		if err := after.result.Err(before.result.Unknown()...); err != nil {
			return err
		}
		if err := s.checkStore(ctx, before, after); err != nil {
			return err
		}
		after.placedAfter(before, nil)
		if len(config.Diff(doc.set, now.set)) > 0 || doc.Seeded != now.Seeded {
			now.By, now.At, now.Restores = s.o.Config.By, time.Now().UTC(), 0
			err = s.store.putConfig(ctx, &now)
		}
		if errors.Is(err, errMoved) {
			continue
		}
		if err != nil {
			return err
		}
		s.configuration.see(after)
		if now.revision != doc.revision {
			s.tellConfig(after)
		}
		return nil
	}
}

// warnOfSeed says what of the seed does not hold, as somebody has edited it.
func (s *Service) warnOfSeed(now *configDoc) {
	for _, d := range config.Diff(now.set, now.set.Merge(s.o.Config.Seed).Merge(s.o.Config.Change)) {
		s.log.Warn("the stored configuration differs from the file, which counts only where there was none: apply the file to change it",
			"key", d.Key, "stored", string(d.Before), "file", string(d.After), "revision", now.revision)
	}
}

// tellConfig tells everybody of a change; they read it too by themselves.
func (s *Service) tellConfig(now *configState) {
	for subject, event := range map[string]any{
		protocol.SubjectConfigChanged:   protocol.ConfigChanged{Revision: now.doc.revision},
		protocol.SubjectSettingsChanged: now.settings(),
	} {
		body, err := json.Marshal(event)
		if err == nil {
			err = s.nc.Publish(subject, body)
		}
		if err != nil {
			s.log.Warn("a change of the configuration could not be announced", "error", err)
		}
	}
}

// confirmConfig returns when every lane works by an edit that is stored.
func (s *Service) confirmConfig(ctx context.Context, edit *configEdited, purge bool) error {
	total, err := s.ledgers(ctx, "router")
	if err != nil {
		return err
	}
	settings := edit.after.settings()
	var asking sync.WaitGroup
	errs := make([]error, total)
	for i := range total {
		asking.Go(func() { errs[i] = s.confirmSettings(ctx, ledger.Name("router", i), settings) })
	}
	defined := s.confirmDefinitions(ctx, edit, purge)
	asking.Wait()
	if err := errors.Join(ofLanes(errs), defined); err != nil {
		return protocol.Errorf(protocol.CodeUnavailable, "the configuration is stored, as revision %d, and will hold; not yet: %s", settings.Revision, oneLine(err))
	}
	return nil
}

// ofLanes is what lanes, by their number, answered; what several did is said once.
func ofLanes(errs []error) error {
	lanes := map[string][]string{}
	for i, err := range errs {
		if err != nil {
			lane := ledger.Name("router", i)
			text := strings.ReplaceAll(err.Error(), "lane "+lane, "the lane")
			lanes[text] = append(lanes[text], lane)
		}
	}
	all := make([]error, 0, len(lanes))
	for _, text := range slices.Sorted(maps.Keys(lanes)) {
		all = append(all, fmt.Errorf("%s: %s", strings.Join(lanes[text], ", "), text))
	}
	return errors.Join(all...)
}

// oneLine is an error of several on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// confirmSettings asks a lane's owner until it confirms.
func (s *Service) confirmSettings(ctx context.Context, lane string, settings protocol.Settings) error {
	return s.untilConfirmed(ctx, lane, func(try context.Context) error {
		_, err := mesh.Request[protocol.Empty](try, s.nc, protocol.SubjectLane+lane+"."+protocol.VerbConfigure, settings)
		if protocol.CodeOf(err) == protocol.CodeUnavailable && s.ownedByEarlier(ctx, lane) {
			return nil
		}
		return err
	})
}

// ownedByEarlier says whether the lane's owner is of a version that cannot be
// asked to confirm, and follows the events. One that can be asked answers that
// before it says that it is the owner.
func (s *Service) ownedByEarlier(ctx context.Context, lane string) bool {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	if _, err := s.nc.RequestWithContext(ctx, protocol.SubjectLane+lane+"."+protocol.VerbOwner, nil); err != nil {
		return false
	}
	_, err := s.nc.RequestWithContext(ctx, protocol.SubjectLane+lane+"."+protocol.VerbConfigure, nil)
	return errors.Is(err, nats.ErrNoResponders)
}

// watchConfig follows what other registries change.
func (s *Service) watchConfig(ctx context.Context) {
	f := mesh.Follower{
		KV: s.store.kv, Keys: configKey,
		See: func(_ context.Context, entry jetstream.KeyValueEntry, _ bool) {
			if entry.Operation() != jetstream.KeyValuePut {
				return
			}
			doc, err := readConfig(entry)
			if err != nil {
				s.log.Warn("the configuration's record cannot be used", "error", err)
				return
			}
			s.configuration.see(complete(doc))
		},
		Failed: func(err error) { s.log.Debug("the configuration cannot be watched; trying again", "error", err) },
	}
	f.Run(ctx)
}
