package harness

import (
	"net/http"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
)

// Link is a network between a mesh and a broker that can fail, by Toxiproxy.
type Link struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
}

// NewLink stands in front of the broker at HOST:PORT until the test ends.
func NewLink(t testing.TB, address string) *Link {
	t.Helper()
	client := toxiproxy.NewClient(strings.TrimPrefix(live.Toxiproxy(t), "http://"))
	proxy, err := client.CreateProxy("broker", "127.0.0.1:0", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &Link{t: t, proxy: proxy}
}

// Address is HOST:PORT of the way through the link.
func (l *Link) Address() string { return l.proxy.Listen }

// Cut closes every connection and refuses new ones until Mend.
func (l *Link) Cut() {
	l.t.Helper()
	l.must(l.proxy.Disable())
}

// HalfOpen lets nothing through in either direction and closes nothing, until
// Mend: what a peer sees whose partner lost its power.
func (l *Link) HalfOpen() {
	l.t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		l.add("timeout", stream, toxiproxy.Attributes{"timeout": 0})
	}
}

// Slow adds milliseconds to each direction and bounds its bytes a second.
func (l *Link) Slow(milliseconds, kilobytes int) {
	l.t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		l.add("latency", stream, toxiproxy.Attributes{"latency": milliseconds})
		l.add("bandwidth", stream, toxiproxy.Attributes{"rate": kilobytes})
	}
}

// Mend lets everything through again. What a half-open link held back is gone.
func (l *Link) Mend() {
	l.t.Helper()
	toxics, err := l.proxy.Toxics()
	l.must(err)
	for i := range toxics {
		l.must(l.proxy.RemoveToxic(toxics[i].Name))
	}
	l.must(l.proxy.Enable())
}

func (l *Link) add(kind, stream string, a toxiproxy.Attributes) {
	l.t.Helper()
	_, err := l.proxy.AddToxic(kind+"-"+stream, kind, stream, 1, a)
	l.must(err)
}

func (l *Link) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("the link to the broker: %v", err)
	}
}
