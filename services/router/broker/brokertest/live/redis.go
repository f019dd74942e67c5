package live

import "testing"

// Redis is a running Redis, which keeps nothing.
type Redis struct{ *server }

var redis = kind{name: "Redis", script: "redis.sh", ports: []string{"REDIS_PORT"}, addresses: 1}

// SharedRedis is the one that the tests of this program share; it ends with the
// program. Nobody may stop it. Its channels are everybody's, so tests use topics of
// their own.
func SharedRedis(t testing.TB) *Redis {
	t.Helper()
	return &Redis{redis.shared(t)}
}

// StartRedis starts one for this test alone, that may be killed and started again.
func StartRedis(t testing.TB) *Redis {
	t.Helper()
	return &Redis{redis.start(t)}
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
	return r.run(t, append([]string{"cli"}, args...)...)
}
