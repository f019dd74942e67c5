// Package bind says which addresses a process may listen on.
package bind

import (
	"net"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Loopback says whether host, a name or an address without a port, is this
// machine's own loopback. Of names only "localhost" is: any other may resolve
// to something else tomorrow.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Check refuses, with FORBIDDEN, a host that others can reach: everybody there
// could read and publish, since callers are not authenticated.
func Check(what, host string) error {
	if Loopback(host) {
		return nil
	}
	return protocol.Errorf(protocol.CodeForbidden,
		"%s may not listen on %q: callers are not authenticated, so it would be open to everybody who reaches it; listen on 127.0.0.1 and put an authenticating proxy in front", what, host)
}
