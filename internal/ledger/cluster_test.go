package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
)

// runCluster starts three servers.
func runCluster(t *testing.T) []*server.Server {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		ports = append(ports, port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	servers := make([]*server.Server, 3)
	for i := range servers {
		o := &server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			SyncAlways: true, Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]}, Routes: routes, MaxPayload: 8 << 20,
		}
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { stopServer(s) })
		servers[i] = s
	}
	return servers
}

// TestLeaderChanges moves the leader of a replicated log under load, again and
// again: what was answered is there, once.
func TestLeaderChanges(t *testing.T) {
	servers := runCluster(t)
	nc := patient(t, servers[0].ClientURL())
	replicated(t, nc)
	l := openLedger(t, nc, "test-00")
	load := startPublishing(l)
	for range 4 {
		n := len(l.answered())
		l.until(t, "publishes", func() bool { return l.commits(ledger.KindAccept) >= n+50 })
		stepDown(t, nc)
	}
	n := len(l.answered())
	l.until(t, "publishes", func() bool { return l.commits(ledger.KindAccept) >= n+50 })
	load.end()
	l.stop()
	l.check2(nc, l.answered())
}

// stepDown has the leader give up. A leader that leaves may take its answer
// with it, so it is asked again.
func stepDown(t *testing.T, nc *nats.Conn) {
	t.Helper()
	for ctx := t.Context(); ; {
		try, stop := context.WithTimeout(ctx, 3*time.Second)
		_, err := nc.RequestWithContext(try, "$JS.API.STREAM.LEADER.STEPDOWN."+streamName, nil)
		stop()
		switch {
		case err == nil, errors.Is(err, nats.ErrNoResponders):
			return
		case ctx.Err() != nil:
			t.Fatal(err)
		}
	}
}

// replicated makes the stream once the servers have found each other.
func replicated(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		try, stop := context.WithTimeout(ctx, time.Second)
		_, err := js.CreateStream(try, jetstream.StreamConfig{
			Name: streamName, Subjects: []string{"wb.log.test.*"}, Replicas: 3, AllowDirect: true, DenyDelete: true,
		})
		stop()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}
