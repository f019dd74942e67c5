package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// configOf reads the configuration of an adapter of that name over its defaults, which
// are the answer with false if another is chosen.
func configOf[C any](name string, a protocol.Adapter, c C) (C, bool) {
	if a.Name != name {
		return c, false
	}
	read := len(a.Config) == 0 || json.Unmarshal(a.Config, &c) == nil
	return c, read
}

// addressOf refuses what is no address of these schemes.
func addressOf(example string, schemes ...string) func(text string) error {
	return func(text string) error {
		at, err := url.Parse(text)
		if err == nil {
			password, _ := at.User.Password()
			switch {
			case password == hidden:
				return errors.New("its password is the mask that config show has for one: write the password itself")
			case strings.Contains(at.Host, ","):
				return errors.New("it names several hosts: name one, or one that stands for all of them")
			case at.Hostname() != "" && slices.Contains(schemes, at.Scheme):
				return nil
			}
		}
		return fmt.Errorf("it is an address such as %s", example)
	}
}

// serverOf splits the address that is the value of a key: scheme, host and port are the
// server. An address that names no port means the one of plain connections, or of those
// over TLS.
func serverOf(key, address, plain, tls string) (server, path string, err error) {
	at, err := url.Parse(address)
	if err != nil {
		return "", "", protocol.Errorf(protocol.CodeInvalidArgs, "%s is no address", key)
	}
	port := plain
	if isTLS[at.Scheme] {
		port = tls
	}
	return at.Scheme + "://" + net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), port)), at.Path, nil
}

var isTLS = map[string]bool{"amqps": true, "stomps": true, "rediss": true, "pulsar+ssl": true}
