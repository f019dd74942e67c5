package router_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// deaf is a lane whose owner has its lease and hears nothing, as one that was
// killed a moment ago.
type deaf struct{ done chan struct{} }

func (d *deaf) Forward(uint64)        {}
func (d *deaf) Done() <-chan struct{} { return d.done }
func (d *deaf) Err() error            { return nil }
func (d *deaf) Stop(context.Context) error {
	close(d.done)
	return nil
}

// A publish to a lane whose owner is gone is refused soon, not left without an
// answer; when the lane has an owner again, it is taken.
func TestPublishesToALaneWithoutAnOwnerAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := mesh.Connect(f.guarded(), mesh.ConnectOptions{URL: f.url, NoBuffer: true})
	f.must(err)
	t.Cleanup(conn.Close)
	gone := ledger.NewKeeper(ledger.KeeperOptions{
		Conn: conn, Service: "router", Ledgers: 4, Instance: "gone",
		Open: func(context.Context, string) (ledger.Handle, error) { return &deaf{done: make(chan struct{})}, nil },
	})
	f.must(gone.Start(f.guarded()))
	t.Cleanup(func() { f.must(gone.Stop(context.Background())) })
	f.router("b", nil)
	f.await("the router has its share", func() bool { return f.lanes("b") == 2 })
	route := f.routeOf(gone.Owned()[0])
	for range 10 { // the first too, which is passed on to nobody
		if _, refused := f.publish(route); refused == nil || refused.Code != protocol.CodeUnavailable {
			t.Fatalf("a publish nobody can take: %v", refused)
		}
	}
	f.must(gone.Stop(context.Background()))
	f.await("the router has all", func() bool { return f.lanes("b") == 4 })
	f.published(route)
}

// Any of several routers takes any publish, whoever owns its lane.
func TestAnyRouterTakesAnyPublish(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	f.router("b", nil)
	f.await("both have their share", func() bool { return f.lanes("a") == 2 && f.lanes("b") == 2 })
	f.await("every lane is open", func() bool {
		ready, err := mesh.Gather[protocol.Ready](f.guarded(), f.nc, protocol.SubjectReady, protocol.Empty{}, 100*time.Millisecond)
		return err == nil && len(ready) == 2 && ready[0].Ready && ready[1].Ready
	})
	end := time.NewTimer(4 * asksForOwners)
	defer end.Stop()
	for n := 0; ; n++ {
		f.published("r" + strconv.Itoa(n%8))
		select {
		case <-end.C:
			return
		default:
		}
	}
}

// asksForOwners is how often a router asks for the owners of lanes.
const asksForOwners = 250 * time.Millisecond

// routeOf is a route of e1 in that lane of four.
func (f *fixture) routeOf(lane string) string {
	for i := 0; ; i++ {
		route := "r" + strconv.Itoa(i)
		if ledger.Name("router", ledger.Of(queueOf(route), 4)) == lane {
			return route
		}
	}
}
