package harness

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster is a mesh of separate services on a cluster of three NATS servers in
// this process, which keep what is stored three times.
type Cluster struct {
	*Separate

	servers []*server.Server
	options []*server.Options
}

const clusterSize = 3

// StartCluster is StartSeparate on such a cluster.
func StartCluster(t testing.TB, copies map[string]int) *Cluster {
	t.Helper()
	c := &Cluster{Separate: newSeparate(t, "")}
	const host = "127.0.0.1"
	var ports [clusterSize]int
	routes := make([]*url.URL, clusterSize)
	for i := range ports {
		ports[i] = freePort(t)
		routes[i] = natsAt(host, ports[i])
	}
	urls := make([]string, clusterSize)
	for i, port := range ports {
		o := &server.Options{
			ServerName: "n" + strconv.Itoa(i+1), Host: host, Port: freePort(t), NoSigs: true, NoLog: true, MaxPayload: 8 << 20,
			JetStream: true, StoreDir: t.TempDir(), SyncInterval: time.Minute, // three copies are safe enough
			Cluster: server.ClusterOpts{Name: "c", Host: host, Port: port}, Routes: routes,
		}
		c.options = append(c.options, o)
		c.servers = append(c.servers, c.server(o))
		urls[i] = natsAt(host, o.Port).String()
	}
	Await(t, "the NATS cluster has a leader", c.led)
	c.URL = strings.Join(urls, ",")
	c.connect()
	for _, service := range Services {
		var args []string
		if service != "gateway" {
			args = []string{"--replicas", strconv.Itoa(clusterSize)}
		}
		for i := range max(copies[service], 1) {
			c.Add(service, fmt.Sprintf("%s-%d", service, i+1), args...)
		}
	}
	c.HTTP = c.instances["gateway-1"].web()
	c.AwaitReady()
	return c
}

func natsAt(host string, port int) *url.URL {
	return &url.URL{Scheme: "nats", Host: net.JoinHostPort(host, strconv.Itoa(port))}
}

func (c *Cluster) server(o *server.Options) *server.Server {
	c.t.Helper()
	s, err := server.NewServer(o.Clone())
	if err != nil {
		c.t.Fatal(err)
	}
	go s.Start() // until its end, which the test waits for
	c.t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// led says whether all servers belong to the cluster, and it has a leader.
func (c *Cluster) led() bool {
	for _, s := range c.servers {
		if s.Running() && s.JetStreamIsLeader() {
			return len(s.JetStreamClusterPeers()) == clusterSize
		}
	}
	return false
}

// LeaderOf is the number of the server that leads a stream.
func (c *Cluster) LeaderOf(stream string) int {
	c.t.Helper()
	leader := -1
	Await(c.t, "a leader of "+stream, func() bool {
		for i, s := range c.servers {
			if s.Running() && s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}

// StopServer ends a server without a word to its clients, and StartServer
// starts it again.
func (c *Cluster) StopServer(i int) {
	c.servers[i].Shutdown()
	c.servers[i].WaitForShutdown()
}

// StartServer starts a server that was stopped, on its data and its ports.
func (c *Cluster) StartServer(i int) {
	c.t.Helper()
	c.servers[i] = c.server(c.options[i])
	Await(c.t, "the cluster is whole", c.led)
}

// freePort is a port that was free a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
