package registry

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Bucket is the KV bucket with a record per worker, per queue with a policy of
// its own, and per closed execution.
const Bucket = "WAYBILL_REGISTRY"

const (
	workerKey = "worker." // followed by the worker's id
	policyKey = "policy." // followed by <execution>.<route>

	// Followed by the name of a topic's queue in base64, as a key may not have
	// all its characters.
	topicPolicyKey = "policy-topic."
	claimKey       = "observer."

	// history is how many revisions of a record the bucket has room for. NATS
	// keeps no note of what it drops for want of room: if it is killed after the
	// record was removed, the last revision that it dropped is there again. So
	// older ones are purged, which it does note, before the room is used up.
	history = 64
)

// errMoved: another registry, or another request, changed the record first.
var errMoved = errors.New("the record has changed meanwhile")

// workerDoc is a worker's record as it is stored. One that says Gone is on its
// way out: it tells every registry, and is removed.
type workerDoc struct {
	document.Head
	protocol.Worker
	// Resting are subscriptions that the worker declared of executions which
	// are gone.
	Resting []protocol.Subscription `json:"resting,omitempty"`
	// Left is the newest declaration of a worker that said Bye.
	Left uint64 `json:"left,omitempty"`

	granted []string // what its brokers warn of
}

type policyDoc struct {
	document.Head
	protocol.Policy
	// By is the subscription that asked for it.
	By string `json:"by"`
}

// store is the bucket.
type store struct {
	js     jetstream.JetStream
	kv     jetstream.KeyValue
	stream jetstream.Stream // below it
}

// openStore makes the bucket if it is not there.
func openStore(ctx context.Context, nc *nats.Conn, replicas int) (*store, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := mesh.Bucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: Bucket, Description: "Waybill: workers and policies", History: history, Replicas: replicas,
	})
	if err != nil {
		return nil, err
	}
	stream, err := mesh.Made(ctx, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, "KV_"+Bucket) })
	if err != nil {
		return nil, fmt.Errorf("opening the bucket %s: %w", Bucket, err)
	}
	if cfg := stream.CachedInfo().Config; cfg.MaxMsgsPerSubject < history { // of an earlier version
		cfg.MaxMsgsPerSubject = history
		if stream, err = js.UpdateStream(ctx, cfg); err != nil {
			return nil, fmt.Errorf("updating the bucket %s: %w", Bucket, err)
		}
	}
	return &store{js: js, kv: kv, stream: stream}, nil
}

// write writes a record over the revision it was read at, 0 if there was none,
// and removes those before.
func (s *store) write(ctx context.Context, key string, data []byte, over uint64) (revision uint64, err error) {
	if over == 0 {
		return s.kv.Create(ctx, key, data)
	}
	revision, err = s.kv.Update(ctx, key, data, over)
	if err == nil {
		_ = s.purge(ctx, key, revision) // else the next does
	}
	return revision, err
}

// purge removes a record's revisions before one.
func (s *store) purge(ctx context.Context, key string, before uint64) error {
	return s.stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+Bucket+"."+key), jetstream.WithPurgeSequence(before))
}

// worker reads a worker's record; nil if there is none.
func (s *store) worker(ctx context.Context, id string) (*workerDoc, error) {
	entry, err := s.kv.Get(ctx, workerKey+id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil //nolint:nilnil // no record is no error
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return readWorker(entry)
}

func readWorker(entry jetstream.KeyValueEntry) (*workerDoc, error) {
	d := &workerDoc{}
	if err := document.Unmarshal(entry.Value(), d); err != nil {
		return nil, err
	}
	d.KVRevision = entry.Revision()
	return d, nil
}

// put writes a worker's record over the revision it was read at, 0 if there
// was none, and sets the new one. It is errMoved if that has changed.
func (s *store) put(ctx context.Context, d *workerDoc) error {
	data, err := document.Marshal(d)
	if err != nil {
		return err
	}
	revision, err := s.write(ctx, workerKey+d.ID, data, d.KVRevision)
	switch {
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return errMoved
	case errors.Is(err, nats.ErrMaxPayload):
		return protocol.Errorf(protocol.CodeLimitExceeded, "the worker's declaration takes %d bytes, more than this NATS carries: declare less in one worker", len(data))
	case err != nil:
		return unavailable(err)
	}
	d.KVRevision = revision
	return nil
}

// remove removes a worker's record that says Gone, and leaves no marker behind.
// One that was written since stays.
func (s *store) remove(ctx context.Context, d *workerDoc) error {
	return s.purge(ctx, workerKey+d.ID, d.KVRevision+1)
}

// policy reads a queue's policy; ok is false if it has none of its own.
func (s *store) policy(ctx context.Context, queue string) (d policyDoc, revision uint64, err error) {
	key, err := keyOfPolicy(queue)
	if err != nil {
		return d, 0, err
	}
	entry, err := s.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return policyDoc{Policy: defaultPolicy(queue)}, 0, nil
	}
	if err != nil {
		return d, 0, unavailable(err)
	}
	err = document.Unmarshal(entry.Value(), &d)
	return d, entry.Revision(), err
}

// putPolicy writes a queue's policy over the revision it was read at. A queue
// with the defaults has no record: there may be very many queues.
func (s *store) putPolicy(ctx context.Context, queue string, d policyDoc, revision uint64) error {
	key, err := keyOfPolicy(queue)
	if err != nil {
		return err
	}
	data, err := document.Marshal(&d)
	if err != nil {
		return err
	}
	switch {
	case d.Policy == defaultPolicy(queue) && revision == 0:
		return nil
	case d.Policy == defaultPolicy(queue):
		err = s.purge(ctx, key, revision+1)
	default:
		_, err = s.write(ctx, key, data, revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return errMoved
	}
	return unavailable(err)
}

func keyOfPolicy(queue string) (string, error) {
	if scope.SubscribedTopic(queue) != "" {
		return topicPolicyKey + encoded(queue), nil
	}
	execution, route, err := scope.ParseScoped(queue)
	return policyKey + execution + "." + route, err
}

func encoded(queue string) string { return base64.RawURLEncoding.EncodeToString([]byte(queue)) }

// claim reads who observes under an id; nobody ever did if revision is 0.
func (s *store) claim(ctx context.Context, queue string) (d claimDoc, revision uint64, err error) {
	entry, err := s.kv.Get(ctx, claimKey+encoded(queue))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return d, 0, nil
	}
	if err != nil {
		return d, 0, unavailable(err)
	}
	err = document.Unmarshal(entry.Value(), &d)
	return d, entry.Revision(), err
}

// putClaim writes a claim over the revision it was read at. It is errMoved if
// that has changed.
func (s *store) putClaim(ctx context.Context, queue string, d *claimDoc, revision uint64) error {
	data, err := document.Marshal(d)
	if err != nil {
		return err
	}
	_, err = s.write(ctx, claimKey+encoded(queue), data, revision)
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return errMoved
	}
	return unavailable(err)
}

// unavailable codes an error of the bucket; nil for nil.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return protocol.Errorf(protocol.CodeUnavailable, "the registry's bucket does not answer (%v): is NATS there, with JetStream? Try again", err)
}

// idOf is the worker a key is the record of.
func idOf(key string) string { return strings.TrimPrefix(key, workerKey) }
