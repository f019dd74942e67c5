package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/scanner"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// The pipeline's routes.
const (
	routeFind  = "find"
	routeParse = "parse"
	routeStore = "store"
)

// pipeline finds Go files, parses them and stores what they declare: one
// handler a route. Its executions do not know of each other.
type pipeline struct {
	c         *client.Client
	execution string
	store     string // directory the results go to
}

// work registers the three handlers.
func (p *pipeline) work(ctx context.Context) error {
	for route, handler := range map[string]client.Handler{
		routeFind: p.find, routeParse: p.parse, routeStore: p.save,
	} {
		if _, err := p.c.Work(ctx, p.execution, route, handler, client.Backoff(100*time.Millisecond), client.Concurrency(32)); err != nil {
			return err
		}
	}
	return nil
}

// begin sends the directory in.
func (p *pipeline) begin(ctx context.Context, dir string) error {
	_, err := p.c.Publish(ctx, client.Queue(p.execution, routeFind), []byte(dir))
	return err
}

// find publishes each Go file below a directory. Ids make a second attempt
// harmless.
func (p *pipeline) find(ctx context.Context, d *client.Delivery) error {
	var files []client.Message
	err := goFiles(string(d.Data), func(path string) error {
		files = append(files, client.Message{To: client.Queue(p.execution, routeParse), Data: []byte(path), DedupID: path})
		return nil
	})
	if err != nil {
		return err
	}
	_, err = p.c.PublishMany(ctx, files)
	return err
}

// parse reads one file. One that is no Go will not be any at the next attempt
// either.
func (p *pipeline) parse(ctx context.Context, d *client.Delivery) error {
	path := string(d.Data)
	s, err := parse(path)
	if _, syntax := errors.AsType[scanner.ErrorList](err); syntax {
		return client.Reject(err)
	}
	if err != nil {
		return err
	}
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = p.c.Publish(ctx, client.Queue(p.execution, routeStore), body, client.DedupID(path))
	return err
}

// save stores one result, when the store is willing.
func (p *pipeline) save(_ context.Context, d *client.Delivery) error {
	var s summary
	if err := json.Unmarshal(d.Data, &s); err != nil {
		return client.Reject(err)
	}
	if fails := storeFails(s.Path); d.Generation == 0 && d.Attempt <= fails {
		return fmt.Errorf("the store does not take %s today (try %d of %d)", filepath.Base(s.Path), d.Attempt, d.MaxRetries)
	}
	h := fnv.New64a()
	h.Write([]byte(s.Path))
	return os.WriteFile(filepath.Join(p.store, strconv.FormatUint(h.Sum64(), 16)+".json"), d.Data, 0o600)
}

// stored adds up what is in the store.
func (p *pipeline) stored() (files, functions int, err error) {
	names, err := filepath.Glob(filepath.Join(p.store, "*.json"))
	for _, name := range names {
		var s summary
		body, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(body, &s)
		}
		if err != nil {
			return 0, 0, err
		}
		files++
		functions += s.Functions
	}
	return files, functions, err
}

// add adds one queue's counters.
func (t *Totals) add(q *protocol.QueueInfo) {
	t.Published += q.Counters[protocol.CountPublished]
	t.Acknowledged += q.Counters[protocol.CountAcknowledged]
	t.Retried += q.Counters[protocol.CountRetried]
	t.DeadLettered += q.Counters[protocol.CountDeadLettered]
}
