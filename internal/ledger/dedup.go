package ledger

import (
	"crypto/sha256"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Dedup is the 128-bit hash of a queue or topic and a publisher's id.
type Dedup [16]byte

// DedupOf hashes a queue's or topic's name and the id a publisher gave. The
// hash is one that nobody can find two inputs of, since a publish that meets
// another's would be dropped.
func DedupOf(queue, id string) Dedup {
	b := make([]byte, 0, 256)
	b = append(b, queue...)
	b = append(b, 0)
	b = append(b, id...)
	sum := sha256.Sum256(b)
	return Dedup(sum[:16])
}

const (
	// dedupBucket is the grain in which publish ids are forgotten.
	dedupBucket = int64(10 * time.Second)
	dedupWindow = int64(protocol.DedupWindow)
	// maxDedup is how many publish ids a ledger remembers at once.
	maxDedup = 1_000_000
)

// dedups are the publish ids of the last DedupWindow, by the time of the
// records that stated them.
type dedups struct {
	seen    map[Dedup]dedupState
	buckets []dedupTime // oldest first
}

type dedupState struct {
	id     protocol.MessageID
	seq    uint64
	bucket int64 // start, ns
	at     *frame
}

type dedupTime struct {
	start  int64
	hashes []Dedup
}

func bucketOf(t int64) int64 { return t - t%dedupBucket }

func expired(bucket, now int64) bool { return bucket+dedupBucket+dedupWindow <= now }

// find is for a record that will have the time now or a later one.
func (d *dedups) find(h Dedup, now int64) (dedupState, bool) {
	s, ok := d.seen[h]
	return s, ok && !expired(s.bucket, now)
}

// put states an id in frame at; a table states again what was known.
func (d *dedups) put(e dedupEntry, bucket int64, at *frame) {
	if d.seen == nil {
		d.seen = make(map[Dedup]dedupState)
	}
	old, known := d.seen[e.hash]
	if known {
		old.at.unpin()
	}
	at.pins++
	d.seen[e.hash] = dedupState{id: e.id, seq: e.seq, bucket: bucket, at: at}
	if !known || old.bucket != bucket {
		b := d.bucket(bucket)
		b.hashes = append(b.hashes, e.hash)
	}
}

// bucket finds or makes a bucket; it is nearly always the last.
func (d *dedups) bucket(start int64) *dedupTime {
	i := len(d.buckets)
	for i > 0 && d.buckets[i-1].start > start {
		i--
	}
	if i > 0 && d.buckets[i-1].start == start {
		return &d.buckets[i-1]
	}
	d.buckets = append(d.buckets, dedupTime{})
	copy(d.buckets[i+1:], d.buckets[i:])
	d.buckets[i] = dedupTime{start: start}
	return &d.buckets[i]
}

// expire forgets what is older than the window at time now.
func (d *dedups) expire(now int64) {
	for len(d.buckets) > 0 && expired(d.buckets[0].start, now) {
		for _, h := range d.buckets[0].hashes {
			if s := d.seen[h]; s.bucket == d.buckets[0].start && s.at != nil {
				s.at.unpin()
				delete(d.seen, h)
			}
		}
		d.buckets[0] = dedupTime{}
		d.buckets = d.buckets[1:]
	}
}
