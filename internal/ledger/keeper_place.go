package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Where ledgers lie: the stream of a service, the ledgers on it, and which of
// them is a queue's. All of it is fixed when the stream is made, and said in
// its metadata.

const (
	defaultLanes    = 16 // the ledgers of router
	defaultLedgers  = 4  // of the others
	defaultReplicas = 1

	metaLedgers = "waybill.ledgers"
	metaHash    = "waybill.hash"
	hashXXH64   = "xxh64"
)

// Of is the number, from 0 to n-1, of the queue's ledger among n. The queues
// of a topic's subscribers (<topic>::…) lie in the ledger of the topic, so that
// a message for all of them is one record. It never changes: a queue would
// lose its messages.
func Of(queue string, n int) int {
	home, _, _ := strings.Cut(strings.TrimPrefix(queue, "/topic/"), "::")
	return int(xxhash.Sum64String(home) % uint64(n))
}

// OfTopic is the number of the ledger with the queues of a topic's subscribers
// among n: what Of says of each of them.
func OfTopic(topic string, n int) int { return Of(topic+"::", n) }

// Name is the i-th ledger of a service, such as router-03. It is asked for with
// each message that is handed over.
func Name(service string, i int) string {
	if i < 10 {
		return service + "-0" + strconv.Itoa(i)
	}
	return service + "-" + strconv.Itoa(i)
}

// StreamOf is the stream with a service's ledgers, such as WAYBILL_ROUTER.
func StreamOf(service string) string { return "WAYBILL_" + strings.ToUpper(service) }

// Count is the number of ledgers a service has. It fails with NOT_FOUND before
// the service's first start.
func Count(ctx context.Context, js jetstream.JetStream, service string) (int, error) {
	stream, err := js.Stream(ctx, StreamOf(service))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, protocol.Errorf(protocol.CodeNotFound, "there is no stream %s: the %s service has never been started on this NATS", StreamOf(service), service)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the stream %s: %w", StreamOf(service), err)
	}
	return countOf(stream)
}

func countOf(stream jetstream.Stream) (int, error) {
	cfg := stream.CachedInfo().Config
	n, err := strconv.Atoi(cfg.Metadata[metaLedgers])
	if err != nil || n < 1 {
		return 0, protocol.Errorf(protocol.CodeConflict, "the stream %s is not Waybill's: its metadata %s is %q, no number of ledgers", cfg.Name, metaLedgers, cfg.Metadata[metaLedgers])
	}
	if hash := cfg.Metadata[metaHash]; hash != hashXXH64 {
		return 0, protocol.Errorf(protocol.CodeUnsupported, "the stream %s spreads its queues by %q, which this version does not know: run the version that made it", cfg.Name, hash)
	}
	return n, nil
}

// openStream returns the service's stream, which is made if it is not there.
func openStream(ctx context.Context, js jetstream.JetStream, o KeeperOptions) (jetstream.Stream, error) {
	name := StreamOf(o.Service)
	stream, err := mesh.Made(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			stream, err = js.CreateStream(ctx, streamConfig(o))
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another instance was first
			stream, err = js.Stream(ctx, name)
		}
		return stream, err
	})
	if err != nil {
		return nil, fmt.Errorf("opening the stream %s: %w", name, err)
	}
	n, err := countOf(stream)
	if err != nil {
		return nil, err
	}
	warnOfWishes(o, stream.CachedInfo().Config, n)
	return stream, nil
}

func warnOfWishes(o KeeperOptions, cfg jetstream.StreamConfig, n int) {
	if o.Ledgers != 0 && o.Ledgers != n {
		o.Logger.Warn("the number of ledgers was fixed at the first start; another one has no effect",
			slog.String("stream", cfg.Name), slog.Int("ledgers", n), slog.Int("asked", o.Ledgers))
	}
	if o.Replicas != 0 && o.Replicas != cfg.Replicas {
		o.Logger.Warn("the stream has another number of replicas than asked for; change it with the nats tool",
			slog.String("stream", cfg.Name), slog.Int("replicas", cfg.Replicas), slog.Int("asked", o.Replicas))
	}
	if storage := storageOf(o); storage != cfg.Storage {
		o.Logger.Warn("the stream is stored in another way than asked for, as it was when it was made",
			slog.String("stream", cfg.Name), slog.String("storage", cfg.Storage.String()), slog.String("asked", storage.String()))
	}
}

// streamConfig has no limit that could act: it would refuse commits or drop
// live records. Nothing is removed except by purging behind the floor.
func streamConfig(o KeeperOptions) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        StreamOf(o.Service),
		Description: "Waybill: the log of the " + o.Service + " service's ledgers",
		Subjects:    []string{"wb.log." + o.Service + ".*"},
		Retention:   jetstream.LimitsPolicy,
		Storage:     storageOf(o),
		Discard:     jetstream.DiscardNew,
		MaxMsgs:     -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, MaxConsumers: -1,
		Replicas:    cmp.Or(o.Replicas, defaultReplicas),
		Compression: jetstream.NoCompression,
		AllowDirect: true,
		DenyDelete:  true,
		Duplicates:  minDuplicates, // frames have no id
		Metadata:    map[string]string{metaLedgers: strconv.Itoa(ledgersOf(o)), metaHash: hashXXH64},
	}
}

func storageOf(o KeeperOptions) jetstream.StorageType {
	if o.Memory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// ledgersOf is how many ledgers a service begins with.
func ledgersOf(o KeeperOptions) int {
	if o.Ledgers == 0 && o.Service == "router" {
		return defaultLanes
	}
	return cmp.Or(o.Ledgers, defaultLedgers)
}

// minDuplicates is the least window the server takes.
const minDuplicates = 100 * time.Millisecond
