package live

import (
	"os"
	"os/exec"
	"testing"
)

// Redis is a running Redis, which keeps nothing.
type Redis struct{ server }

var sharedRedis one[Redis]

// SharedRedis is the one that the tests of this program share; it ends with the
// program. Nobody may stop it. Its channels are everybody's, so tests use topics of
// their own.
func SharedRedis(t testing.TB) *Redis {
	t.Helper()
	return sharedRedis.get(t, "Redis", runRedis)
}

func runRedis() (*Redis, error) {
	dir, err := os.MkdirTemp("", "waybill-redis-")
	if err != nil {
		return nil, err
	}
	r, err := newRedis(dir)
	if err != nil {
		return nil, err
	}
	if err := r.start(); err != nil {
		return nil, err
	}
	return r, nil
}

// StartRedis starts one for this test alone, that may be killed and started again.
func StartRedis(t testing.TB) *Redis {
	t.Helper()
	r, err := newRedis(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r.startFor(t)
	return r
}

func newRedis(dir string) (*Redis, error) {
	script, err := scriptOf("redis.sh")
	if err != nil {
		return nil, err
	}
	p, err := ports(1)
	if err != nil {
		return nil, err
	}
	return &Redis{server{name: "Redis", script: script, dir: dir, environment: []string{"REDIS_PORT=" + p[0]}}}, nil
}

// URL is where it is.
func (r *Redis) URL() string { return r.addresses[0] }

// CloseConnections closes every connection to it.
func (r *Redis) CloseConnections(t testing.TB) {
	t.Helper()
	for _, kind := range []string{"normal", "pubsub"} {
		r.Command(t, "CLIENT", "KILL", "TYPE", kind)
	}
}

// Command runs redis-cli and returns what it prints.
func (r *Redis) Command(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.script, append([]string{"cli"}, args...)...)
	cmd.Env = append(os.Environ(), append(r.environment, "BROKER_DIR="+r.dir)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli %v: %v\n%s", args, err, out)
	}
	return string(out)
}
